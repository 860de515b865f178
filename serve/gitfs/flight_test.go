package gitfs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// TestFlights lets callers wait for one task; its caller leaves, and the next one runs it.
func TestFlights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f flights[int]
		var all sync.WaitGroup
		first, leave := context.WithCancel(t.Context())
		all.Go(func() {
			_, err := f.do(first, "a", func() (int, error) { <-first.Done(); return 0, first.Err() })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that left got %v", err)
			}
		})
		synctest.Wait()
		runs, release := 0, make(chan struct{})
		for range 10 {
			all.Go(func() {
				v, err := f.do(t.Context(), "a", func() (int, error) { runs++; <-release; return runs, nil })
				if v != 1 || err != nil {
					t.Errorf("one that waited got %d, %v", v, err)
				}
			})
		}
		impatient, give := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := f.do(impatient, "a", nil); !errors.Is(err, context.Canceled) {
				t.Errorf("one that gave up got %v", err)
			}
		})
		synctest.Wait()
		give()
		if v, err := f.do(t.Context(), "b", func() (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("another task: %d, %v", v, err)
		}
		leave()
		synctest.Wait()
		close(release)
		all.Wait()
		failure := errors.New("failure")
		if _, err := f.do(t.Context(), "a", func() (int, error) { return 0, failure }); err != failure {
			t.Errorf("a task that fails: %v", err)
		}
		if len(f.at) != 0 {
			t.Errorf("%d tasks are left", len(f.at))
		}
	})
}
