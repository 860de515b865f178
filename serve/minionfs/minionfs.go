// Package minionfs serves the files that minions pushed (cp.push) to other minions: the back end
// minionfs of the file server (salt.fileserver.minionfs).
//
// Lives here: names, lists and contents of pushed files as the file server asks for them.
//
// Does not: keep the files (package uploads), decide who may push (package master).
//
// Guarantee: a file is served through every master once it was pushed wholly through any.
package minionfs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/serve/fileserver"
	"clustermaster/store/ringstore"
	"clustermaster/store/uploads"
	"clustermaster/value/hashtype"
	"clustermaster/value/pyregex"
)

// Name is the back end's name in the option fileserver_backend.
const Name = "minionfs"

const (
	// listed is for how long a list is kept: minions that run one job ask for it all at once.
	listed = time.Second
	// maxSums bounds the hashes that are kept.
	maxSums = 4096
)

// Options say what is served where.
type Options struct {
	Env          string   // minionfs_env
	Mountpoint   string   // minionfs_mountpoint; salt:// in front of it is dropped
	White, Black []string // minionfs_whitelist, minionfs_blacklist: minions whose files are served
	HashType     string   // hash_type
	Dir          string   // where Salt keeps pushed files: paths are said to lie below it
	// Ignored applies file_ignore_regex and file_ignore_glob.
	Ignored func(path string) bool
}

// files are what this package needs of the pushed files.
type files interface {
	List(ctx context.Context, fn func(uploads.File)) (ringstore.Coverage, error)
	Open(ctx context.Context, id, path string) (*uploads.Content, error)
}

// Server is the back end. It is safe for concurrent use.
type Server struct {
	opts    Options
	mount   string // "" or ends with a slash
	files   files
	newHash func() hash.Hash

	mu    sync.Mutex
	lists fileserver.Lists
	until time.Time         // lists are kept
	sums  map[string]string // of contents, by path and version
}

var _ fileserver.Backend = (*Server)(nil)

// New makes the back end; an unknown hash type is an error.
func New(o Options, pushed files) (*Server, error) {
	newHash, err := hashtype.Of(o.HashType)
	if err != nil {
		return nil, err
	}
	mount := strings.Trim(strings.TrimPrefix(o.Mountpoint, "salt://"), "/")
	if mount != "" {
		mount += "/"
	}
	return &Server{opts: o, mount: mount, files: pushed, newHash: newHash,
		sums: make(map[string]string)}, nil
}

// Name implements fileserver.Backend, as do the next ones.
func (*Server) Name() string { return Name }

// Envs is minionfs_env.
func (s *Server) Envs() []string { return []string{s.opts.Env} }

// Forget drops the list.
func (s *Server) Forget(env string) []string {
	if env != "" && env != s.opts.Env {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
	return s.Envs()
}

// exposed tells whether a file is listed.
func (s *Server) exposed(id, name string) bool {
	return pyregex.Exposed(id, s.opts.White, s.opts.Black) && !s.opts.Ignored(s.path(id, name))
}

func (s *Server) path(id, name string) string {
	return filepath.Join(s.opts.Dir, id, "files", name)
}

// Lists walks over all pushed files, once a second at most.
func (s *Server) Lists(ctx context.Context, env string) (fileserver.Lists, error) {
	if env != s.opts.Env {
		return fileserver.Lists{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return s.lists, nil
	}
	var l fileserver.Lists
	dirs := make(map[string]bool)
	cover, err := s.files.List(ctx, func(f uploads.File) {
		if !s.exposed(f.ID, f.Path) {
			return
		}
		full := s.mount + f.ID + "/" + f.Path
		l.Files = append(l.Files, full)
		for d := path.Dir(f.Path); d != "."; d = path.Dir(d) {
			dirs[s.mount+f.ID+"/"+d] = true
		}
	})
	if err != nil {
		return l, fmt.Errorf("list pushed files: %w", err)
	}
	if !cover.Complete() {
		return l, fmt.Errorf("list pushed files: %v", cover)
	}
	for d := range dirs {
		l.Dirs = append(l.Dirs, d)
	}
	slices.Sort(l.Files)
	slices.Sort(l.Dirs)
	s.lists, s.until = l, time.Now().Add(listed)
	return l, nil
}

// Find looks up mountpoint/minion/path; what it finds is named without the mount point, as with
// Salt. A top file is listed but not served, as with Salt: a minion
// must not decide the states of others.
func (s *Server) Find(ctx context.Context, name, env string) (fileserver.File, bool, error) {
	rest, ok := strings.CutPrefix(name, s.mount)
	if !ok || env != s.opts.Env {
		return nil, false, nil
	}
	id, pushed, ok := strings.Cut(rest, "/")
	if !ok || path.Base(pushed) == "top.sls" || !s.exposed(id, pushed) {
		return nil, false, nil
	}
	c, err := s.files.Open(ctx, id, pushed)
	if errors.Is(err, uploads.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return &file{s: s, c: c, path: s.path(id, pushed), rel: rest}, true, nil
}

// file is a pushed file.
type file struct {
	s         *Server
	c         *uploads.Content
	path, rel string
}

func (f *file) Path() string { return f.path }
func (f *file) Rel() string  { return f.rel }

// Stat has the mode of Salt's copies, for a minion does not send the mode of its own. It lies in no
// file system, so inode, device and owner are 0.
func (f *file) Stat() []any {
	at := f.c.At().Unix()
	return []any{int64(0o100644), int64(0), int64(0), int64(1), int64(0), int64(0), f.c.Size(), at,
		at, at}
}

func (f *file) Piece(ctx context.Context, loc int64, n int) ([]byte, error) {
	return f.c.Piece(ctx, loc, n)
}

// Sum reads the whole file once after each push.
func (f *file) Sum(ctx context.Context) (string, error) {
	key := f.rel + "\x00" + f.c.Version()
	f.s.mu.Lock()
	sum, ok := f.s.sums[key]
	f.s.mu.Unlock()
	if ok {
		return sum, nil
	}
	h := f.s.newHash()
	const step = 1 << 20
	for loc := int64(0); loc < f.c.Size(); {
		b, err := f.c.Piece(ctx, loc, step)
		if err != nil {
			return "", err
		}
		h.Write(b)
		loc += int64(len(b))
	}
	sum = hex.EncodeToString(h.Sum(nil))
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if len(f.s.sums) >= maxSums {
		clear(f.s.sums)
	}
	f.s.sums[key] = sum
	return sum, nil
}

func (f *file) Whole(ctx context.Context, most int64) ([]byte, error) {
	if f.c.Size() > most {
		return nil, fmt.Errorf("larger than %d bytes", most)
	}
	return f.c.Piece(ctx, 0, int(f.c.Size()))
}
