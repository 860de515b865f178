package e2e

import (
	"testing"
	"time"
)

// Eventually calls check until it gives nil, and fails the test if that doesn't
// happen in time. It returns how long it took.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > limit {
			t.Fatalf("%s: not after %v: %v", what, limit, err)
		}
		<-tick.C
	}
}
