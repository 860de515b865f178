package e2e

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Eventually calls check until it returns nil. It fails the test if that does not happen in time,
// as a Stopwatch counts it; Within lengthens it. It returns how long it took.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	limit = Within(limit)
	start, watch := time.Now(), StartWatch(t)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return watch.Took()
		}
		if time.Since(start) > limit && watch.Took() > limit {
			t.Fatalf("%s: not after %v: %v", what, limit, err)
		}
		<-tick.C
	}
}

// Throughout calls check for a while, for what must not happen. It fails the test as soon as check
// returns an error.
func Throughout(t testing.TB, while time.Duration, what string, check func() error) {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for time.Since(start) < while {
		if err := check(); err != nil {
			t.Fatalf("%s: after %v: %v", what, time.Since(start).Round(time.Millisecond), err)
		}
		<-tick.C
	}
}

// OnceLate calls f when a limit has passed, unless stop is called before. The first half of the
// limit is wall time, so that what is quick costs no look at other processes; the second counts as
// a Stopwatch does. Within lengthens both.
func OnceLate(t testing.TB, limit time.Duration, f func()) (stop func()) {
	return onceLate(testOf(t), limit, f)
}

func onceLate(test string, limit time.Duration, f func()) (stop func()) {
	half := Within(limit) / 2
	ended := make(chan struct{})
	timer := time.AfterFunc(half, func() {
		every := min(time.Second, max(half/10, time.Millisecond))
		watch := startWatch(test, every)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for watch.about(every) < half {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
		f()
	})
	return func() { timer.Stop(); close(ended) }
}

// Deadline is a context that ends when a limit has passed, as OnceLate counts it.
func Deadline(t testing.TB, limit time.Duration) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(context.Background())
	stop := OnceLate(t, limit, func() { end(context.DeadlineExceeded) })
	return ctx, sync.OnceFunc(func() { stop(); end(nil) })
}
