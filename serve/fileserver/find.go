package fileserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"clustermaster/value"
)

// found is a file that may be served.
type found struct {
	path string // absolute
	rel  string // normalised, as the minion knows it
	info fs.FileInfo

	other File // of another back end; nil: of file_roots
	back  string
}

// text returns a field that is text, or bytes for names that are not UTF-8.
func text(load value.Map, key string) (string, bool) {
	switch v, _ := load.Get(key); v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// find looks a path up in an environment; both may be changed by a query in the path
// ("x?saltenv=dev"). Absent files, and all that may not be served, are not found. A back end that
// fails is an error: it may have the file, and another one's must not take its place.
func (s *Server) find(ctx context.Context, path, env string) (found, bool, error) {
	if path == "" || len(path) > maxPath || filepath.IsAbs(path) || strings.Contains(path, "../") ||
		strings.ContainsRune(path, 0) {
		return found{}, false, nil
	}
	index := ""
	if escaped, ok := strings.CutPrefix(path, "|"); ok {
		path = escaped
	} else if bare, query, ok := strings.Cut(path, "?"); ok {
		path = bare
		query, _, _ = strings.Cut(query, "?")
		for _, arg := range strings.Split(query, "&") {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "saltenv":
				env = value
			case "index":
				index = value
			}
		}
	}
	path = filepath.Clean(path)
	if filepath.IsAbs(path) || path == ".." || strings.HasPrefix(path, "../") {
		return found{}, false, nil
	}
	for _, b := range s.order {
		if b.Name() == Roots {
			if f, ok := s.inRoots(path, env, index); ok {
				return f, true, nil
			}
			continue
		}
		f, ok, err := b.Find(ctx, path, env)
		if err != nil {
			return found{}, false, fmt.Errorf("look up %s in %s of %s: %w", path, env, b.Name(), err)
		}
		if ok {
			return found{path: f.Path(), rel: f.Rel(), other: f, back: b.Name()}, true, nil
		}
	}
	return found{}, false, nil
}

// inRoots looks a clean relative path up in file_roots; index chooses one root, "" all.
func (s *Server) inRoots(path, env, index string) (found, bool) {
	roots := s.roots(env)
	if index != "" {
		i, err := strconv.Atoi(index)
		if err != nil || i < -len(roots) || i >= len(roots) {
			return found{}, false
		}
		if i < 0 {
			i += len(roots)
		}
		roots = roots[i : i+1]
	}
	for _, root := range roots {
		if f, ok := s.inRoot(root, path); ok {
			return f, true
		}
	}
	return found{}, false
}

// inRoot looks a clean relative path up below one root.
func (s *Server) inRoot(root, rel string) (found, bool) {
	if staged(rel) {
		return found{}, false
	}
	full := filepath.Join(root, rel)
	info, err := os.Stat(full)
	if err != nil || !info.Mode().IsRegular() || s.ignored(full) {
		return found{}, false
	}
	if !s.opts.FollowSymlinks && !inside(root, full) {
		return found{}, false
	}
	return found{path: full, rel: rel, info: info, back: Roots}, true
}

// inside reports whether what a path leads to lies below the root.
func inside(root, full string) bool {
	realRoot, err := filepath.EvalSymlinks(root)
	if err != nil {
		return false
	}
	target, err := filepath.EvalSymlinks(full)
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(realRoot, target)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func (s *Server) fileFind(ctx context.Context, load value.Map) (any, error) {
	path, _ := text(load, "path")
	f, ok, err := s.find(ctx, path, saltenv(load))
	if err != nil {
		return nil, err
	}
	if !ok {
		return value.Map{{Key: "path", Value: ""}, {Key: "rel", Value: ""}}, nil
	}
	return value.Map{
		{Key: "path", Value: f.path}, {Key: "rel", Value: f.rel}, {Key: "stat", Value: f.stat()},
		{Key: "back", Value: f.back},
	}, nil
}

func (f found) stat() []any {
	if f.other != nil {
		return f.other.Stat()
	}
	return stat(f.info)
}

// environment is the environment asked for. As with Salt, any value counts by its text:
// "saltenv=2024" on a command line is a number.
func environment(load value.Map) (env string, given bool) {
	if env, ok := text(load, "saltenv"); ok {
		return env, true
	}
	v, given := load.Get("saltenv")
	return value.Str(v), given
}

// saltenv is the environment asked for, where it has a default.
func saltenv(load value.Map) string {
	if env, given := environment(load); given {
		return env
	}
	return "base"
}

// required finds the file of a load that must have a path and an environment.
func (s *Server) required(ctx context.Context, load value.Map) (found, bool, error) {
	path, hasPath := text(load, "path")
	env, hasEnv := environment(load)
	if !hasPath || !hasEnv {
		return found{}, false, nil
	}
	return s.find(ctx, path, env)
}
