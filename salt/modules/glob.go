package modules

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"clustermaster/value/fnmatch"
)

// glob lists the paths that match a pattern, as Python's glob.glob does: in the order of the
// folders on disk, with hidden names only for a part that begins with a dot, and with "**" as "*".
func glob(pattern string) ([]string, error) {
	cut := strings.LastIndexByte(pattern, '/') + 1
	dir, name := pattern[:cut], pattern[cut:]
	if trimmed := strings.TrimRight(dir, "/"); trimmed != "" {
		dir = trimmed
	}
	if !fnmatch.Magic(pattern) {
		if name == "" {
			info, err := os.Stat(dir)
			return present(pattern, err == nil && info.IsDir()), nil
		}
		_, err := os.Lstat(pattern)
		return present(pattern, err == nil), nil
	}
	dirs := []string{dir}
	if fnmatch.Magic(dir) {
		var err error
		if dirs, err = glob(dir); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, dir := range dirs {
		names, err := namesLike(dir, name)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			out = append(out, joined(dir, name))
		}
		if len(out) > maxFound {
			return nil, fmt.Errorf("%s: more than %d hits", pattern, maxFound)
		}
	}
	return out, nil
}

func present(p string, is bool) []string {
	if is {
		return []string{p}
	}
	return nil
}

func joined(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// namesLike lists the names in a folder that match the last part of a glob. An unreadable folder
// gives none.
func namesLike(dir, part string) ([]string, error) {
	if !fnmatch.Magic(part) {
		info, err := os.Stat(dir)
		if part == "" {
			return present("", err == nil && info.IsDir()), nil
		}
		_, err = os.Lstat(joined(dir, part))
		return present(part, err == nil), nil
	}
	if dir == "" {
		dir = "."
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, nil // see above
	}
	defer f.Close()
	var out []string
	for {
		names, err := f.Readdirnames(1000)
		for _, n := range names {
			if fnmatch.MatchPart(part, n) {
				out = append(out, n)
			}
		}
		if len(out) > maxFound {
			return nil, fmt.Errorf("%s: more than %d hits", joined(dir, part), maxFound)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return out, nil
			}
			return nil, nil // not a folder
		}
	}
}
