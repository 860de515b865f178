package peer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackOff()
		waits := func() time.Duration {
			t.Helper()
			began := time.Now()
			if err := b.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		between := func(what string, got, least, most time.Duration) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("%s: %v, want %v to %v", what, got, least, most)
			}
		}
		between("first dial", waits(), 0, 0)
		for _, least := range []time.Duration{firstGap, 160 * time.Millisecond,
			256 * time.Millisecond} {
			b.note()
			between("after a dial", waits(), least, least*6/5)
		}
		for range 5 {
			b.note()
		}
		between("after many", waits(), longGap, longGap*6/5)
		time.Sleep(2 * time.Second)
		between("after a connection that lasted", waits(), 0, 0)

		for range 9 {
			b.note()
		}
		done := make(chan time.Duration)
		go func() { done <- waits() }()
		synctest.Wait()
		b.reset()
		between("a wait that is reset", <-done, 0, 0)
		between("the next", waits(), 0, 0)
		b.note()
		between("a dial after that", waits(), firstGap, firstGap*6/5)

		b.note()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that is given up: %v", err)
		}
	})
}
