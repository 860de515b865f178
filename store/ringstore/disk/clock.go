package disk

import (
	"sync"
	"time"
)

// maxDrift is how far a reading may be ahead of the wall clock. A clock that is further off is for
// the operator to correct: its records win over ours, but it must not make our clock wrong too. Nor
// may the readings of this machine's own clock, once that is right again.
const maxDrift = 5 * time.Minute

// Clock is a hybrid logical clock: wall microseconds << 12 and a counter. Every message between
// masters carries it. So a write that follows another one, on whichever master, has a later version
// although wall clocks differ. This is certain once a message has gone between the two masters,
// which happens each second; before that it holds as far as their wall clocks agree. If the wall
// clock was far ahead and is set back, readings go back too: a write that follows one with a later
// version finds that version, at this master or another, and is made again with a later one. It is
// safe for concurrent use.
type Clock struct {
	now func() time.Time

	mu     sync.Mutex // guards all below
	last   uint64
	raised uint16 // number of readings that NextAbove raised
	heard  uint64 // the latest reading in a message, however far ahead
}

// NewClock returns a clock that is based on a wall clock.
func NewClock(now func() time.Time) *Clock { return &Clock{now: now} }

// reading is the clock's reading at a wall time if no other clock pulled it ahead.
func reading(t time.Time) uint64 { return uint64(t.UnixMicro()) << 12 }

// Next returns a reading later than all before, except those of a wall clock that was set back by
// more than maxDrift.
func (c *Clock) Next() uint64 {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(now)
	c.last = max(c.last+1, reading(now))
	return c.last
}

// NextAbove is Next, or if that is below floor a reading at most 16 microseconds above floor. The
// clock itself does not follow floor, which may come from a clock that is far ahead. No two of
// 65,536 raised readings in a row are the same: each ends in another number.
func (c *Clock) NextAbove(floor uint64) uint64 {
	next := c.Next()
	if next >= floor {
		return next
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raised++
	return floor + uint64(c.raised-uint16(floor))
}

// follow forgets readings that are too far ahead of the wall clock. The caller holds mu.
func (c *Clock) follow(now time.Time) {
	if c.last > reading(now.Add(maxDrift)) {
		c.last = reading(now)
	}
}

// Read returns the last reading, for messages that write nothing.
func (c *Clock) Read() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Hear is Observe for the reading of another master's clock.
func (c *Clock) Hear(seen uint64) {
	c.mu.Lock()
	c.heard = max(c.heard, seen)
	c.mu.Unlock()
	c.Observe(seen)
}

// Heard returns the time of the latest reading that was heard, however far ahead.
func (c *Clock) Heard() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Version{Clock: c.heard}.Time()
}

// Observe moves the clock up to the reading in a version, unless that is too far ahead.
func (c *Clock) Observe(seen uint64) {
	now := c.now()
	if seen > reading(now.Add(maxDrift)) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(now)
	c.last = max(c.last, seen)
}
