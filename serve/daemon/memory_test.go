package daemon

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// After a burst the memory goes back although nothing is allocated any more.
func TestMemoryIsGivenBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); GiveMemoryBack(ctx, NewGivenBack(prometheus.NewRegistry())) }()
	defer func() { cancel(); <-done }()
	samples := memorySamples()
	var burst [][]byte
	for range 64 {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 1
		}
		burst = append(burst, b)
	}
	if high := readMemory(samples); len(burst) != 64 || high.objects < 64<<20 {
		t.Fatalf("the burst is not there: %+v", high)
	}
	runtime.GC() // finds all of it alive, as one that the burst itself set off
	clear(burst)
	for end := time.Now().Add(30 * time.Second); ; {
		now := readMemory(samples)
		if !now.worth(now.reclaimable()) && now.objects < 32<<20 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("kept: %+v", now)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
