// Package pyregex matches Python's regular expressions, as Salt's options and targets use them,
// with a bound on time.
//
// Lives here: re.match, re.fullmatch and re.search, with Go's regexp for expressions and texts that
// mean the same there, and with regexp2 for the others.
//
// Does not: know the matched texts, or shell patterns (value/fnmatch).
//
// Guarantee: no expression and no text makes a match run for longer than a second. On a machine so
// busy that it got less than half a processor it begins anew, three times at most. A match by Go's
// regexp takes time in proportion to the text, and is right however busy the machine is.
package pyregex

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
)

// Bounds of one expression.
const (
	maxLength    = 64 << 10        // of an expression, bytes
	regexTimeout = time.Second     // per text; backtracking patterns are easily endless
	regexBudget  = 3 * time.Second // per compiled expression, over all texts that took long
	takesLong    = time.Millisecond
)

// verbose is the flag x for a whole expression.
var verbose = regexp.MustCompile(`^\(\?[a-zA-Z]*x[a-zA-Z]*\)`)

// Start compiles the test of a regular expression as Python's re.match: anchored at the start, not
// at the end. ok is false if the expression does not compile. A text on which backtracking takes
// too long does not match. Once such texts have used up three seconds, no further text matches.
// Only one goroutine may use the test.
func Start(expr string) (test func(string) bool, ok bool) { return own(`\A(?:`, expr, ")") }

// Full is Start for Python's re.fullmatch.
func Full(expr string) (test func(string) bool, ok bool) { return own(`\A(?:`, expr, `)\z`) }

// FullEach is Full with the whole time for each text, for tests that are kept: one text does not
// use up the time of the next.
func FullEach(expr string) (test func(string) bool, ok bool) { return each(`\A(?:`, expr, `)\z`) }

// ListEach is FullEach by the rule of ListForbids.
func ListEach(expr string) (test func(string) bool, ok bool) { return each(`\A(?:`, expr, `\z)`) }

func each(before, expr, after string) (test func(string) bool, ok bool) {
	b := NewBudget(regexBudget)
	match, ok := compile(b, before, expr, after)
	return func(s string) bool {
		b.left, b.spent = regexBudget, false
		return match(s)
	}, ok
}

// Search is Start for Python's re.search.
func Search(expr string) (test func(string) bool, ok bool) { return own("(?:", expr, ")") }

// own compiles an expression with its own budget.
func own(before, expr, after string) (test func(string) bool, ok bool) {
	return compile(NewBudget(regexBudget), before, expr, after)
}

func compile(b *Budget, before, expr, after string) (test func(string) bool, ok bool) {
	if len(expr) > maxLength {
		return nil, false
	}
	if verbose.MatchString(expr) && !strings.HasSuffix(expr, `\`) {
		expr += "\n" // ends a comment, which would hide what follows
	}
	backtracking, ok := backtrack(b, before, expr, after)
	if !ok || Program(expr) == 0 {
		return backtracking, ok
	}
	re, err := regexp.Compile(before + expr + after)
	if err != nil {
		return backtracking, true
	}
	return func(s string) bool {
		if !printable(s) {
			return backtracking(s)
		}
		return re.MatchString(s)
	}, true
}

// backtrack compiles with regexp2, which supports everything that Python does.
func backtrack(b *Budget, before, expr, after string) (test func(string) bool, ok bool) {
	// ")|.*(" is complete only between our parentheses; Python refuses it.
	if strings.Contains(expr, ")") {
		if _, err := regexp2.Compile(dialect(expr), regexp2.None); err != nil {
			return nil, false
		}
	}
	try, err := patient(b, before+dialect(expr)+after, regexp2.None)
	if err != nil {
		return nil, false
	}
	return func(s string) bool {
		found, err := try(s)
		return err == nil && found
	}, true
}

var errSpent = errors.New("its time is spent")

// patient matches with regexp2 within the bounds of time; if it gives up it returns an error.
func patient(b *Budget, expr string, options regexp2.RegexOptions) (func(string) (bool, error),
	error) {
	re, err := regexp2.Compile(expr, options)
	if err != nil {
		return nil, err
	}
	return func(s string) (bool, error) {
		return b.try(func(timeout time.Duration) (bool, error) {
			re.MatchTimeout = timeout
			return re.MatchString(s)
		})
	}, nil
}
