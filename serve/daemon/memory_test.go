package daemon

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// After a burst the memory goes back although nothing is allocated any more, also if the burst was
// over before anybody watched.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Run("burst while it watches", func(t *testing.T) {
		stop := giveBack(t)
		defer stop()
		burst := makeBurst(t)
		clear(burst)
		waitForGivenBack(t)
	})
	t.Run("burst before it watches", func(t *testing.T) {
		burst := makeBurst(t)
		stop := giveBack(t)
		defer stop()
		clear(burst)
		waitForGivenBack(t)
	})
}

// giveBack starts GiveMemoryBack and returns what ends it.
func giveBack(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); GiveMemoryBack(ctx, NewGivenBack(prometheus.NewRegistry())) }()
	return func() { cancel(); <-done }
}

// makeBurst returns 64 MiB that the last collection found alive.
func makeBurst(t *testing.T) [][]byte {
	t.Helper()
	var burst [][]byte
	for range 64 {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 1
		}
		burst = append(burst, b)
	}
	if high := readMemory(memorySamples()); len(burst) != 64 || high.objects < 64<<20 {
		t.Fatalf("the burst is not there: %+v", high)
	}
	runtime.GC()
	runtime.KeepAlive(burst)
	return burst
}

func waitForGivenBack(t *testing.T) {
	t.Helper()
	samples := memorySamples()
	for end := time.Now().Add(30 * time.Second); ; {
		now := readMemory(samples)
		if now.objects+now.free < 32<<20 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("kept: %+v", now)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// The runtime can't always return all free pages. Those that it kept are no reason for another
// collection, but what becomes free later is.
func TestMemoryThatStays(t *testing.T) {
	at := time.Unix(1, 0)
	rest := memoryUse{allocated: 100 << 20, objects: 1 << 20, live: 1 << 20, free: 64 << 20}
	g := giver{before: rest}
	if !g.due(rest, at) {
		t.Fatal("memory that is free is not given back")
	}
	rest.free = 2 * worthGiving
	g.gave(rest, at)
	at = at.Add(giveEvery)
	if g.due(rest, at) {
		t.Error("what the last collection could not return is a reason for the next one")
	}
	rest.free = 1 << 20 // pages were used
	if g.due(rest, at) {
		t.Error("less than what is worth a collection is given back")
	}
	rest.free += worthGiving
	if !g.due(rest, at) {
		t.Error("memory that became free after the last collection is kept")
	}
}
