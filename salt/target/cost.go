package target

import (
	"errors"
	"time"

	"clustermaster/value/pyregex"
)

// ErrTooCostly refuses a target that takes too much work: it has more words than its author may
// use, or its patterns run too long. Which minions it means is then unknown, so it matches no
// minion, also behind "not".
var ErrTooCostly = errors.New("the target takes too much work")

// limits bound what one target may cost.
type limits struct {
	words int           // of a compound expression as given
	work  time.Duration // of matching ids
	wait  time.Duration // for answers about grains and pillars
}

// ofOperators and ofMinions are the limits of targets that operators and minions give.
var (
	ofOperators = limits{words: maxWords, work: 10 * time.Second, wait: time.Minute}
	ofMinions   = limits{words: 1000, work: time.Second, wait: 5 * time.Second}
)

// Bounds of the work of one target, whoever gives it.
const (
	// All regular expressions together, on each master that judges.
	maxBacktracking = 1500 * time.Millisecond
	// Steps through grains and pillars, on each master that judges: all, and those of walks that
	// take many.
	maxJudged = 20_000_000
	maxLong   = 2_000_000
	manySteps = 1000
)

// cost adds up the work of one matching.
type cost struct {
	most  limits
	regex *pyregex.Budget
	work  time.Duration
}

func newCost() cost { return cost{most: ofOperators, regex: pyregex.NewBudget(maxBacktracking)} }

// spent reports whether the matching must stop.
func (c *cost) spent() bool { return c.work > c.most.work || c.regex.Spent() }

// lookEvery is the number of ids between two looks at the clock.
const lookEvery = 64
