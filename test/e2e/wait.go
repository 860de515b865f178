package e2e

import (
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

// OnceLate calls f when a limit has passed, as a Stopwatch counts it and Within lengthens it,
// unless stop is called before.
func OnceLate(t testing.TB, limit time.Duration, f func()) (stop func()) {
	watch := StartWatch(t)
	ended := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for watch.Took() < Within(limit) {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
		f()
	}()
	return func() { close(ended) }
}
