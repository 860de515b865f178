package target

import (
	"clustermaster/value/fnmatch"
	"clustermaster/value/pyregex"
)

// Glob reports whether s matches the shell pattern, as Python's fnmatch.fnmatchcase says.
func Glob(glob, s string) bool { return fnmatch.Match(glob, s) }

// MatchStart reports whether the start of s matches the regular expression, as Python's re.match
// says. An expression that does not compile matches nothing.
func MatchStart(expr, s string) bool {
	test, ok := pyregex.Start(expr)
	return ok && test(s)
}

// MatchFull reports whether all of s matches the regular expression, as Python's re.fullmatch says.
func MatchFull(expr, s string) bool {
	test, ok := pyregex.Full(expr)
	return ok && test(s)
}

// FullMatcher returns MatchFull for one expression, compiled. Only one goroutine may use it.
func FullMatcher(expr string) func(s string) bool { return orNone(pyregex.FullEach(expr)) }

// ListMatcher is FullMatcher for what is refused: of alternatives only the last must reach the end
// of s, as in Salt's expr_match.
func ListMatcher(expr string) func(s string) bool { return orNone(pyregex.ListEach(expr)) }

func orNone(test func(string) bool, ok bool) func(s string) bool {
	if !ok {
		return func(string) bool { return false }
	}
	return test
}

// Forbids reports whether an expression of a blacklist forbids s. One that takes too long to match
// forbids it.
func Forbids(expr, s string) bool {
	test, ok := pyregex.ListForbids(expr)
	return ok && test(s)
}
