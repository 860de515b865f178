package pyregex

import (
	"slices"

	"clustermaster/value/fnmatch"
)

// Exposed applies a whitelist and a blacklist of globs and regular expressions to a name: a name
// that matches the blacklist is not exposed; with a whitelist, only names that match it are. It
// refuses all that salt.utils.stringutils.check_whitelist_blacklist refuses.
func Exposed(name string, white, black []string) bool {
	in := func(list []string, compile func(string) (func(string) bool, bool)) bool {
		return slices.ContainsFunc(list, func(expr string) bool {
			if fnmatch.Match(expr, name) {
				return true
			}
			test, ok := compile(expr)
			return ok && test(name)
		})
	}
	if in(black, ListForbids) {
		return false
	}
	return len(white) == 0 || in(white, Full)
}
