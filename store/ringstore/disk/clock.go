package disk

import (
	"sync"
	"time"
)

// maxDrift is how far another master's clock may pull ours ahead. A clock further off than that is
// an operator's problem: its records win over ours, but it must not make ours wrong as well.
const maxDrift = 5 * time.Minute

// Clock is a hybrid logical clock: wall microseconds << 12 and a counter. Every message between
// masters carries it, so a write that follows another one, on whichever master, has a later version
// although wall clocks differ: surely once a message went between the two, which happens each
// second, and before that as far as their wall clocks agree. It is safe for concurrent use.
type Clock struct {
	now func() time.Time

	mu   sync.Mutex // guards last
	last uint64
}

// NewClock returns a clock that follows a wall clock.
func NewClock(now func() time.Time) *Clock { return &Clock{now: now} }

// reading is what the clock shows at a wall time when nothing pulled it ahead.
func reading(t time.Time) uint64 { return uint64(t.UnixMicro()) << 12 }

// Next returns a reading later than all before.
func (c *Clock) Next() uint64 {
	wall := reading(c.now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, wall)
	return c.last
}

// Read returns the last reading, for messages that are no write.
func (c *Clock) Read() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Observe moves the clock up to a reading seen in a message, unless that is too far ahead.
func (c *Clock) Observe(seen uint64) {
	limit := reading(c.now().Add(maxDrift))
	if seen > limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, seen)
}
