package peer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The times between dials of one client conn.
const (
	firstGap = 100 * time.Millisecond
	longGap  = time.Second
	grpcGap  = 10 * time.Millisecond // gRPC's own back-off, beside ours
)

// backOff spaces out the dials of one client conn, more each time, until the peer has answered and
// reset is called. A successful dial says little: a TLS 1.3 hand-shake ends at this side before the
// peer has checked our key, and a peer that doesn't know us closes the connection then. gRPC's own
// back-off can't be cut short: in 1.85.0 ClientConn.ResetConnectBackoff reads a map that a running
// connect writes to, which ends the process. It is safe for concurrent use.
type backOff struct {
	mu   sync.Mutex // guards all below
	gap  time.Duration
	next time.Time     // no dial before this
	woke chan struct{} // closed and renewed by reset
}

func newBackOff() *backOff { return &backOff{woke: make(chan struct{})} }

// wait returns when the next dial is due, or ctx's error if ctx ends first.
func (b *backOff) wait(ctx context.Context) error {
	b.mu.Lock()
	t := time.NewTimer(time.Until(b.next))
	woke := b.woke
	b.mu.Unlock()
	defer t.Stop()
	select {
	case <-t.C:
	case <-woke:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// note records the end of a dial.
func (b *backOff) note() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gap = min(max(firstGap, b.gap*8/5), longGap)
	b.next = time.Now().Add(b.gap + rand.N(b.gap/5)) // so that masters don't dial in step
}

// reset makes the next dial due at once, including a waiting one.
func (b *backOff) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gap, b.next = 0, time.Time{}
	close(b.woke)
	b.woke = make(chan struct{})
}
