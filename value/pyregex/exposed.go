package pyregex

import (
	"slices"

	"clustermaster/value/fnmatch"
)

// Exposed applies a whitelist and a blacklist of globs and regular expressions to a name: what the
// blacklist matches is not exposed; with a whitelist, only what that matches is. As
// salt.utils.stringutils.check_whitelist_blacklist.
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
