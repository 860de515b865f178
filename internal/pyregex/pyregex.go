// Package pyregex matches Python's regular expressions, as Salt's options and targets use them, with a bound on time.
//
// Lives here: re.match, re.fullmatch and re.search, on top of Go's regexp for expressions and texts that mean the same there,
// on top of regexp2 for the others.
//
// Does not: know what is matched, or shell patterns (internal/fnmatch).
//
// Guarantee: no expression and no text makes a match run for longer than a second; what is on top of Go's regexp takes time in
// proportion to the text, and is right however busy the machine is.
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

// Start returns the test of a regular expression as Python's re.match: anchored at the start, not at the end. ok is false
// if it does not compile. A text on which backtracking takes too long does not match; nor does any text once those on which
// it took long have used up three seconds. The test is for one goroutine.
func Start(expr string) (test func(string) bool, ok bool) { return compile(`\A(?:`, expr, ")") }

// Full is Start for Python's re.fullmatch.
func Full(expr string) (test func(string) bool, ok bool) { return compile(`\A(?:`, expr, `)\z`) }

// Search is Start for Python's re.search.
func Search(expr string) (test func(string) bool, ok bool) { return compile("(?:", expr, ")") }

func compile(before, expr, after string) (test func(string) bool, ok bool) {
	if len(expr) > maxLength {
		return nil, false
	}
	backtracking, ok := backtrack(before, expr, after)
	if !ok || !linear(expr) {
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

// backtrack compiles with regexp2, which can do all that Python can.
func backtrack(before, expr, after string) (test func(string) bool, ok bool) {
	try, err := patient(before+dialect(expr)+after, regexp2.None)
	if err != nil {
		return nil, false
	}
	return func(s string) bool {
		found, err := try(s)
		return err == nil && found
	}, true
}

var errSpent = errors.New("its time is spent")

// patient matches with regexp2 as long as the bounds of time let it; that it gave up is an error.
func patient(expr string, options regexp2.RegexOptions) (func(string) (bool, error), error) {
	re, err := regexp2.Compile(expr, options)
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = regexTimeout
	var spent time.Duration
	return func(s string) (bool, error) {
		if spent > regexBudget {
			return false, errSpent
		}
		began := time.Now()
		found, err := re.MatchString(s)
		if took := time.Since(began); took > takesLong {
			spent += took
		}
		return found, err
	}, nil
}

// dialect writes a Python expression in the dialect of regexp2 (.NET): (?P<n>..) and (?P=n) as (?<n>..) and \k<n>, and
// \Z, which is the very end in Python, as \z.
func dialect(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '\\' && i+1 < len(p):
			if p[i+1] == 'Z' {
				b.WriteString(`\z`)
			} else {
				b.WriteString(p[i : i+2])
			}
			i++
		case strings.HasPrefix(p[i:], "(?P<"):
			b.WriteString("(?<")
			i += len("(?P<") - 1
		case strings.HasPrefix(p[i:], "(?P="):
			end := strings.IndexByte(p[i:], ')')
			if end < 0 {
				b.WriteByte(p[i])
				continue
			}
			b.WriteString(`\k<` + p[i+len("(?P="):i+end] + `>`)
			i += end
		default:
			b.WriteByte(p[i])
		}
	}
	return b.String()
}
