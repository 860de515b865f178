package ringstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Reads that go on while a store is closed end with an error: none finds a database that is closed
// under it.
func TestReadsWhileItCloses(t *testing.T) {
	t.Parallel()
	for range 5 {
		s, err := Open(t.TempDir(), newAlone(), Options{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		for n := range 20 {
			if err := s.Put(ctx, Key{SpaceJobs, fmt.Sprintf("p%d", n), "n"}, []byte("value"),
				time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		reading := make(chan struct{}, 4)
		for range 4 {
			wg.Go(func() {
				for n := 0; ; n++ {
					_, _, err := s.Get(ctx, Key{SpaceJobs, fmt.Sprintf("p%d", n%20), "n"})
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n == 50 {
						reading <- struct{}{}
					}
				}
			})
		}
		for range 4 {
			<-reading
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// Who gives up waiting for the committer shares nothing with it any more. The race detector sees
// what is wrong here.
func TestGivenUpOrders(t *testing.T) {
	t.Parallel()
	s, err := Open(t.TempDir(), newAlone(), Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), Key{SpaceJobs, "p", "n"}, []byte("value"),
		time.Time{}); err != nil {
		t.Fatal(err)
	}
	given, stop := context.WithCancel(t.Context())
	stop()
	ring := s.view.Load().latest()
	var gone []cellID
	for n := range 200 {
		if _, err := s.dropCells(given, gone, ring); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("%d: %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
