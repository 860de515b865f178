package fileserver

import (
	"context"
	"fmt"
	"hash"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/value/hashtype"
	"clustermaster/value/pyregex"
)

// Env is one environment of file_roots: the first root that has a path wins.
type Env struct {
	Name  string
	Roots []string
}

// Options are the master options that the roots backend depends on.
type Options struct {
	// file_roots, in the config's order; an Env "__env__" stands for all that are not there
	Roots          []Env
	IgnoreRegex    []string // file_ignore_regex
	IgnoreGlob     []string // file_ignore_glob
	FollowSymlinks bool     // fileserver_followsymlinks; Salt's default is true
	IgnoreSymlinks bool     // fileserver_ignoresymlinks
	HashType       string   // hash_type; "" is sha256
	BufferSize     int      // file_buffer_size in bytes; 0 is 1 MiB
}

// StagingDir is the folder in a root where contents for it are prepared and replaced ones kept
// (package statesync). Nothing below a folder of that name is found or listed.
const StagingDir = ".clustermaster-staging"

// anyEnv is the name of the environment that stands for those that are not configured.
const anyEnv = "__env__"

// Bounds.
const (
	maxListed      = 1 << 20 // entries of one environment's lists
	maxDepth       = 128     // folders below each other
	maxListedEnvs  = 256     // environments whose lists are kept
	maxHashes      = 1 << 16 // hashes kept
	maxPath        = 4096    // bytes of a path that is asked for
	parallelHashes = 4       // files hashed at a time
)

// Server is the file server. It is safe for concurrent use.
type Server struct {
	opts    Options
	log     *slog.Logger
	order   []Backend // in which files are looked up
	newHash func() hash.Hash
	hashing chan struct{}

	ignoring sync.Mutex // the compiled expressions are for one goroutine
	ignore   []func(string) bool

	mu    sync.Mutex // guards lists
	lists map[string]*listing

	lookMu sync.Mutex        // guards seen
	seen   map[string]string // path to time of the last look

	contents contents

	hashMu sync.Mutex // guards hashes
	hashes map[string]hashed

	served prometheus.Counter
	bytes  prometheus.Counter
	walks  prometheus.Counter
	hashed prometheus.Counter
	kept   prometheus.Counter
}

// New makes a file server. It fails on an unknown hash_type and on expressions that don't compile.
func New(o Options, log *slog.Logger, reg prometheus.Registerer) (*Server, error) {
	if o.BufferSize <= 0 {
		o.BufferSize = 1 << 20
	}
	if o.HashType == "" {
		o.HashType = "sha256"
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		opts: o, log: log.With("component", "fileserver"),
		hashing: make(chan struct{}, parallelHashes),
		lists:   make(map[string]*listing), hashes: make(map[string]hashed),
		served: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_fileserver_requests_total", Help: "File requests of minions.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_fileserver_sent_bytes_total",
			Help: "Bytes of files sent to minions, before compression.",
		}),
		walks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_fileserver_walks_total",
			Help: "Times that an environment's files were listed on disk.",
		}),
		hashed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_fileserver_hashed_files_total",
			Help: "Files that were hashed: once per change.",
		}),
		kept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_fileserver_kept_reads_total",
			Help: "Pieces of files that were served from memory.",
		}),
	}
	var err error
	if s.newHash, err = hashtype.Of(o.HashType); err != nil {
		return nil, err
	}
	for _, expr := range o.IgnoreRegex {
		test, ok := pyregex.Forbids(expr)
		if !ok {
			return nil, fmt.Errorf("file_ignore_regex %q: not a regular expression", expr)
		}
		s.ignore = append(s.ignore, test)
	}
	if reg != nil {
		reg.MustRegister(s.served, s.bytes, s.walks, s.hashed, s.kept,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "clustermaster_fileserver_kept_bytes",
				Help: fmt.Sprintf("Bytes of small files kept in memory, at most %d.", maxKept),
			}, func() float64 { return float64(s.contents.size()) }))
	}
	s.Use([]string{Roots})
	return s, nil
}

// Envs lists the environments of all back ends.
func (s *Server) Envs() []string { return s.EnvsOf(nil) }

// rootEnvs lists the environments of file_roots as configured.
func (s *Server) rootEnvs() []string {
	out := make([]string, len(s.opts.Roots))
	for i, e := range s.opts.Roots {
		out[i] = e.Name
	}
	return out
}

// Serve answers one file command.
func (s *Server) Serve(ctx context.Context, cmd string, load value.Map) (any, error) {
	s.served.Inc()
	switch cmd {
	case "_file_envs":
		return s.Envs(), nil
	case "_file_list":
		return s.list(ctx, load, func(l Lists) []string { return l.Files })
	case "_file_list_emptydirs":
		return s.list(ctx, load, func(l Lists) []string { return l.EmptyDirs })
	case "_dir_list":
		return s.list(ctx, load, func(l Lists) []string { return l.Dirs })
	case "_symlink_list":
		return s.links(ctx, load)
	case "_file_find":
		return s.fileFind(ctx, load)
	case "_file_hash":
		return s.fileHash(ctx, load)
	case "_file_hash_and_stat":
		return s.hashAndStat(ctx, load)
	case "_serve_file":
		return s.serveFile(ctx, load)
	}
	return nil, fmt.Errorf("file command %q: unknown", cmd)
}

// roots returns the folders of an environment.
func (s *Server) roots(env string) []string {
	if roots, ok := s.named(env); ok {
		return roots
	}
	roots, ok := s.named(anyEnv)
	if !ok || !safeEnv(env) {
		return nil
	}
	out := make([]string, len(roots))
	for i, r := range roots {
		out[i] = strings.ReplaceAll(r, anyEnv, env)
	}
	return out
}

func (s *Server) named(env string) ([]string, bool) {
	i := slices.IndexFunc(s.opts.Roots, func(e Env) bool { return e.Name == env })
	if i < 0 {
		return nil, false
	}
	return s.opts.Roots[i].Roots, true
}

// safeEnv reports whether a name may be put into the path of a root: it must not lead elsewhere.
func safeEnv(env string) bool {
	if env == "" || len(env) > 255 || strings.ContainsAny(env, "\x00\\") || env[0] == '/' {
		return false
	}
	for _, part := range strings.Split(env, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// staged reports whether a path relative to a root leads to where contents are prepared.
func staged(rel string) bool { return slices.Contains(strings.Split(rel, "/"), StagingDir) }

// Ignored applies file_ignore_regex and file_ignore_glob, for other back ends.
func (s *Server) Ignored(path string) bool { return s.ignored(path) }

// ignored applies file_ignore_regex and file_ignore_glob.
func (s *Server) ignored(path string) bool {
	if len(s.ignore) > 0 {
		s.ignoring.Lock()
		defer s.ignoring.Unlock()
		for _, test := range s.ignore {
			if test(path) {
				return true
			}
		}
	}
	return slices.ContainsFunc(s.opts.IgnoreGlob,
		func(glob string) bool { return fnmatch.Match(glob, path) })
}
