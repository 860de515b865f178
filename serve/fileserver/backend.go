package fileserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"clustermaster/value"
)

// Roots is the name of the back end that this package is itself.
const Roots = "roots"

// Backend is one more source of files beside file_roots. It is safe for concurrent use.
type Backend interface {
	// Name is the back end's name in the option fileserver_backend.
	Name() string
	// Envs lists the environments that it has files of.
	Envs() []string
	// Lists returns the sorted lists of an environment; empty ones for one that it does not know.
	Lists(ctx context.Context, env string) (Lists, error)
	// Find looks up a file at a clean relative path.
	Find(ctx context.Context, path, env string) (File, bool, error)
	// Forget drops what it keeps of an environment's lists ("" is all) and names the environments.
	Forget(env string) []string
}

// Lists are the sorted names of one environment. They are not written to.
type Lists struct {
	Files, Dirs, EmptyDirs []string
	Links                  value.Map // name to the link's text
}

// ErrAbsent means that a file was found, but is not there for minions.
var ErrAbsent = errors.New("the file can't be served")

// File is a file that a back end found. Errors that wrap ErrAbsent make it one that is not there.
type File interface {
	// Path is where it lies, or would lie, on disk; Rel is its name in the environment.
	Path() string
	Rel() string
	// Stat begins with the mode.
	Stat() []any
	// Piece returns up to n bytes at loc; they are not written to. At the end there are none.
	Piece(ctx context.Context, loc int64, n int) ([]byte, error)
	// Sum is the hash of the content, of the type hash_type, in hexadecimal.
	Sum(ctx context.Context) (string, error)
	// Whole returns the content, if it has no more than most bytes.
	Whole(ctx context.Context, most int64) ([]byte, error)
}

// Use sets the back ends in force, in the order in which files are looked up. Without roots among
// them file_roots are not served. It is called before anything is served.
func (s *Server) Use(order []string, more ...Backend) {
	s.order = nil
	for _, name := range order {
		if name == Roots {
			s.order = append(s.order, rootsBackend{s})
			continue
		}
		if i := slices.IndexFunc(more, func(b Backend) bool { return b.Name() == name }); i >= 0 {
			s.order = append(s.order, more[i])
		}
	}
}

// Backends names the back ends in force.
func (s *Server) Backends() []string {
	out := make([]string, len(s.order))
	for i, b := range s.order {
		out[i] = b.Name()
	}
	return out
}

// rootsBackend is file_roots among the back ends; only its lists are asked for.
type rootsBackend struct{ s *Server }

func (r rootsBackend) Name() string   { return Roots }
func (r rootsBackend) Envs() []string { return r.s.rootEnvs() }
func (r rootsBackend) Forget(env string) []string {
	return r.s.forgetRoots(env)
}

func (r rootsBackend) Lists(_ context.Context, env string) (Lists, error) {
	l := r.s.of(env)
	return Lists{Files: l.files, Dirs: l.dirs, EmptyDirs: l.emptyDirs, Links: l.links}, nil
}

func (r rootsBackend) Find(context.Context, string, string) (File, bool, error) {
	return nil, false, nil
}

// ListsOf returns the lists of an environment from some back ends, nil for all, without those that
// fail: for operators, who see the log.
func (s *Server) ListsOf(ctx context.Context, env string, only []string) Lists {
	l, _ := s.listsOf(ctx, env, only)
	return l
}

// listsOf is ListsOf, with the errors of the back ends that failed.
func (s *Server) listsOf(ctx context.Context, env string, only []string) (Lists, error) {
	var all []Lists
	var failed error
	for _, b := range s.order {
		if only != nil && !slices.Contains(only, b.Name()) {
			continue
		}
		l, err := b.Lists(ctx, env)
		if err != nil {
			s.log.Warn("a back end can't list its files", "backend", b.Name(), "env", env,
				"err", err)
			failed = errors.Join(failed, fmt.Errorf("list files of %s: %w", b.Name(), err))
			continue
		}
		if len(l.Files)+len(l.Dirs)+len(l.Links) > 0 {
			all = append(all, l)
		}
	}
	switch len(all) {
	case 0:
		return Lists{}, failed
	case 1:
		return all[0], failed
	}
	return Lists{
		Files:     union(all, func(l Lists) []string { return l.Files }),
		Dirs:      union(all, func(l Lists) []string { return l.Dirs }),
		EmptyDirs: union(all, func(l Lists) []string { return l.EmptyDirs }),
		Links:     linksOf(all),
	}, failed
}

func union(all []Lists, pick func(Lists) []string) []string {
	var out []string
	for _, l := range all {
		out = append(out, pick(l)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// linksOf joins links: the first back end that has one wins, as it does with files.
func linksOf(all []Lists) value.Map {
	joined := make(map[string]any)
	for _, l := range slices.Backward(all) {
		for _, p := range l.Links {
			joined[p.Key.(string)] = p.Value
		}
	}
	out := make(value.Map, 0, len(joined))
	for _, name := range slices.Sorted(maps.Keys(joined)) {
		out = append(out, value.Pair{Key: name, Value: joined[name]})
	}
	return out
}

// EnvsOf lists the environments of some back ends, nil for all, each once.
func (s *Server) EnvsOf(only []string) []string {
	out := []string{}
	for _, b := range s.order {
		if only != nil && !slices.Contains(only, b.Name()) {
			continue
		}
		for _, env := range b.Envs() {
			if !slices.Contains(out, env) {
				out = append(out, env)
			}
		}
	}
	return out
}

// Forget drops cached lists as ClearListCache does, and says for each back end of which
// environments.
func (s *Server) Forget(env string, only []string) map[string][]string {
	out := make(map[string][]string)
	for _, b := range s.order {
		if only != nil && !slices.Contains(only, b.Name()) {
			continue
		}
		if names := b.Forget(env); len(names) > 0 {
			out[b.Name()] = names
		}
	}
	return out
}
