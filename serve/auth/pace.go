package auth

import "time"

// Failures that a source or a name may have.
const (
	failuresAtOnce  = 32
	failuresASecond = 4
)

// allowance counts failures, which expire with time. The zero value has none.
type allowance struct {
	used float64
	at   time.Time
}

func (a *allowance) refill(now time.Time) {
	a.used = max(0, a.used-failuresASecond*now.Sub(a.at).Seconds())
	a.at = now
}

// take notes a failure.
func (a *allowance) take(now time.Time) {
	a.refill(now)
	a.used++
}

// spent reports whether no more failures are allowed.
func (a *allowance) spent(now time.Time) bool {
	a.refill(now)
	return a.used >= failuresAtOnce
}

// full reports whether all failures have expired.
func (a *allowance) full(now time.Time) bool {
	a.refill(now)
	return a.used == 0
}

// slowWindow is the minimum time for which a back end's slow refusal is remembered; the maximum is
// twice that.
const slowWindow = 5 * time.Minute

// slowest is the longest time that a back end recently took for a refusal.
type slowest struct {
	now, before time.Duration
	since       time.Time // start of now
}

func (s *slowest) note(took time.Duration, at time.Time) time.Duration {
	if age := at.Sub(s.since); age > 2*slowWindow {
		s.now, s.before, s.since = 0, 0, at
	} else if age > slowWindow {
		s.now, s.before, s.since = 0, s.now, at
	}
	s.now = max(s.now, took)
	return max(s.now, s.before)
}

// answerAfter returns when to send a refusal, counted from the start of its turn: after a second,
// or after the seconds that the back end recently took for any name, so that the time reveals
// nothing about the name. Asked is how long the back end took, 0 if that does not count; all is the
// time passed so far.
func (g *guard) answerAfter(eauth string, asked, all time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.slow[eauth]
	if s == nil {
		s = new(slowest)
		g.slow[eauth] = s
	}
	longest := max(s.note(min(asked, backEndTime), time.Now()), all)
	return max(longest+refusalTime-1, refusalTime).Truncate(refusalTime)
}
