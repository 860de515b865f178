// Package soak is the report of a soak test: what a cluster went through, and how much of the
// machine its masters used meanwhile.
//
// Lives here: the report's shape and the check that the use does not grow. Does not: cause faults
// (test/faults, TestSoak), draw (tools/pages).
package soak

import (
	"fmt"
	"slices"
	"time"
)

// Report is one run.
type Report struct {
	Began  time.Time
	Commit string
	Rounds []Round
	Faults map[string]int // how often each was caused
}

// Round is a part of a run: some faults under load, then the checks.
type Round struct {
	Minute  float64 // since the start, at the end of the round
	Returns int     // acknowledged in this round, and found on all masters after it
	Lost    int     // without an answer
	Calls   int     // on keys and members, in histories found linearizable
	Masters map[string]Use
}

// Use is what one master uses at the end of a round, when it is idle.
type Use struct {
	Memory     float64 // resident, in bytes
	Files      float64 // open
	Goroutines float64
}

// settled is the number of rounds after which the use must not grow: before, caches fill.
const settled = 3

// Grown describes each master's use that grew: its median in the last third of the rounds exceeds
// that in the first third, after the first rounds, by more than what a busy machine explains. It
// returns nil for fewer than nine rounds.
func (r Report) Grown() (grown []string) {
	if len(r.Rounds) < 3*settled {
		return nil
	}
	rounds := r.Rounds[settled:]
	third := max(1, len(rounds)/3)
	for _, what := range []struct {
		name         string
		of           func(Use) float64
		factor, plus float64
	}{
		{"memory", func(u Use) float64 { return u.Memory }, 1.25, 48 << 20},
		{"open files", func(u Use) float64 { return u.Files }, 1.2, 20},
		{"goroutines", func(u Use) float64 { return u.Goroutines }, 1.2, 60},
	} {
		for _, m := range r.Masters() {
			median := func(part []Round) float64 {
				var list []float64
				for _, round := range part {
					if u, ok := round.Masters[m]; ok {
						list = append(list, what.of(u))
					}
				}
				slices.Sort(list)
				if len(list) == 0 {
					return 0
				}
				return list[len(list)/2]
			}
			first, last := median(rounds[:third]), median(rounds[len(rounds)-third:])
			if last > first*what.factor+what.plus {
				grown = append(grown, fmt.Sprintf("%s of %s grew from %.0f to %.0f", what.name, m, first,
					last))
			}
		}
	}
	return grown
}

// Masters lists the masters of the first round, sorted.
func (r Report) Masters() (ids []string) {
	if len(r.Rounds) > 0 {
		for id := range r.Rounds[0].Masters {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Returns and Calls are sums over all rounds.
func (r Report) Returns() (n int) {
	for _, round := range r.Rounds {
		n += round.Returns
	}
	return n
}

// Calls are those on keys and members.
func (r Report) Calls() (n int) {
	for _, round := range r.Rounds {
		n += round.Calls
	}
	return n
}

// Hours is how long the run took.
func (r Report) Hours() float64 {
	if len(r.Rounds) == 0 {
		return 0
	}
	return r.Rounds[len(r.Rounds)-1].Minute / 60
}
