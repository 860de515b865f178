package peer

import (
	"sync"
	"time"
)

// maxSources bounds the memory of limits by source.
const maxSources = 4096

// tryLimit counts unproved join attempts, per source and in all, as token buckets. Proved attempts
// return their token, so a cluster that starts all at once is not slowed. It is safe for concurrent
// use.
type tryLimit struct {
	per, total int
	every      time.Duration

	mu       sync.Mutex
	all      bucket
	bySource map[source]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

// fill adds the accrued tokens: rate per second, at most size.
func (b *bucket) fill(size, rate float64, now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(size, b.tokens+rate*d.Seconds())
		b.at = now
	}
}

func newTryLimit(per, total int, every time.Duration) *tryLimit {
	return &tryLimit{
		per: per, total: total, every: every,
		all:      bucket{tokens: float64(total)},
		bySource: make(map[source]*bucket),
	}
}

// left reports whether take would succeed.
func (t *tryLimit) left(from source, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, b := t.buckets(from, now)
	return all.tokens >= 1 && (b == nil || b.tokens >= 1)
}

// take uses one attempt, or returns false if none is left.
func (t *tryLimit) take(from source, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, b := t.buckets(from, now)
	if b == nil {
		t.makeRoom(now)
		b = &bucket{tokens: float64(t.per), at: now}
		t.bySource[from] = b
	}
	if all.tokens < 1 || b.tokens < 1 {
		return false
	}
	all.tokens--
	b.tokens--
	return true
}

// giveBack undoes a take: the attempt was proved.
func (t *tryLimit) giveBack(from source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.tokens = min(float64(t.total), t.all.tokens+1)
	if b := t.bySource[from]; b != nil {
		b.tokens = min(float64(t.per), b.tokens+1)
	}
}

func (t *tryLimit) rate() float64 { return 1 / t.every.Seconds() }

func (t *tryLimit) buckets(from source, now time.Time) (all, b *bucket) {
	t.all.fill(float64(t.total), 10*t.rate(), now)
	if b = t.bySource[from]; b != nil {
		b.fill(float64(t.per), t.rate(), now)
	}
	return &t.all, b
}

// makeRoom removes the sources whose bucket is full again, or else any one: the total still limits
// an attacker with that many addresses.
func (t *tryLimit) makeRoom(now time.Time) {
	if len(t.bySource) < maxSources {
		return
	}
	for from, b := range t.bySource {
		b.fill(float64(t.per), t.rate(), now)
		if b.tokens >= float64(t.per) {
			delete(t.bySource, from)
		}
	}
	for from := range t.bySource {
		if len(t.bySource) < maxSources {
			return
		}
		delete(t.bySource, from)
	}
}

// logKind is what has log lines of its own.
type logKind struct {
	from   source
	reason string
}
