// Package allotment limits what is stored for each minion and for all minions together.
//
// Lives here: the two limits, and an account of what is stored, so that counting is rare.
//
// Does not: know what is stored, or count it (packages jobcache and uploads do, where records lie).
//
// Guarantee: a master counts again before it refuses, and before it has let a sixteenth of a limit
// pass. So every other master can exceed a limit by a sixteenth at most.
package allotment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Limits are in bytes; 0 means no limit.
type Limits struct {
	One int64 // for one minion
	All int64 // for all together
}

// ErrQuota refuses mine values and pillars beyond a minion's quota. Those are counted where they
// are stored.
var ErrQuota = errors.New("beyond the quota of one minion")

// Refusals by a Meter. Both match ErrSpent.
var (
	ErrSpent = errors.New("nothing more is stored")
	ErrOne   = fmt.Errorf("the storage of one minion is used up: %w", ErrSpent)
	ErrAll   = fmt.Errorf("the storage of all minions together is used up: %w", ErrSpent)
)

const (
	// share: a sixteenth of a limit may come in before the next count.
	share = 16
	// between is the least time between two counts that refusals cause.
	between = 5 * time.Second
)

// Count calls add with the bytes stored for a minion, any number of times. The id "" is no minion:
// its bytes count in All only.
type Count func(ctx context.Context, add func(id string, bytes int64)) error

// Meter keeps account of what is stored. It is safe for concurrent use. A nil Meter limits nothing.
type Meter struct {
	limits Limits
	count  Count
	now    func() time.Time

	counting sync.Mutex // held during a count; taken before mu

	mu      sync.Mutex // guards the rest
	counted time.Time  // start of the last count; zero: none yet
	all     account
	of      map[string]account
	writing map[string]int64 // taken but not stored yet: a count may miss it
	during  map[string]int64 // what the running count may have missed; nil: none runs
}

// account is what was counted, and what has come since.
type account struct{ stored, since int64 }

// New returns a Meter, or nil if there are no limits.
func New(l Limits, count Count, now func() time.Time) *Meter {
	if l.One <= 0 && l.All <= 0 {
		return nil
	}
	return &Meter{limits: l, count: count, now: now, of: make(map[string]account),
		writing: make(map[string]int64)}
}

// Take accounts for bytes about to be stored for a minion. Call done afterwards with whether they
// were stored. Take refuses with ErrOne or ErrAll and then accounts for nothing. Other errors come
// from the count.
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

// fresh reports whether the last count is recent enough to let bytes pass. The caller holds mu.
func (m *Meter) fresh(id string, bytes int64) bool {
	one, all := m.of[id].since+bytes, m.all.since+bytes
	return (m.limits.One <= 0 || id == "" || one <= m.limits.One/share) &&
		(m.limits.All <= 0 || all <= m.limits.All/share)
}

// refusal returns nil if bytes fit. The caller holds mu.
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

// countAgain counts what is stored. It does nothing if another count has replaced the one seen, or
// if the last count is recent and refuses the bytes.
func (m *Meter) countAgain(ctx context.Context, seen time.Time, id string, bytes int64) error {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.mu.Lock()
	began := m.now()
	age := began.Sub(seen) // below zero if the clock was corrected since
	if !m.counted.Equal(seen) || !seen.IsZero() && age >= 0 && age < between &&
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
