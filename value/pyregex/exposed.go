package pyregex

import (
	"slices"

	"clustermaster/value/fnmatch"
)

// Exposed applies a whitelist and a blacklist of globs and regular expressions to a name: a name
// that matches the blacklist is not exposed; with a whitelist, only names that match it are. It
// equals salt.utils.stringutils.check_whitelist_blacklist.
func Exposed(name string, white, black []string) bool {
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(expr string) bool {
			if fnmatch.Match(expr, name) {
				return true
			}
			full, ok := Full(expr)
			return ok && full(name)
		})
	}
	if in(black) {
		return false
	}
	return len(white) == 0 || in(white)
}
