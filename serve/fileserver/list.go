package fileserver

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"clustermaster/value"
)

// lists are the sorted names of one environment, relative to its roots.
type lists struct {
	files, dirs, emptyDirs []string
	links                  value.Map // name to the link's text
}

// listing is the cached lists of one environment; who comes while they are made waits.
type listing struct {
	mu      sync.Mutex
	made    time.Time
	checked time.Time
	l       *lists
	stamps  []stamp
	linked  []linked
}

// stamp is a folder as it was when it was listed. A name that comes or goes changes its folder's
// time.
type stamp struct {
	dir  string
	info os.FileInfo
}

// linked is a link and whether it led to a folder when it was listed: its target may change without
// a trace in its own folder.
type linked struct {
	path  string
	isDir bool
}

func leadsToDir(link string) bool {
	info, err := os.Stat(link)
	return err == nil && info.IsDir()
}

// Ages of lists: they are looked at again after checkAfter, and made anew when a folder or the kind
// of a link's target has changed. They are made anew after maxAge at any rate: a folder's time can
// be set back.
const (
	checkAfter = 500 * time.Millisecond
	maxAge     = 20 * time.Second
)

// fresh reports whether nothing has changed since the lists were made. A folder that changed
// shortly before is not to be told from one that changed again since.
func (e *listing) fresh(now time.Time) bool {
	if e.l == nil || now.Sub(e.made) >= maxAge {
		return false
	}
	if now.Sub(e.checked) < checkAfter {
		return true
	}
	for _, s := range e.stamps {
		info, err := os.Stat(s.dir)
		if err != nil || !os.SameFile(info, s.info) || !info.ModTime().Equal(s.info.ModTime()) ||
			e.made.Sub(info.ModTime()) < settled {
			return false
		}
	}
	for _, l := range e.linked {
		if leadsToDir(l.path) != l.isDir {
			return false
		}
	}
	e.checked = now
	return true
}

// of returns the lists of an environment.
func (s *Server) of(env string) *lists {
	roots := s.roots(env)
	if len(roots) == 0 {
		return &lists{}
	}
	s.mu.Lock()
	entry := s.lists[env]
	if entry == nil {
		if len(s.lists) >= maxListedEnvs {
			clear(s.lists)
		}
		entry = &listing{}
		s.lists[env] = entry
	}
	s.mu.Unlock()
	entry.mu.Lock()
	defer entry.mu.Unlock()
	now := time.Now()
	if !entry.fresh(now) {
		w := walker{s: s, files: set{}, dirs: set{}, empty: set{}, links: make(map[string]string)}
		for _, root := range roots {
			w.root, w.realRoot = root, root
			if r, err := filepath.EvalSymlinks(root); err == nil {
				w.realRoot = r
			}
			w.walk(root, "", nil)
		}
		if w.full {
			s.log.Warn("file list cut off: too many files or folders too deep; split the environment", "env", env, "n", w.n)
		}
		if len(w.nameless) > 0 {
			s.log.Warn("files are left out of the list: their names are not UTF-8; rename them",
				"env", env, "n", len(w.nameless), "path", strconv.Quote(w.nameless[0]))
		}
		s.walks.Inc()
		entry.made, entry.checked, entry.l, entry.stamps, entry.linked = now, now, w.lists(),
			w.stamps, w.linked
	}
	return entry.l
}

// ClearListCache drops the cached lists of an environment, "" for all, as salt-run
// fileserver.clear_file_list_cache does, and names the environments that had some.
func (s *Server) ClearListCache(env string) []string {
	var out []string
	for _, names := range s.Forget(env, nil) {
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// forgetRoots is ClearListCache for file_roots.
func (s *Server) forgetRoots(env string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for name := range s.lists {
		if env == "" || name == env {
			out = append(out, name)
			delete(s.lists, name)
		}
	}
	slices.Sort(out)
	return out
}

// list answers with one of the lists. One that lacks a back end's part is an error: a minion that
// takes it for whole removes files (file.recurse with clean, clean_dynamic_modules).
func (s *Server) list(ctx context.Context, load value.Map, pick func(Lists) []string) (any, error) {
	env, ok := environment(load)
	if !ok {
		return []any{}, nil
	}
	l, err := s.listsOf(ctx, env, s.asked(load))
	if err != nil {
		return nil, err
	}
	names, prefix := pick(l), prefixOf(load)
	out := make([]string, 0, len(names))
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out, nil
}

// asked are the back ends that a load narrows its question to (fsbackend); nil for all.
func (s *Server) asked(load value.Map) []string {
	v, ok := load.Get("fsbackend")
	if !ok || v == nil {
		return nil
	}
	return s.Narrow(v)
}

// Narrow reads a choice of back ends as Salt does: names, or only names with a minus that are left
// out; a text with commas or a list. Unknown ones are passed over. nil chooses all.
func (s *Server) Narrow(v any) []string {
	var names []string
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if v == "" {
			return nil
		}
		names = strings.Split(v, ",")
	case []any:
		for _, e := range v {
			name, _ := e.(string)
			names = append(names, name)
		}
		if len(names) == 0 {
			return nil
		}
	default:
		return []string{}
	}
	full := map[string]string{"git": "gitfs", "minion": "minionfs"}
	minus := !slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "-") })
	var out []string
	for _, have := range s.Backends() {
		in := slices.ContainsFunc(names, func(n string) bool {
			if n = strings.TrimSpace(n); minus {
				n = n[1:]
			}
			return n == have || full[n] == have
		})
		if in != minus {
			out = append(out, have)
		}
	}
	if out == nil {
		return []string{}
	}
	return out
}

func (s *Server) links(ctx context.Context, load value.Map) (any, error) {
	env, ok := environment(load)
	if !ok {
		return value.Map{}, nil
	}
	l, err := s.listsOf(ctx, env, s.asked(load))
	if err != nil {
		return nil, err
	}
	prefix := prefixOf(load)
	out := value.Map{}
	for _, p := range l.Links {
		if strings.HasPrefix(p.Key.(string), prefix) {
			out = append(out, p)
		}
	}
	return out, nil
}

// prefixOf is the plain text that listed names must begin with.
func prefixOf(load value.Map) string {
	prefix, _ := text(load, "prefix")
	return strings.Trim(prefix, "/")
}

type set map[string]struct{}

func (s set) sorted() []string {
	out := make([]string, 0, len(s))
	for name := range s {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// walker gathers the names below roots.
type walker struct {
	s                  *Server
	root, realRoot     string
	files, dirs, empty set
	links              map[string]string
	stamps             []stamp
	linked             []linked
	nameless           []string // names that are no UTF-8
	n                  int
	full               bool
}

func (w *walker) lists() *lists {
	l := &lists{files: w.files.sorted(), dirs: w.dirs.sorted(), emptyDirs: w.empty.sorted()}
	names := make(set, len(w.links))
	for name := range w.links {
		names[name] = struct{}{}
	}
	for _, name := range names.sorted() {
		l.links = append(l.links, value.Pair{Key: name, Value: w.links[name]})
	}
	return l
}

// walk lists one folder and those in it. Linked folders are entered if links are followed, but not
// one that we are in: a folder that contains itself ends there. (Salt goes round until the name is
// too long.)
func (w *walker) walk(dir, rel string, above []os.FileInfo) {
	if len(above) > maxDepth {
		w.full = true
		return
	}
	self, err := os.Stat(dir)
	if err != nil || slices.ContainsFunc(above,
		func(a os.FileInfo) bool { return os.SameFile(a, self) }) {
		return
	}
	w.stamps = append(w.stamps, stamp{dir, self})
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	above = append(above[:len(above):len(above)], self)
	for _, e := range entries {
		if e.Name() == StagingDir {
			continue
		}
		// minions take such a list for broken, or ask for it in vain
		if !utf8.ValidString(e.Name()) {
			w.nameless = append(w.nameless, filepath.Join(dir, e.Name()))
			continue
		}
		if w.n++; w.n > maxListed {
			w.full = true
			return
		}
		full, name := filepath.Join(dir, e.Name()), filepath.Join(rel, e.Name())
		isLink := e.Type()&os.ModeSymlink != 0
		isDir := e.IsDir()
		if isLink {
			isDir = leadsToDir(full)
			w.linked = append(w.linked, linked{full, isDir})
		}
		w.add(full, name, isDir, isLink)
		if isDir && (!isLink || w.s.opts.FollowSymlinks) {
			w.walk(full, name, above)
		}
	}
}

// add puts one entry on the lists that it belongs to.
func (w *walker) add(full, name string, isDir, isLink bool) {
	if (isLink && w.s.opts.IgnoreSymlinks) || w.s.ignored(name) {
		return
	}
	if isDir {
		w.dirs[name] = struct{}{}
		if entries, err := os.ReadDir(full); err == nil &&
			!slices.ContainsFunc(entries,
				func(e os.DirEntry) bool { return e.Name() != StagingDir }) {
			w.empty[name] = struct{}{}
		}
	} else {
		w.files[name] = struct{}{}
	}
	if !isLink {
		return
	}
	target, err := os.Readlink(full)
	if err != nil {
		return
	}
	if w.pointsInside(full, target) || !w.s.opts.FollowSymlinks {
		w.links[name] = target
	}
}

// pointsInside reports whether a link's text leads to a place below the root, be there something or
// not. A text that begins with ".." is taken from the link itself, not from its folder, as Salt
// does; only the text is at stake.
func (w *walker) pointsInside(full, target string) bool {
	to := target
	switch {
	case strings.HasPrefix(to, ".."):
		to = filepath.Join(full, target)
	case !filepath.IsAbs(to):
		to = filepath.Join(filepath.Dir(full), target)
	}
	rel, err := filepath.Rel(w.realRoot, realpath(to))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// realpath resolves the links of a path as far as it exists.
func realpath(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir, name := filepath.Split(path)
	if dir = filepath.Clean(dir); dir == path || name == "" {
		return path
	}
	return filepath.Join(realpath(dir), name)
}
