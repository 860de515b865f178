package statesync

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"clustermaster/value/fnmatch"
)

// nameMark separates an environment from the name of a root in Scope.Env. How many folders match a
// pattern differs between masters. So from the first pattern of an environment on, a root has the
// number that its folder or pattern has in the list, and a match also a name: its path below the
// part of the pattern that has no wildcard. A master of 0.1.0 takes the two for an environment that
// it doesn't have, and leaves the root out.
const nameMark = "//"

// cut splits Env of a scope; false if it is only an environment.
func (s Scope) cut() (env, name string, ok bool) {
	i := strings.LastIndex(s.Env, nameMark)
	if i < 0 {
		return s.Env, "", false
	}
	return s.Env[:i], s.Env[i+len(nameMark):], true
}

// aboveOf returns the folder that all matches of a pattern are below.
func aboveOf(pattern string) string {
	return filepath.Dir(pattern[:strings.IndexAny(pattern, "*?[")])
}

// plain counts the folders before the first pattern.
func (e *Env) plain() int {
	if i := slices.IndexFunc(e.Dirs, fnmatch.Magic); i >= 0 {
		return i
	}
	return len(e.Dirs)
}

// further lists the roots from the first pattern on. Match checks their names.
func (e *Env) further() []Scope {
	var out []Scope
	for n := e.plain(); n < len(e.Dirs); n++ {
		listed := filepath.Clean(e.Dirs[n])
		if !fnmatch.Magic(listed) {
			out = append(out, Scope{e.Name + nameMark, n})
			continue
		}
		for _, dir := range fnmatch.Glob(listed) {
			st, err := os.Stat(dir)
			name, bad := filepath.Rel(aboveOf(listed), dir)
			if err == nil && bad == nil && st.IsDir() {
				out = append(out, Scope{e.Name + nameMark + name, n})
			}
		}
	}
	return out
}

// match returns the folder of a root from the first pattern on, and the folder that all matches of
// its pattern are below; "": it is not from a pattern.
func (e *Env) match(name string, n int) (dir, above string, ok bool) {
	if n < e.plain() || n >= len(e.Dirs) {
		return "", "", false
	}
	listed := filepath.Clean(e.Dirs[n])
	if !fnmatch.Magic(listed) {
		return listed, "", name == ""
	}
	above = aboveOf(listed)
	dir = filepath.Join(above, name)
	if !fnmatch.MatchPath(listed, dir) || !safeName(name) {
		return "", "", false
	}
	return dir, above, true
}

// safeName reports whether a name from another master may be put behind the folder of a pattern.
func safeName(name string) bool {
	return checkPath(name) == nil && utf8.ValidString(name) &&
		!slices.ContainsFunc(strings.Split(name, "/"), skippedDir)
}
