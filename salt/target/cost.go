package target

import (
	"errors"
	"syscall"
	"time"

	"clustermaster/value/pyregex"
)

// ErrTooCostly refuses a target that takes too much work: more words than whoever gave it may use,
// or patterns that go on trying. Nobody knows whom it means then, so it means nobody, also behind
// "not".
var ErrTooCostly = errors.New("the target takes too much work")

// limits bound what one target may cost.
type limits struct {
	words int           // of a compound expression as it is given
	work  time.Duration // of matching ids
	wait  time.Duration // for what is asked of grains and pillars
}

// ofOperators and ofMinions are the limits by who gives a target.
var (
	ofOperators = limits{words: maxWords, work: 10 * time.Second, wait: time.Minute}
	ofMinions   = limits{words: 1000, work: time.Second, wait: 5 * time.Second}
)

// Bounds of the work of one target, whoever gives it.
const (
	// of regular expressions, together; on each master that judges
	maxBacktracking = 1500 * time.Millisecond
	// Steps through grains and pillars, on each master that judges: all, and those of walks that
	// take many.
	maxJudged = 20_000_000
	maxLong   = 2_000_000
	manySteps = 1000
)

// cost counts what a matching has cost.
type cost struct {
	most  limits
	regex *pyregex.Budget
	work  time.Duration
}

func newCost() cost { return cost{most: ofOperators, regex: pyregex.NewBudget(maxBacktracking)} }

// spent reports whether the matching must not go on.
func (c *cost) spent() bool { return c.work > c.most.work || c.regex.Spent() }

// threadTime is the processor time of the calling thread: a busy machine makes no target costly.
func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if syscall.Getrusage(thread, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lookEvery is after how many ids the clock is read.
const lookEvery = 64
