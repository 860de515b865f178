package gitfs

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"clustermaster/serve/fileserver"
	"clustermaster/value"
)

// smallContent is the largest content, in bytes, that is kept in memory.
const smallContent = 64 << 10

// maxTargets bounds the environments of a remote whose targets are remembered.
const maxTargets = maxRefs

// lists are the names of one environment.
type lists = fileserver.Lists

var _ fileserver.Backend = (*Store)(nil)

// Name implements fileserver.Backend, as do the next four.
func (*Store) Name() string { return RoleFiles }

// Envs lists the environments, sorted.
func (s *Store) Envs() []string { return s.view.Load().envs }

// envsOf returns the environments that the refs of remotes make.
func envsOf(remotes []*bound) []string {
	seen := make(map[string]bool)
	for _, b := range remotes {
		add := func(env string) {
			if b.exposed(env) {
				seen[env] = true
			}
		}
		if isHex(b.Base) {
			add("base")
		}
		for _, envs := range b.byRef {
			for _, env := range envs {
				add(env)
			}
		}
		for name := range b.refs {
			ref := ""
			if rest, ok := strings.CutPrefix(name, "refs/remotes/"); ok &&
				slices.Contains(b.RefTypes, "branch") {
				if _, ref, ok = strings.Cut(rest, "/"); !ok || ref == "" {
					ref = rest
				}
			} else if rest, ok := strings.CutPrefix(name, "refs/tags/"); ok &&
				slices.Contains(b.RefTypes, "tag") {
				ref = rest
			}
			switch _, mapped := b.byRef[ref]; {
			case ref == "" || mapped:
			case ref == b.Base:
				add("base")
			case !b.NoMapping:
				add(ref)
			}
		}
	}
	return sorted(seen)
}

// asked reports whether to look for an environment in a remote at all.
func (v *view) asked(b *bound, env string) bool {
	if b.awaited || b.Fallback != "" || isHex(env) {
		return true
	}
	_, in := slices.BinarySearch(v.envs, env)
	return in
}

// target finds the target that an environment of a remote is served from.
func (b *bound) target(ctx context.Context, env string) (target, error) {
	if b.awaited {
		return target{}, errAwaited
	}
	if t, ok := b.targets.Load(env); ok {
		return t.(target), nil
	}
	t, err := b.find(ctx, env)
	if err != nil && !errors.Is(err, errMissing) {
		return target{}, err
	}
	// Minions can invent names of commits, and any name if there is a fallback.
	if t.tree != "" && len(env) <= maxRefLen && b.kept.Load() < maxTargets {
		if _, had := b.targets.Swap(env, t); !had {
			b.kept.Add(1)
		}
	}
	return t, nil
}

func (b *bound) find(ctx context.Context, env string) (target, error) {
	if !b.exposed(env) {
		return target{}, nil
	}
	if pin, ok := b.pins[env]; ok {
		return b.held(ctx, pin.Commit)
	}
	ref, ok := b.ref(env)
	if !ok {
		return target{}, nil
	}
	for _, name := range []string{ref, b.Fallback} {
		if name == "" {
			continue
		}
		if _, t, err := b.resolve(ctx, name); err == nil && t.tree != "" || err != nil &&
			!errors.Is(err, errMissing) {
			return t, err
		}
	}
	return target{}, nil
}

// resolve finds the commit of a name by ref_types, and its ref, which is "" for a commit's own id.
func (b *bound) resolve(ctx context.Context, name string) (ref string, t target, err error) {
	for _, kind := range b.RefTypes {
		var refs []string
		switch kind {
		case "branch":
			refs = []string{"refs/remotes/origin/" + name}
		case "tag":
			refs = []string{"refs/tags/" + name}
		case "sha":
			if abbreviated.MatchString(name) {
				t, err := b.commit(ctx, strings.ToLower(name))
				switch {
				case err == nil && (b.known == nil || b.known[t.commit]):
					return "", t, nil
				case err != nil && !errors.Is(err, errMissing):
					return "", t, err
				}
			}
			refs = []string{name, "refs/" + name, "refs/tags/" + name, "refs/remotes/" + name}
		}
		for _, ref := range refs {
			if id, ok := b.refs[ref]; ok {
				t, err := b.held(ctx, id)
				return ref, t, err
			}
		}
	}
	return "", target{}, nil
}

var abbreviated = regexp.MustCompile(`^[0-9a-fA-F]{4,64}$`)

func (b *bound) commit(ctx context.Context, id string) (target, error) {
	commit, tree, err := b.m.commitTree(ctx, id)
	return target{commit, tree}, err
}

// held finds a commit of a ref or pin in force, which the mirror has.
func (b *bound) held(ctx context.Context, id string) (target, error) {
	t, err := b.commit(ctx, id)
	return t, b.m.expected(id, err)
}

// base returns the tree of an environment's root; the zero value if there is none.
func (b *bound) base(ctx context.Context, env string) (node, error) {
	t, err := b.target(ctx, env)
	if err != nil || t.tree == "" {
		return node{}, err
	}
	root := b.Root(env)
	if root == "" {
		return node{modeFolder, t.tree}, nil
	}
	n, err := b.m.at(ctx, t.tree, path.Clean(root))
	if errors.Is(err, errMissing) || err == nil && !n.is(modeFolder) {
		return node{}, nil
	}
	return n, err
}

// Lists lists an environment's files.
func (s *Store) Lists(ctx context.Context, env string) (lists, error) {
	v := s.viewFor(ctx)
	type part struct {
		b    *bound
		tree string
	}
	var parts []part
	key := env
	for _, b := range v.files {
		if !v.asked(b, env) {
			continue
		}
		n, err := b.base(ctx, env)
		if err != nil {
			return lists{}, fmt.Errorf("remote %s: %w", b.Label(), err)
		}
		if n.id != "" {
			parts = append(parts, part{b, n.id})
			key += "\x00" + b.key + b.ID + n.id
		}
	}
	if l, ok := s.caches.lists.get(key); ok {
		return *l, nil
	}
	l, err := s.listing.do(ctx, key, func() (*lists, error) {
		if l, ok := s.caches.lists.get(key); ok { // made meanwhile
			return l, nil
		}
		g := gatherer{s: s, files: map[string]bool{}, dirs: map[string]bool{},
			links: map[string]string{}, texts: map[string]*string{}}
		for _, p := range parts {
			mount := p.b.Mountpoint(env)
			if mount != "" {
				g.dirs[mount] = true
			}
			if err := g.tree(ctx, p.b, p.tree, mount); err != nil {
				return nil, fmt.Errorf("remote %s: %w", p.b.Label(), err)
			}
		}
		l, cost := g.lists()
		s.caches.lists.put(key, l, cost)
		return l, nil
	})
	if err != nil {
		return lists{}, err
	}
	return *l, nil
}

// gatherer gathers the names of one environment.
type gatherer struct {
	s           *Store
	files, dirs map[string]bool
	links       map[string]string  // name to text
	texts       map[string]*string // of links, by the blob's id, so that equal ones are one; nil: none
	size        int                // bytes of names and of texts, as often as they are listed
}

// tree gathers the names below a tree.
func (g *gatherer) tree(ctx context.Context, b *bound, tree, mount string) error {
	unsafe, err := b.m.walk(ctx, tree, func(w walked) error {
		name := path.Join(mount, w.path)
		g.size += len(name)
		switch {
		case w.is(modeFolder):
			g.dirs[name] = true
		case w.is(modeLink):
			g.files[name] = true
			text, err := g.text(ctx, b.m, w.id)
			if err != nil {
				return err
			}
			if text != nil {
				g.links[name] = *text
				g.size += len(*text)
			}
		default:
			g.files[name] = true
		}
		if g.size > maxListed {
			return fmt.Errorf("names of files and texts of links have more than %d MiB",
				maxListed>>20)
		}
		return nil
	})
	if unsafe > 0 {
		g.s.once("names of files are unsafe or not UTF-8; they are left out", b.Label()+tree,
			"remote", b.Label(), "n", unsafe)
	}
	return err
}

// text returns the text of a link, or nil if it can't be one: it is not UTF-8, or no blob.
func (g *gatherer) text(ctx context.Context, m *mirror, id string) (*string, error) {
	if text, ok := g.texts[id]; ok {
		return text, nil
	}
	to, err := m.link(ctx, id)
	if err != nil && !errors.Is(err, errMissing) {
		return nil, err
	}
	var text *string
	if err == nil && utf8.ValidString(to) {
		text = &to
	}
	g.texts[id] = text
	return text, nil
}

// lists returns the sorted lists and about how many bytes they need.
func (g *gatherer) lists() (*lists, int) {
	l := &lists{Files: sorted(g.files), Dirs: sorted(g.dirs)}
	for _, name := range sorted(g.links) {
		l.Links = append(l.Links, value.Pair{Key: name, Value: g.links[name]})
	}
	cost := 256 + 64*len(l.Links)
	for _, list := range [][]string{l.Files, l.Dirs} {
		for _, name := range list {
			cost += len(name) + 16
		}
	}
	for _, text := range g.texts {
		if text != nil {
			cost += len(*text)
		}
	}
	return l, cost
}

// once logs a warning at its first occurrence.
func (s *Store) once(text, key string, args ...any) {
	if _, said := s.warned.LoadOrStore(text+key, true); !said {
		s.log.Warn(text, args...)
	}
}

// Find looks a file up: the first remote that has it wins.
func (s *Store) Find(ctx context.Context, name, env string) (fileserver.File, bool, error) {
	v := s.viewFor(ctx)
	for _, b := range v.files {
		mount := b.Mountpoint(env)
		if mount != "" && !strings.HasPrefix(name, mount+"/") || !v.asked(b, env) {
			continue
		}
		t, err := b.target(ctx, env)
		if err != nil {
			return nil, false, fmt.Errorf("remote %s: %w", b.Label(), err)
		}
		if t.tree == "" {
			continue
		}
		rel := path.Join(b.Root(env), strings.TrimLeft(strings.TrimPrefix(name, mount), "/"))
		n, err := b.m.follow(ctx, t.tree, rel)
		if errors.Is(err, errMissing) {
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("remote %s: %w", b.Label(), err)
		}
		return &content{s: s, m: b.m, node: n, env: env, rel: name}, true, nil
	}
	return nil, false, nil
}

// Forget drops all lists, because they are not kept by environment.
func (s *Store) Forget(env string) []string {
	s.caches.lists.clear()
	if env != "" {
		if _, in := slices.BinarySearch(s.Envs(), env); !in {
			return nil
		}
		return []string{env}
	}
	return s.Envs()
}

// content is a file of a repository.
type content struct {
	s        *Store
	m        *mirror
	node     node
	env, rel string
}

func (c *content) Path() string {
	return filepath.Join(c.s.opts.CacheDir, RoleFiles, "refs", c.env, c.rel)
}
func (c *content) Rel() string { return c.rel }
func (c *content) Stat() []any { return []any{int64(c.node.mode)} }

// opened is a content if it is small; else file is its path.
type opened struct {
	data []byte // not written to
	file string
}

// small opens the content. Those who ask for a new one at a time wait until one has extracted it.
func (c *content) small(ctx context.Context) (data []byte, file string, err error) {
	o, ok := c.kept()
	if !ok {
		o, err = c.s.opening.do(ctx, c.m.key+c.node.id, func() (opened, error) {
			if o, ok := c.kept(); ok {
				return o, nil
			}
			return c.extract(ctx)
		})
	}
	return o.data, o.file, err
}

// kept opens a content that was extracted before.
func (c *content) kept() (o opened, ok bool) {
	if data, ok := c.s.caches.blobs.get(c.node.id); ok {
		return opened{data: data}, true
	}
	data, large, err := readContent(c.stored())
	switch {
	case err != nil:
		return opened{}, false
	case large:
		return opened{file: c.stored()}, true
	}
	c.s.caches.blobs.put(c.node.id, data, len(data)+128)
	return opened{data: data}, true
}

// stored is the path of the content's file in the cache.
func (c *content) stored() string {
	return filepath.Join(c.s.caches.folder, c.node.id[:2], c.node.id)
}

// extract reads the content from the mirror, and writes its file.
func (c *content) extract(ctx context.Context) (o opened, err error) {
	isBlob, small := false, false
	err = c.m.object(ctx, c.node.id, func(_, kind string, size int64, from io.Reader) error {
		isBlob = kind == "blob"
		switch {
		case !isBlob: // the mode of its entry is wrong
			return nil
		case size <= smallContent:
			small, o.data = true, make([]byte, size)
			_, err := io.ReadFull(from, o.data)
			return err
		}
		if err := c.s.opts.Room(size); err != nil {
			c.s.once("a file of git is not served, because the disk has no room for it; free some space, or take the file out of the repository",
				c.node.id, "remote", c.m.remote.Label(), "env", c.env, "path", c.rel, "size", size,
				"err", err)
			return fmt.Errorf("%w: %w", fileserver.ErrAbsent, err)
		}
		o.file = c.stored()
		return writeContent(o.file, &whileRoom{from, c.s.opts.Low})
	})
	if err == nil && !isBlob {
		err = errMissing
	}
	err = c.m.expected(c.node.id, err)
	if errors.Is(err, errMissing) {
		err = fmt.Errorf("%w: %w", fileserver.ErrAbsent, err)
	}
	if err != nil || !small {
		return o, err
	}
	c.s.caches.blobs.put(c.node.id, o.data, len(o.data)+128)
	if c.s.opts.Low() == nil { // without the file it is read again from the mirror
		_ = writeContent(c.stored(), bytes.NewReader(o.data))
	}
	return o, nil
}

// readContent reads the file of a small content, or reports that it is large.
func readContent(file string) (data []byte, large bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > smallContent {
		return nil, err == nil, err
	}
	data = make([]byte, info.Size())
	_, err = io.ReadFull(f, data)
	return data, false, err
}

// whileRoom reads until the disk is almost full.
type whileRoom struct {
	io.Reader
	low func() error
}

func (w *whileRoom) Read(p []byte) (int, error) {
	if err := w.low(); err != nil {
		return 0, err
	}
	return w.Reader.Read(p)
}

// writeContent writes a file so that it exists either completely or not at all.
func writeContent(file string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (c *content) Piece(ctx context.Context, loc int64, n int) ([]byte, error) {
	data, file, err := c.small(ctx)
	if err != nil {
		return nil, err
	}
	if file == "" {
		from := min(loc, int64(len(data)))
		return data[from:min(from+int64(n), int64(len(data)))], nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, max(0, min(int64(n), info.Size()-loc)))
	got, err := f.ReadAt(buf, loc)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf[:got], err
}

func (c *content) Sum(ctx context.Context) (string, error) {
	sum, ok := c.s.caches.sums.get(c.node.id)
	if !ok {
		var err error
		sum, err = c.s.summing.do(ctx, c.m.key+c.node.id, func() ([]byte, error) {
			if sum, ok := c.s.caches.sums.get(c.node.id); ok {
				return sum, nil
			}
			sum, err := c.sum(ctx)
			if err == nil {
				c.s.caches.sums.put(c.node.id, sum)
			}
			return sum, err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum), nil
}

// sum hashes the content.
func (c *content) sum(ctx context.Context) ([]byte, error) {
	data, file, err := c.small(ctx)
	if err != nil {
		return nil, err
	}
	h := c.s.newHash()
	if file == "" {
		h.Write(data)
		return h.Sum(nil), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

func (c *content) Whole(ctx context.Context, most int64) ([]byte, error) {
	data, file, err := c.small(ctx)
	if err != nil || file == "" {
		return data, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("larger than %d bytes", most)
	}
	return os.ReadFile(file)
}

// contentAge is how long the file of a content is kept.
const contentAge = 24 * time.Hour

// dropContents removes old files of contents; they are made again when needed.
func (s *Store) dropContents(before time.Time) {
	folders, _ := os.ReadDir(s.caches.folder)
	for _, d := range folders {
		dir := filepath.Join(s.caches.folder, d.Name())
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if info, err := f.Info(); err == nil && info.ModTime().Before(before) {
				_ = os.Remove(filepath.Join(dir, f.Name()))
			}
		}
	}
}
