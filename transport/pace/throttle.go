package pace

import (
	"context"
	"sync"
	"time"
)

// Throttle limits the bytes per second of all senders together. It is safe for concurrent use.
type Throttle struct {
	rate int64 // bytes per second; 0: no limit

	mu   sync.Mutex // guards free
	free time.Time  // when the next byte may go
}

// NewThrottle makes a throttle of rate bytes per second; 0 or less means no limit.
func NewThrottle(rate int64) *Throttle { return &Throttle{rate: max(0, rate)} }

// Wait returns when n bytes may be sent, or with the cause of ctx's end.
func (t *Throttle) Wait(ctx context.Context, n int) error {
	if t.rate == 0 || n == 0 {
		return context.Cause(ctx)
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
		return context.Cause(ctx)
	}
	timer := time.NewTimer(until)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
