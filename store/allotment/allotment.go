// Package allotment bounds what is stored of each minion, and of all of them.
//
// Lives here: two limits, and an account of what is stored that is rarely counted anew.
//
// Does not: know what is stored, or count it (packages jobcache and uploads do, where records lie).
//
// Guarantee: each master counts again before it has let a sixteenth of a limit pass, and before it
// refuses. So what is stored exceeds a limit by a sixteenth for each other master at most.
package allotment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Limits are bytes; 0 is no limit.
type Limits struct {
	One int64 // of one minion
	All int64 // of all together
}

// ErrQuota refuses what is beyond the quota of one minion: of mine values and pillars, which are
// counted where they are kept.
var ErrQuota = errors.New("beyond what is kept of one minion")

// Refusals by a Meter. Both match ErrSpent.
var (
	ErrSpent = errors.New("no more is stored")
	ErrOne   = fmt.Errorf("all that one minion may have stored is used up: %w", ErrSpent)
	ErrAll   = fmt.Errorf("all that minions may have stored together is used up: %w", ErrSpent)
)

const (
	// share of a limit is what may come in before it is counted again.
	share = 16
	// between is the time between two countings that refusals cause.
	between = 5 * time.Second
)

// Count calls add with what is stored of a minion, in bytes, any number of times. "" is nobody's:
// it counts in All alone.
type Count func(ctx context.Context, add func(id string, bytes int64)) error

// Meter accounts for what is stored. It is safe for concurrent use. A nil Meter limits nothing.
type Meter struct {
	limits Limits
	count  Count
	now    func() time.Time

	counting sync.Mutex // held while it is counted; taken before mu

	mu      sync.Mutex // guards the rest
	counted time.Time  // when the last count began; zero: never
	all     account
	of      map[string]account
	writing map[string]int64 // taken, and not stored yet: a count may miss it
	during  map[string]int64 // what a count that goes on may have missed; nil: none does
}

// account is what was counted, and what came since.
type account struct{ stored, since int64 }

// New makes a meter; without limits it is nil.
func New(l Limits, count Count, now func() time.Time) *Meter {
	if l.One <= 0 && l.All <= 0 {
		return nil
	}
	return &Meter{limits: l, count: count, now: now, of: make(map[string]account),
		writing: make(map[string]int64)}
}

// Take accounts for bytes that are about to be stored of a minion; call done with whether they
// were. It refuses with ErrOne or ErrAll, and then nothing is accounted for. Other errors are those
// of the count.
func (m *Meter) Take(ctx context.Context, id string, bytes int64) (done func(stored bool),
	err error) {
	if m == nil {
		return func(bool) {}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen := m.counted; seen.IsZero() || !m.fresh(id, bytes) || m.refusal(id, bytes) != nil {
		m.mu.Unlock()
		err := m.countAgain(ctx, seen, id, bytes)
		m.mu.Lock()
		if err == nil {
			err = m.refusal(id, bytes)
		}
		if err != nil {
			return nil, err
		}
	}
	m.add(id, bytes)
	m.writing[id] += bytes
	return func(stored bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.writing[id] -= bytes; m.writing[id] == 0 {
			delete(m.writing, id)
		}
		if !stored {
			m.add(id, -bytes)
		}
	}, nil
}

// Give accounts for what is no longer stored.
func (m *Meter) Give(id string, bytes int64) {
	if m == nil || bytes == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(id, -bytes)
}

// fresh reports whether the last count is good enough to let bytes pass. The caller holds mu.
func (m *Meter) fresh(id string, bytes int64) bool {
	one, all := m.of[id].since+bytes, m.all.since+bytes
	return (m.limits.One <= 0 || id == "" || one <= m.limits.One/share) &&
		(m.limits.All <= 0 || all <= m.limits.All/share)
}

// refusal is nil if bytes fit. The caller holds mu.
func (m *Meter) refusal(id string, bytes int64) error {
	if a := m.of[id]; m.limits.One > 0 && id != "" && a.stored+a.since+bytes > m.limits.One {
		return ErrOne
	}
	if m.limits.All > 0 && m.all.stored+m.all.since+bytes > m.limits.All {
		return ErrAll
	}
	return nil
}

// add accounts for bytes. The caller holds mu.
func (m *Meter) add(id string, bytes int64) {
	a := m.of[id]
	a.since += bytes
	m.of[id] = a
	m.all.since += bytes
	if m.during != nil {
		m.during[id] += bytes
	}
}

// countAgain counts what is stored, unless somebody has since seen, or a refusal follows from a
// count of just now.
func (m *Meter) countAgain(ctx context.Context, seen time.Time, id string, bytes int64) error {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.mu.Lock()
	began := m.now()
	if !m.counted.Equal(seen) || !seen.IsZero() && began.Sub(seen) < between &&
		m.refusal(id, bytes) != nil {
		m.mu.Unlock()
		return nil
	}
	m.during = maps.Clone(m.writing)
	m.mu.Unlock()

	stored := make(map[string]int64)
	err := m.count(ctx, func(id string, n int64) { stored[id] += n })

	m.mu.Lock()
	defer m.mu.Unlock()
	during := m.during
	m.during = nil
	if err != nil {
		return fmt.Errorf("count what is stored of minions: %w", err)
	}
	m.counted, m.all = began, account{}
	m.of = make(map[string]account, len(stored))
	for id, n := range stored {
		m.of[id] = account{stored: n}
		m.all.stored += n
	}
	for id, n := range during {
		m.add(id, n)
	}
	return nil
}
