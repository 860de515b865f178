package cluster

import (
	"slices"
	"time"
)

// clockFresh is the greatest age of a clock reading that is still used.
const clockFresh = 5 * time.Second

// reading is what a member's clock showed: how far it is ahead of this master's.
type reading struct {
	at    time.Time // by this master's monotonic clock
	ahead time.Duration
	gain  time.Duration // Node.clockGain at the question
	told  bool          // false: release 0.1.0 reports no clock
}

// maxStep is how much this machine's clock may be set since a reading: after more, the reading says
// nothing about the two clocks.
const maxStep = time.Second

// readClock assumes that the answer's time was read halfway between question and answer. gain is
// Node.clockGain at the question.
func readClock(micros int64, asked, answered time.Time, gain time.Duration) reading {
	if micros == 0 {
		return reading{at: time.Now()}
	}
	middle := asked.Add(answered.Sub(asked) / 2)
	return reading{at: time.Now(), ahead: time.UnixMicro(micros).Sub(middle.Round(0)), gain: gain,
		told: true}
}

// clockGain is by how much this machine's clock, which shows now, has gained on the monotonic clock
// since the start. It changes when the clock is set.
func (n *Node) clockGain(now time.Time) time.Duration {
	return now.Round(0).Sub(n.started.Round(0).Add(time.Since(n.started)))
}

// anchor is a time found right at one moment. The monotonic clock counts on from there, so that a
// step of this machine's clock does no harm before it is noticed.
type anchor struct {
	at  time.Time // when, by the monotonic clock
	now time.Time // wall clock
}

// Now returns the time by the clocks of most members: this master's own time, unless that is off by
// more than Config.ClockLimit. Every time that goes into the replicated state, or is compared with
// one there, comes from Now.
func (n *Node) Now() time.Time {
	if a := n.anchored.Load(); a != nil {
		return a.now.Add(time.Since(a.at))
	}
	return n.cfg.Now()
}

func (n *Node) utc() time.Time { return n.Now().UTC() }

// judgement is the result of comparing the clocks of the members in contact.
type judgement struct {
	own     anchor                   // this master's clock, uncorrected
	median  time.Duration            // of all clocks, how far it is ahead of this master's
	decided bool                     // false: the clocks differ, and no side has a majority
	enough  bool                     // more than half of those that can report a clock did
	ahead   map[string]time.Duration // by node, for those that reported, this master included
}

// judgeClocks compares the clocks. Of an odd number it takes the middle one. Of an even number the
// two in the middle must agree within the limit.
func (n *Node) judgeClocks() judgement {
	j := judgement{own: anchor{at: time.Now(), now: n.cfg.Now().Round(0)},
		ahead: map[string]time.Duration{n.self.Node: 0}}
	members := n.state.Members()
	able := len(members)
	gain := n.clockGain(j.own.now)
	n.mu.Lock()
	for _, m := range members {
		r := n.contacts[m.Node].clock
		switch {
		case m.Node == n.self.Node || r.at.IsZero() || time.Since(r.at) > clockFresh:
		case r.told && (gain-r.gain).Abs() > maxStep:
		case r.told:
			j.ahead[m.Node] = r.ahead
		default:
			able--
		}
	}
	n.mu.Unlock()
	all := make([]time.Duration, 0, len(j.ahead))
	for _, d := range j.ahead {
		all = append(all, d)
	}
	slices.Sort(all)
	low, high := all[(len(all)-1)/2], all[len(all)/2]
	j.median, j.decided = low+(high-low)/2, high-low <= n.cfg.ClockLimit
	j.enough = 2*len(all) > able
	return j
}

// followClocks corrects this master's time if its clock is off, and warns of every clock that is.
// While the clocks give no majority, the previous finding holds.
func (n *Node) followClocks() {
	j := n.judgeClocks()
	if !j.decided || !j.enough {
		return
	}
	correction := j.median
	if correction.Abs() <= n.cfg.ClockLimit {
		correction = 0
	}
	n.anchored.Store(&anchor{at: j.own.at, now: j.own.now.Add(correction)})
	n.clockJudged.Store(true)
	for _, m := range n.state.Members() {
		ahead, ok := j.ahead[m.Node]
		if ahead -= j.median; !ok || ahead.Abs() <= n.cfg.ClockLimit {
			continue
		}
		n.mu.Lock()
		c := n.contacts[m.Node]
		due := time.Since(c.clockWarned) >= sayAgain
		if due {
			c.clockWarned = time.Now()
			n.contacts[m.Node] = c
		}
		n.mu.Unlock()
		if due {
			n.log.Warn("a master's clock is wrong; set it, for example by NTP; until then the master uses the "+
				"others' time",
				"peer", m.ID, "ahead", ahead.Round(time.Millisecond), "limit", n.cfg.ClockLimit)
		}
	}
}

// ClockJudged reports whether Now is as good as it will be: the clock was compared with those of
// most members, or a start would wait for them no longer (Config.ServeWithout).
func (n *Node) ClockJudged() bool {
	return n.clockJudged.Load() || n.ran(n.cfg.ServeWithout)
}

// ClocksDiffer reports whether the clocks of the members in contact differ by more than the limit,
// without a majority for any time.
func (n *Node) ClocksDiffer() bool { return !n.judgeClocks().decided }

// ClockAhead returns how far this master's own clock is ahead of that of most members.
func (n *Node) ClockAhead() time.Duration { return -n.judgeClocks().median }

// foreseen reports whether a time in the state lies so far in the future that a wrong clock must
// have produced it.
func (n *Node) foreseen(at time.Time) bool { return at.Sub(n.Now()) > n.cfg.ClockLimit }
