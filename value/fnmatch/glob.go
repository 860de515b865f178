package fnmatch

import (
	"os"
	"path"
	"slices"
	"strings"
)

// Glob is Python's glob.glob of a clean path, sorted: each part of the path is matched by itself,
// and only a part that starts with a dot matches names that do. A folder that can't be read counts
// as empty.
func Glob(pattern string) []string {
	if !Magic(pattern) {
		return existing(pattern)
	}
	dir, part := path.Split(pattern)
	dirs := []string{path.Clean(dir)}
	if Magic(dir) {
		dirs = Glob(dirs[0])
	}
	var out []string
	for _, dir := range dirs {
		if !Magic(part) {
			out = append(out, existing(path.Join(dir, part))...)
			continue
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if MatchPart(part, e.Name()) {
				out = append(out, path.Join(dir, e.Name()))
			}
		}
	}
	slices.Sort(out)
	return out
}

func existing(file string) []string {
	if _, err := os.Lstat(file); err != nil {
		return nil
	}
	return []string{file}
}

// MatchPath reports whether Glob(pattern) finds a path if it exists.
func MatchPath(pattern, name string) bool {
	patterns, names := strings.Split(pattern, "/"), strings.Split(name, "/")
	return slices.EqualFunc(patterns, names, func(p, n string) bool {
		return p == n && !Magic(p) || Magic(p) && MatchPart(p, n)
	})
}

// MatchPart is Match for a name in a folder: only a pattern that starts with a dot matches one that
// does.
func MatchPart(pattern, name string) bool {
	return Match(pattern, name) && (strings.HasPrefix(pattern, ".") || !strings.HasPrefix(name, "."))
}
