package pyregex

import (
	"regexp/syntax"
	"runtime"
	"syscall"
	"time"
)

// Budget is the processor time that backtracking may take, summed over all texts on which it takes
// long. Several expressions may share one. Only one goroutine may use it.
type Budget struct {
	left  time.Duration
	spent bool
}

// NewBudget makes a budget of d.
func NewBudget(d time.Duration) *Budget { return &Budget{left: d} }

// Spent reports whether a text stayed undecided: backtracking took too long, or no time was left.
// Tests then report no match.
func (b *Budget) Spent() bool { return b.spent }

// try spends time on one text.
func (b *Budget) try(match func(timeout time.Duration) (bool, error)) (found bool, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range tries {
		if b.left <= 0 {
			b.spent = true
			return false, errSpent
		}
		began, used, timeout := time.Now(), ThreadTime(), min(regexTimeout, b.left)
		found, err = match(timeout)
		took := time.Since(began)
		if took <= takesLong && err == nil {
			return found, nil
		}
		// On a busy machine a match may wait for a processor, through no fault of the text.
		took = min(took, timeout, ThreadTime()-used)
		b.left -= took
		if err == nil || took > timeout/2 {
			break
		}
	}
	if err != nil {
		b.spent = true
	}
	return found, err
}

// tries bounds how often a match begins anew that got less than half a processor.
const tries = 4

// ThreadTime is the processor time of the calling thread, to which the caller locks its goroutine.
// Unlike elapsed time it does not grow because the machine is busy.
func ThreadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var r syscall.Rusage
	if err := syscall.Getrusage(thread, &r); err != nil {
		return time.Duration(time.Now().UnixNano()) // time that passes instead
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// StartIn is Start with a shared budget.
func StartIn(b *Budget, expr string) (test func(string) bool, ok bool) {
	return compile(b, `\A(?:`, expr, ")")
}

// Forbids is Search for forbidden texts: an undecided text counts as a match.
func Forbids(expr string) (test func(string) bool, ok bool) { return forbids("(?:", expr, ")") }

// ListForbids is Forbids for a list of expressions that Salt puts between \A and \Z without
// parentheses (expr_match): of the alternatives only the last must reach the end. It matches all
// that Full matches.
func ListForbids(expr string) (test func(string) bool, ok bool) {
	return forbids(`\A(?:`, expr, `\z)`)
}

func forbids(before, expr, after string) (test func(string) bool, ok bool) {
	b := NewBudget(regexBudget)
	match, ok := compile(b, before, expr, after)
	if !ok {
		return nil, false
	}
	last := time.Now()
	return func(s string) bool {
		now := time.Now()
		b.left, last = min(regexBudget, b.left+now.Sub(last)/recovers), now
		b.spent = false
		return match(s) || b.spent
	}, true
}

// recovers is the divisor of elapsed time that gives the time that tests for forbidden texts may
// use in the long run, because these tests live as long as the master.
const recovers = 10

// maxProgram bounds the instructions of expressions for Go's regexp, which expands counted repeats
// and takes time in proportion.
const maxProgram = 10_000

// Program returns the instructions that Go's regexp executes for each byte of a text, at most. It
// returns 0 for an expression that needs backtracking, whose time a budget bounds.
func Program(expr string) int {
	if !linear(expr) {
		return 0
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil || size(re) > maxProgram {
		return 0
	}
	return size(re)
}

// size estimates the instructions of an expression, up to a little more than maxProgram.
func size(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n += size(sub); n > maxProgram {
			return maxProgram + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxProgram+1)
}
