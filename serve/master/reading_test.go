package master

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestReaders: one request more than may read at a time waits for a place, but not for ever.
func TestReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReaders("files", 2, newMetrics(nil))
		for range 2 {
			if err := r.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := r.enter(t.Context()); !errors.Is(err, errReading) || time.Since(began) != readPatience {
			t.Errorf("without a place: %v after %v", err, time.Since(began))
		}
		time.AfterFunc(time.Second, r.leave)
		began = time.Now()
		if err := r.enter(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("with a place after a second: %v after %v", err, time.Since(began))
		}
		ctx, gone := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, gone)
		if err := r.enter(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a minion that is gone: %v", err)
		}
	})
}
