package minion

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// errEjected: the connection was closed so that others get its memory.
var errEjected = fmt.Errorf("of one that waited for its peer: %w", ErrMemory)

// memory counts the bytes of requests and replies larger than firstBody, with their decoded form.
type memory struct {
	lim *Limits

	// written under mu
	inFlight  atomic.Int64 // bytes of all
	strangers atomic.Int64 // the part of inFlight from connections of strangers

	mu sync.Mutex // guards the rest, and every holding
	// the part of strangers in requests of at most longBody
	short int64
	// connections that hold memory and wait for their peer to send or to read; the longest first
	waiting list.List
	// those of waiting that strangers send and that hold at most longBody
	shorts list.List
}

// holding is what the present request of a connection holds of memory.
type holding struct {
	// the connection's own, not guarded
	counted bool  // some memory has been since the request began
	small   int64 // what Hold has not counted yet
	waits   bool  // for the peer
	claims  int64 // length of the request

	held    int64         // bytes in memory.inFlight
	strange int64         // bytes in memory.strangers
	began   time.Time     // when place was made
	place   *list.Element // in memory.waiting; nil if it is not there
	short   *list.Element // in memory.shorts
	gone    bool          // ejected, which is closed then; made with place
	ejected chan struct{}
}

// Hold is hold for the decoded form, and for what an answer is made of. Small amounts are counted
// together, once they exceed firstBody.
func (r *requester) Hold(n int64) bool {
	if r.small += n; r.small <= firstBody {
		return true
	}
	n, r.small = r.small, 0
	return r.hold(n) == nil
}

// Vouch ends the connection's being a stranger's, and that of others from its address.
func (r *requester) Vouch() {
	if r.proved {
		return
	}
	r.proved = true
	r.s.proved.add(r.l.peer.Addr())
	if r.counted {
		m := &r.s.memory
		m.mu.Lock()
		defer m.mu.Unlock()
		m.known(r)
	}
}

// stranger reports whether no accepted minion is known at the connection's address.
func (r *requester) stranger() bool { return !r.proved && !r.s.proved.has(r.l.peer.Addr()) }

// hold counts n more bytes for the present request. Strangers share a small part of all memory and
// are slowed down, so that they leave memory and processors for minions. A single long request of
// one is allowed: it may be a minion's first request.
func (r *requester) hold(n int64) error {
	if err := r.count(n, false); err != nil || !r.stranger() {
		return err
	}
	return r.slowDown(n)
}

// count counts n more bytes, and ejects other connections where they would be too many, see Limits.
func (r *requester) count(n int64, reply bool) error {
	stranger := r.stranger()
	m, now := &r.s.memory, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.gone {
		return errEjected
	}
	r.counted = true
	r.held += n
	m.inFlight.Add(n)
	if r.waits && r.place == nil {
		r.began, r.place = now, m.waiting.PushBack(r)
		r.ejected = make(chan struct{})
	}
	since := now.Add(-m.lim.PingTimeout)
	if reply || max(r.held, r.claims) <= modest {
		since = now
	}
	for m.inFlight.Load() > m.lim.MaxInFlight {
		if !m.eject(&m.waiting, r, since) {
			return ErrMemory
		}
	}
	if !stranger {
		return nil
	}
	if r.strange += n; r.strange > longBody {
		return m.long(r, n)
	}
	m.strangers.Add(n)
	m.short += n
	if r.waits && r.short == nil {
		r.short = m.shorts.PushBack(r)
	}
	for m.short > m.lim.MaxStrangers {
		if !m.eject(&m.shorts, r, now) {
			return fmt.Errorf("of strangers: %w", ErrMemory)
		}
	}
	return nil
}

// long counts n more bytes of a stranger's request that has become too long for the short ones. The
// caller holds mu.
func (m *memory) long(r *requester, n int64) error {
	if before := r.strange - n; before <= longBody {
		m.short -= before
		m.leave(&m.shorts, &r.short)
	}
	if all := m.strangers.Add(n) - m.short; all > m.lim.MaxStrangers && all > r.strange {
		return fmt.Errorf("of strangers: %w", ErrMemory)
	}
	return nil
}

// eject closes the first connection of a list other than r, if it has waited since then, and takes
// its memory. It reports whether there was one. The caller holds mu.
func (m *memory) eject(from *list.List, r *requester, since time.Time) bool {
	e := from.Front()
	if e != nil && e.Value == r {
		e = e.Next()
	}
	if e == nil {
		return false
	}
	other := e.Value.(*requester)
	if other.began.After(since) {
		return false
	}
	other.gone = true
	close(other.ejected)
	other.l.conn.Close()
	m.forget(other)
	return true
}

// known counts a connection's request as a minion's. The caller holds mu.
func (m *memory) known(r *requester) {
	m.strangers.Add(-r.strange)
	if r.strange <= longBody {
		m.short -= r.strange
	}
	r.strange = 0
	m.leave(&m.shorts, &r.short)
}

// forget counts a connection's request no more. The caller holds mu.
func (m *memory) forget(r *requester) {
	m.known(r)
	m.inFlight.Add(-r.held)
	r.held = 0
	m.leave(&m.waiting, &r.place)
}

// leave takes a connection out of a list if it is there. The caller holds mu.
func (m *memory) leave(from *list.List, place **list.Element) {
	if *place != nil {
		from.Remove(*place)
		*place = nil
	}
}

// arrived notes that the present message is complete, or has failed: the connection is not ejected
// from now on. It reports whether it was.
func (r *requester) arrived() (ejected bool) {
	r.waits = false
	if !r.counted {
		return false
	}
	m := &r.s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leave(&m.waiting, &r.place)
	m.leave(&m.shorts, &r.short)
	return r.gone
}

// wasEjected reports whether the connection has been closed for others.
func (r *requester) wasEjected() bool {
	if !r.counted {
		return false
	}
	r.s.memory.mu.Lock()
	defer r.s.memory.mu.Unlock()
	return r.gone
}

// release ends the present request.
func (r *requester) release() {
	if !r.counted {
		return
	}
	r.counted = false
	m := &r.s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(r)
}
