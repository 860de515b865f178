package gitfs

import (
	"context"
	"sync"
	"time"
)

// throttle spreads what is sent to other masters over time. It is safe for concurrent use.
type throttle struct {
	rate int64 // bytes per second; 0: no limit

	mu   sync.Mutex // guards free
	free time.Time  // when the next byte may go
}

func newThrottle(rate int64) *throttle { return &throttle{rate: max(0, rate)} }

// wait returns when n bytes may be sent.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t.rate == 0 || n == 0 {
		return ctx.Err()
	}
	t.mu.Lock()
	now := time.Now()
	if t.free.Before(now) {
		t.free = now
	}
	until := t.free.Sub(now)
	t.free = t.free.Add(time.Duration(float64(n) / float64(t.rate) * float64(time.Second)))
	t.mu.Unlock()
	if until <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(until)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
