package schedule

import (
	"errors"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/value/dateutil"
)

// Clock holds the inputs of a step.
type Clock struct {
	Now time.Time // in the master's time zone
	// Window is how long after its time a run of cron, when and once may still begin:
	// loop_interval, because leaders change. A run of an interval may begin however late.
	Window time.Duration
	// Apart is the most by which the clocks of two leaders differ. A run that is recorded as later
	// than that from now was recorded by a wrong clock.
	Apart time.Duration
	// Random returns a number from 0 on and below n.
	Random func(n int64) int64
	// Running is the number of running runs of the entry.
	Running int
}

// Decision is the result of a step.
type Decision struct {
	Run      bool
	Function string // to run: the entry's, or skip_function
	// why a due run is skipped: Salt's _skip_reason; "" if it runs, or none is due
	Skipped string
	Waits   bool // an interval's run that was skipped stays due
}

// errSpan is the error of a range that is invalid on this day.
var errSpan = errors.New("its end must be larger than its start; a range over midnight is two, or has invert")

// Step decides from an entry's state whether it runs now. It depends only on its arguments. The
// returned state differs from s if something must be stored; the caller stores it before the run
// begins.
func (e *Entry) Step(s fsm.Scheduled, c Clock) (fsm.Scheduled, Decision, error) {
	if s.Entry != e.hash { // new, or edited
		s = fsm.Scheduled{Name: e.Name, Turn: s.Turn, Runs: s.Runs}
		s.Entry = e.hash
	}
	s.Name = e.Name
	if e.once.IsZero() && s.Last.After(c.Now.Add(c.Apart)) {
		s.Last = time.Time{} // by a clock that was ahead
	}
	if e.parked(s, c) {
		s.Next, s.Splay = time.Time{}, time.Time{}
	}
	if s.Next.IsZero() {
		s.Next = e.next(s, c)
	}
	due := e.due(&s, c)
	d := Decision{Run: due, Function: e.Function}
	var err error
	if e.RunOnStart && !s.Started {
		d.Run = true
	} else if due {
		d, err = e.held(&s, c)
	}
	s.Started = true
	if err != nil {
		return s, Decision{}, err
	}
	if (due || d.Run) && !e.Enabled {
		d = Decision{Skipped: "disabled"}
	}
	if d.Run && e.JIDInclude && c.Running >= e.MaxRunning {
		d = Decision{Skipped: "maxrunning"}
	}
	e.turn(&s, c, due, d)
	return s, d, nil
}

// parked reports whether an entry is due later than one interval from now, or than its next time
// after the last run, because the clock that set its time was ahead.
func (e *Entry) parked(s fsm.Scheduled, c Clock) bool {
	switch {
	case e.interval > 0:
		return s.Next.Sub(c.Now) > e.interval+c.Apart
	case !e.once.IsZero():
		return false
	}
	n := e.next(s, c)
	return !n.IsZero() && n.Before(s.Next) && n.After(s.Last)
}

// next returns when an entry is due next, from its state; zero if unknown.
func (e *Entry) next(s fsm.Scheduled, c Clock) time.Time {
	switch {
	case e.interval > 0:
		return c.Now.Add(e.interval)
	case e.cron != nil:
		return e.cron.next(c.Now)
	case !e.once.IsZero():
		return dateutil.OnClock(e.once, c.Now.Location())
	}
	var first time.Time
	for _, w := range e.whens {
		t, err := w.On(c.Now)
		if err == nil && !t.Before(c.Now.Add(-c.Window)) && t.After(s.Last) &&
			(first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// due reports whether a run is due, including its splay.
func (e *Entry) due(s *fsm.Scheduled, c Clock) bool {
	if !s.After.IsZero() && !c.Now.Before(s.After) {
		return true
	}
	if s.Next.IsZero() {
		return false
	}
	at := s.Next
	if e.splay != nil {
		if s.Splay.IsZero() {
			s.Splay = s.Next.Add(time.Duration(e.splay.from+
				c.Random(e.splay.to-e.splay.from+1)) * time.Second)
		}
		at = s.Splay
	}
	if whole(at).After(whole(c.Now)) {
		return false
	}
	if e.interval > 0 {
		return true
	}
	return !c.Now.After(at.Add(c.Window)) && s.Last.Before(s.Next)
}

// whole truncates a time to its second, which is what Salt compares.
func whole(t time.Time) time.Time { return t.Truncate(time.Second) }

// held applies the ranges that may prevent a due run.
func (e *Entry) held(s *fsm.Scheduled, c Clock) (Decision, error) {
	now := c.Now
	d := Decision{Run: true, Function: e.Function}
	instead := func(reason string) Decision {
		if e.instead != "" {
			return Decision{Run: true, Function: e.instead}
		}
		return Decision{Skipped: reason}
	}
	if e.within != nil {
		in, edge, _, err := e.within.holds(now)
		if err != nil {
			return Decision{}, err
		}
		switch {
		case e.invert && in && !edge:
			return Decision{Skipped: "in_skip_range", Waits: true}, nil
		case !e.invert && !in:
			d = instead("not_in_range")
			d.Waits = !d.Run
		}
	}
	if e.skip != nil && d.Skipped == "" {
		in, _, end, err := e.skip.holds(now)
		if err != nil {
			return Decision{}, err
		}
		if in {
			if d = instead("in_skip_range"); e.RunAfter && !d.Run {
				s.After = end.Add(c.Window)
			}
		}
	}
	for _, limit := range []struct {
		at     *dateutil.When
		past   bool
		reason string
	}{{e.until, true, "until_passed"}, {e.after, false, "after_not_passed"}} {
		if limit.at == nil || d.Skipped != "" {
			continue
		}
		t, err := limit.at.On(now)
		if err != nil {
			return Decision{}, err
		}
		if limit.past != t.After(now) {
			d = Decision{Skipped: limit.reason}
		}
	}
	return d, nil
}

// holds reports whether now is in today's span, whether at its edge, and when the span ends.
func (s span) holds(now time.Time) (in, edge bool, end time.Time, err error) {
	start, err := s.start.On(now)
	if err == nil {
		end, err = s.end.On(now)
	}
	if err == nil && !end.After(start) {
		err = errSpan
	}
	return !now.Before(start) && !now.After(end), now.Equal(start) || now.Equal(end), end, err
}

// turn updates the state after a decision.
func (e *Entry) turn(s *fsm.Scheduled, c Clock, due bool, d Decision) {
	if d.Run {
		s.Last, s.Splay = c.Now, time.Time{}
	}
	if due && !c.Now.Before(s.After) {
		s.After = time.Time{}
	}
	switch {
	case e.interval > 0:
		if d.Run || due && !d.Waits {
			s.Next, s.Splay = c.Now.Add(e.interval), time.Time{}
		}
	case due:
		s.Last, s.Splay = c.Now, time.Time{}
		if e.once.IsZero() {
			s.Next = e.next(*s, c)
		}
	case e.once.IsZero() && !s.Next.IsZero() && e.missed(*s, c):
		s.Splay = time.Time{}
		s.Next = e.next(*s, c)
	}
}

// missed reports whether the window of the next run has passed.
func (e *Entry) missed(s fsm.Scheduled, c Clock) bool {
	at := s.Next
	if e.splay != nil {
		at = s.Splay
	}
	return at.Before(c.Now.Add(-c.Window))
}
