package auth

import "time"

// Failures that a source, or a name, may have.
const (
	failuresAtOnce  = 32
	failuresASecond = 4
)

// allowance counts failures, which the time makes good again. The zero value has none.
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

// spent reports whether no failure is left.
func (a *allowance) spent(now time.Time) bool {
	a.refill(now)
	return a.used >= failuresAtOnce
}

// full reports whether all failures are made good.
func (a *allowance) full(now time.Time) bool {
	a.refill(now)
	return a.used == 0
}

// slowWindow is how long a back end's slow refusal is remembered, at least; twice that at most.
const slowWindow = 5 * time.Minute

// slowest is the longest that a back end took for a refusal lately.
type slowest struct {
	now, before time.Duration
	since       time.Time // of now
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

// answerAfter is when a refusal is told, from when its turn came: after a second, or the seconds
// that the back end took lately for any name, so that its time tells nothing of the name. asked is
// how long the back end took, 0 if that does not count; all is what has passed.
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
