package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the test

	"clustermaster/cluster/fsm"
	"clustermaster/value/dateutil"
)

// A job of the night runs once in each night, also in those in which the clock is put forward or
// back.
func TestSummerTime(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"30 2 * * *", "30 3 * * *", "0 0 * * *"} {
		c, err := parseCron(text)
		if err != nil {
			t.Fatal(err)
		}
		e := &Entry{Name: "j", Function: "f", Enabled: true, JIDInclude: true, MaxRunning: 1,
			cron: &c}
		for _, night := range []time.Time{time.Date(2026, 3, 28, 12, 0, 0, 0, zone),
			time.Date(2026, 10, 24, 12, 0, 0, 0, zone)} {
			var state fsm.Scheduled
			var days []int
			for now := night; now.Before(night.AddDate(0, 0, 3)); now = now.Add(10 * time.Second) {
				next, d, err := e.Step(state,
					Clock{Now: now, Window: time.Minute, Random: func(int64) int64 { return 0 }})
				if err != nil {
					t.Fatal(err)
				}
				if state = next; d.Run {
					days = append(days, now.Day())
				}
			}
			first := night.Day() + 1
			if want := []int{first, first + 1, first + 2}; !slices.Equal(days, want) {
				t.Errorf("%s from %s: runs on %v, want %v", text, night.Format(time.DateOnly),
					days, want)
			}
		}
	}
}

// TestHoursOfSummerTime: what would run in the hour that summer time skips runs at its end, also
// west of Greenwich.
func TestHoursOfSummerTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		zone, day, text string
		want            []string
	}{
		{"America/New_York", "2026-03-08", "0 * * * *", []string{"00:00", "01:00", "03:00", "04:00"}},
		{"America/New_York", "2026-03-08", "30 2 * * *", []string{"03:00"}},
		{"America/New_York", "2026-03-08", "0 1,2 * * *", []string{"01:00", "03:00"}},
		{"America/New_York", "2026-03-08", "30 2,3 * * *", []string{"03:00", "03:30"}},
		{"America/New_York", "2026-11-01", "0 * * * *",
			[]string{"00:00", "01:00", "02:00", "03:00", "04:00"}},
		{"America/New_York", "2026-11-01", "30 1 * * *", []string{"01:30"}},
		{"Europe/Berlin", "2026-03-29", "0 * * * *", []string{"00:00", "01:00", "03:00", "04:00"}},
		{"Europe/Berlin", "2026-03-29", "30 2 * * *", []string{"03:00"}},
		{"America/Santiago", "2026-09-06", "0 0 * * *", []string{"01:00"}},
		{"America/New_York", "2026-03-08", "when 2:30am", []string{"03:00"}},
		{"America/New_York", "2026-03-08", "once 2026-03-08T02:30:00", []string{"03:00"}},
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.Parse(time.DateOnly, tt.day)
		if err != nil {
			t.Fatal(err)
		}
		e := entryOf(t, tt.text)
		var hours []string
		evening := dateutil.OnClock(day, zone).Add(-10 * time.Minute)
		runsOf(t, e, fsm.Scheduled{}, Clock{Now: evening, Window: time.Minute},
			time.Date(day.Year(), day.Month(), day.Day(), 4, 1, 0, 0, zone), func(at time.Time) {
				hours = append(hours, at.Format("15:04"))
			})
		if !slices.Equal(hours, tt.want) {
			t.Errorf("%s in %s, %s: runs at %v, want %v", tt.text, tt.zone, tt.day, hours, tt.want)
		}
	}
}

// entryOf makes an entry of a line of cron, or a time after the word when or once.
func entryOf(t *testing.T, text string) *Entry {
	t.Helper()
	e := &Entry{Name: "j", Function: "f", Enabled: true, JIDInclude: true, MaxRunning: 1}
	kind, at, _ := strings.Cut(text, " ")
	var err error
	switch kind {
	case "when":
		var w dateutil.When
		w, err = dateutil.Parse(at)
		e.whens = append(e.whens, w)
	case "once":
		e.once, err = strptime(at, "%Y-%m-%dT%H:%M:%S")
	default:
		var c cron
		c, err = parseCron(text)
		e.cron = &c
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// runsOf steps an entry each second from c.Now to end, calls ran for each run, and returns its
// state.
func runsOf(t *testing.T, e *Entry, state fsm.Scheduled, c Clock, end time.Time,
	ran func(at time.Time)) fsm.Scheduled {
	t.Helper()
	c.Random = func(int64) int64 { return 0 }
	for ; c.Now.Before(end); c.Now = c.Now.Add(time.Second) {
		next, d, err := e.Step(state, c)
		if err != nil {
			t.Fatal(err)
		}
		if state = next; d.Run {
			ran(c.Now)
		}
	}
	return state
}

// A step depends on its arguments only, and one at which nothing is due changes nothing.
func TestStepIsPure(t *testing.T) {
	t.Parallel()
	for _, tt := range []*Entry{
		{interval: time.Minute, RunOnStart: true},
		{once: time.Date(2026, 11, 21, 10, 0, 30, 0, time.UTC)},
		{interval: time.Minute, splay: &splay{1, 30}},
	} {
		e := *tt
		e.Name, e.Function, e.Enabled, e.JIDInclude, e.MaxRunning = "j", "f", true, true, 1
		now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		c := Clock{Now: now, Window: time.Minute, Random: func(n int64) int64 { return n / 2 }}
		first, d, err := e.Step(fsm.Scheduled{Turn: 7}, c)
		again, d2, err2 := e.Step(fsm.Scheduled{Turn: 7}, c)
		if err != nil || err2 != nil || d != d2 || !same(first, again) || first.Turn != 7 {
			t.Errorf("%+v and %+v, %+v and %+v", first, again, d, d2)
		}
		c.Now = now.Add(time.Second)
		if later, d, err := e.Step(first, c); err != nil || d.Run || !same(first, later) {
			t.Errorf("a second later: %+v became %+v, %+v, %v", first, later, d, err)
		}
	}
}

// A leader whose clock was a day ahead said when a run is due next; the right clock takes it back.
// A clock that goes back by no more than the clocks of leaders differ causes no second run.
func TestAFastClockDoesNotPark(t *testing.T) {
	t.Parallel()
	minutely := func(s *splay) *Entry {
		return &Entry{Name: "j", Function: "f", Enabled: true, JIDInclude: true, MaxRunning: 1,
			interval: time.Minute, splay: s}
	}
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		e    *Entry
		runs int // in 5 minutes
	}{
		"interval":            {minutely(nil), 4},
		"interval with splay": {minutely(&splay{1, 30}), 4},
		"cron":                {entryOf(t, "* * * * *"), 4},
		"hour of cron":        {entryOf(t, "3 10 * * *"), 1},
		"when":                {entryOf(t, "when 10:03am"), 1},
		"once":                {entryOf(t, "once 2026-11-21T10:03:00"), 1},
	} {
		clock := func(at time.Time) Clock {
			return Clock{Now: at, Window: time.Second, Apart: 5 * time.Second}
		}
		for _, began := range []time.Time{now, now.Add(3 * time.Minute)} { // at rest, or just ran
			fast := began.AddDate(0, 0, 1)
			ahead := runsOf(t, tt.e, fsm.Scheduled{}, clock(fast), fast.Add(time.Second),
				func(time.Time) {})
			runs := 0
			runsOf(t, tt.e, ahead, clock(now), now.Add(5*time.Minute), func(time.Time) { runs++ })
			if runs < tt.runs {
				t.Errorf("%s, after a clock at %v: %d runs in 5 minutes, want %d", name, fast, runs,
					tt.runs)
			}
		}
		var state fsm.Scheduled
		runs, right := 0, 0
		count := func(time.Time) { runs++ }
		for at := now.Add(-time.Second); at.Before(now.Add(5*time.Minute - 5*time.Second)); {
			// six seconds forward, five back
			state = runsOf(t, tt.e, state, clock(at), at.Add(6*time.Second), count)
			at = at.Add(time.Second)
		}
		runsOf(t, tt.e, fsm.Scheduled{}, clock(now.Add(-time.Second)), now.Add(5*time.Minute),
			func(time.Time) { right++ })
		if runs != right {
			t.Errorf("%s: %d runs with a clock that steps back, %d without", name, runs, right)
		}
	}
}
