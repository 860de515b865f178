package master

import (
	"sync"
	"time"
)

// quota bounds what each minion may send to this master in a period. What was used returns evenly
// over time. Nil bounds nothing.
type quota struct {
	most float64
	per  time.Duration

	mu   sync.Mutex // guards used
	used map[string]usage
}

type usage struct {
	n  float64
	at time.Time
}

// maxQuotas bounds the minions that are remembered. Those with their full quota are forgotten
// first.
const maxQuotas = 1 << 17

// newQuota makes a quota; most 0 means no bound.
func newQuota(most int64, per time.Duration) *quota {
	if most <= 0 {
		return nil
	}
	return &quota{most: float64(most), per: per, used: make(map[string]usage)}
}

// take uses n of a minion's quota. It returns false if less is left.
func (q *quota) take(id string, n int64, now time.Time) bool {
	if q == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u, known := q.used[id]
	if !known && len(q.used) >= maxQuotas {
		q.forget(now)
	}
	u = usage{n: q.left(u, now), at: now}
	if u.n+float64(n) > q.most {
		q.used[id] = u
		return false
	}
	u.n += float64(n)
	q.used[id] = u
	return true
}

// left returns how much of a usage still counts.
func (q *quota) left(u usage, now time.Time) float64 {
	return max(0, u.n-q.most*float64(now.Sub(u.at))/float64(q.per))
}

func (q *quota) forget(now time.Time) {
	for id, u := range q.used {
		if q.left(u, now) == 0 {
			delete(q.used, id)
		}
	}
	if len(q.used) >= maxQuotas {
		clear(q.used)
	}
}
