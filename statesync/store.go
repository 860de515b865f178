package statesync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"clustermaster/transport/pace"
)

// Env is one environment of a tree and its folders, from the configuration. A folder may be a
// pattern.
type Env struct {
	Name string
	Dirs []string
}

// anyEnv is the name of the environment that stands for unconfigured ones.
const anyEnv = "__env__"

// Options are a store's settings. Zero values mean the defaults.
type Options struct {
	ID     string // of this master, as shown to operators
	File   []Env  // file_roots
	Pillar []Env  // pillar_roots

	// Isolated says that the roots are this master's own, not on a file system that masters share
	// (option cluster_isolated_filesystem). Only such a master publishes its roots or gives them to
	// a joiner.
	Isolated bool

	Rate      int64         // bytes per second sent to other masters; 0: no limit
	Tick      time.Duration // between checks whether this master is behind; default 2 s
	KeepAside time.Duration // how long replaced items are kept; default 30 days
	BlobGrace time.Duration // how long unneeded contents are kept; default 1 hour
	// minimum age of a file's last change for its hash to be remembered; default 2 s
	Settle time.Duration
	// why this master accepts no more contents (its disk is almost full), or nil; default: always
	// nil
	Low         func() error
	OnInstalled func(t Tree) // called after an install changed roots; must not block

	fault func(step string) error // for tests: fail or die at a step
	// for tests: called with bytes read from the roots; may be nil
	reading func(n int64)
	room    func(path string) (uint64, error) // for tests: the free space
}

// Peers gives access to the other masters.
type Peers interface {
	Self() string      // node name of this master
	Members() []string // all nodes, this one included
	Alive(node string) bool
	Conn(node string) (grpc.ClientConnInterface, error)
}

// Heads is the agreed state of the heads.
type Heads interface {
	// Head returns the current head of a tree as this master knows it; false if none was published.
	Head(t Tree) (Head, bool)
	// Publish makes h the head if its Seq is the next one. Errors: ErrStale, or why the masters
	// can't agree.
	Publish(ctx context.Context, h Head) error
	// Refresh returns when Head is at least as new as anything published before the call.
	Refresh(ctx context.Context) error
	// Leader returns the node that leads.
	Leader() (node string, ok bool)
	// InRing reports whether this master holds a share of the data: it has joined, or founded the
	// cluster.
	InRing() bool
}

// ErrStale says that another master published a head meanwhile.
var ErrStale = errors.New("another master published at the same time")

// Store syncs this master's roots. It is safe for concurrent use.
type Store struct {
	opts    Options
	dir     string
	peers   Peers
	heads   Heads
	blobs   *blobs
	hashes  *hashes
	rate    *pace.Throttle
	log     *slog.Logger
	met     *metrics
	trees   map[Tree]*treeState
	kick    chan struct{}
	sends   chan struct{} // one slot for each master that gets contents
	holding chan struct{} // one slot for the hold under way
	pins    pins          // manifests whose contents a sync under way needs
	storing sync.RWMutex  // read-locked while contents without a manifest are stored
	syncMu  sync.Mutex    // held by Sync: one at a time on a master
}

// treeState is this master's state of one tree.
type treeState struct {
	tree Tree
	mu   sync.Mutex // held while the tree is installed or compared; lock it before show
	rec  *record    // changed with both locks held

	retryAt time.Time // when Run tries again after a failure
	pause   time.Duration

	show   sync.Mutex // guards all below, and rec for readers
	last   *Report    // of the last install
	lastOf Head       // what it installed
	moved  moved
	wrong  string    // why this master is behind
	work   *progress // of Run's fetching; nil: none
}

// moved counts the bytes fetched for a manifest.
type moved struct {
	manifest Sum
	n        int64
}

func (t *treeState) setRecord(r *record) {
	t.show.Lock()
	t.rec = r
	t.show.Unlock()
}

func (t *treeState) record() *record {
	t.show.Lock()
	defer t.show.Unlock()
	return t.rec
}

func (t *treeState) addMoved(manifest Sum, n int64) {
	t.show.Lock()
	defer t.show.Unlock()
	if t.moved.manifest != manifest {
		t.moved = moved{manifest: manifest}
	}
	t.moved.n += n
}

// takeMoved returns the bytes fetched for a manifest since the last call.
func (t *treeState) takeMoved(manifest Sum) int64 {
	t.show.Lock()
	defer t.show.Unlock()
	if t.moved.manifest != manifest {
		return 0
	}
	n := t.moved.n
	t.moved = moved{}
	return n
}

func (t *treeState) setLast(r *Report, h Head) {
	t.show.Lock()
	defer t.show.Unlock()
	t.last, t.lastOf = r, h
}

// lastInstall returns the report of this process's last install if it was of that head.
func (t *treeState) lastInstall(h Head) (*Report, bool) {
	t.show.Lock()
	defer t.show.Unlock()
	return t.last, t.last != nil && t.lastOf.is(h)
}

// setTrouble reports whether the trouble is new.
func (t *treeState) setTrouble(text string) bool {
	t.show.Lock()
	defer t.show.Unlock()
	was := t.wrong
	t.wrong = text
	return was != text
}

func (t *treeState) trouble() string {
	t.show.Lock()
	defer t.show.Unlock()
	return t.wrong
}

func (t *treeState) setFetching(p *progress) {
	t.show.Lock()
	defer t.show.Unlock()
	t.work = p
}

func (t *treeState) fetching() *progress {
	t.show.Lock()
	defer t.show.Unlock()
	return t.work
}

// Open opens the store: blobs below dir/blobs, records below dir/roots. It finishes an interrupted
// install; if that fails, Run tries again.
func Open(dir string, peers Peers, heads Heads, o Options, log *slog.Logger,
	reg prometheus.Registerer) (*Store, error) {
	setDefault(&o.Tick, 2*time.Second)
	setDefault(&o.KeepAside, 30*24*time.Hour)
	setDefault(&o.BlobGrace, time.Hour)
	setDefault(&o.Settle, 2*time.Second)
	if o.Low == nil {
		o.Low = func() error { return nil }
	}
	if o.room == nil {
		o.room = room
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		opts: o, dir: filepath.Join(dir, "roots"), peers: peers, heads: heads,
		rate: pace.NewThrottle(o.Rate), log: log.With("component", "statesync"),
		trees: make(map[Tree]*treeState), kick: make(chan struct{}, 1),
		sends: make(chan struct{}, maxSends), holding: make(chan struct{}, 1),
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("open state sync: %w", err)
	}
	var err error
	if s.blobs, err = openBlobs(filepath.Join(dir, "blobs")); err != nil {
		return nil, err
	}
	s.blobs.low = o.Low
	s.hashes = loadHashes(filepath.Join(s.dir, "hashes"), o.Settle)
	for _, tree := range []Tree{FileRoots, PillarRoots} {
		rec, err := readRecord(s.recordFile(tree), tree)
		if err != nil {
			return nil, fmt.Errorf("open state sync: %w", err)
		}
		t := &treeState{tree: tree, rec: rec}
		s.trees[tree] = t
		if err := s.replay(t); err != nil {
			t.wrong = err.Error()
			s.log.Warn("interrupted install can't be finished yet", "tree", tree.String(),
				"err", err)
		}
	}
	s.met = newMetrics(reg, s)
	return s, nil
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// fault lets tests make steps fail.
func (s *Store) fault(step string) error {
	if s.opts.fault == nil {
		return nil
	}
	return s.opts.fault(step)
}

// Kick makes Run look at once, and retry failures: a head changed, or a master came back.
func (s *Store) Kick() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Store) envs(t Tree) []Env {
	if t == PillarRoots {
		return s.opts.Pillar
	}
	return s.opts.File
}

// dirOf returns the folder of a root in this master's configuration.
func (s *Store) dirOf(t Tree, sc Scope) (string, bool) {
	dir, _, ok := s.place(t, sc)
	return dir, ok
}

// place is dirOf, and returns for a root of "__env__", or of a pattern, the folder that all its
// environments, or matches, are in; "": the root has a path of its own.
func (s *Store) place(t Tree, sc Scope) (dir, envs string, ok bool) {
	var wild *Env
	env, name, named := sc.cut()
	for i, e := range s.envs(t) {
		if e.Name == sc.Env && e.Name != anyEnv {
			if sc.Root < e.plain() {
				return filepath.Clean(e.Dirs[sc.Root]), "", true
			}
			return "", "", false
		}
		if named && e.Name == env && e.Name != anyEnv {
			return e.match(name, sc.Root)
		}
		if e.Name == anyEnv {
			wild = &s.envs(t)[i]
		}
	}
	if wild == nil || sc.Root >= wild.plain() || !safeEnv(sc.Env) {
		return "", "", false
	}
	envs, _, _ = cutAny(wild.Dirs[sc.Root])
	return filepath.Clean(strings.ReplaceAll(wild.Dirs[sc.Root], anyEnv, sc.Env)), envs, true
}

// cutAny splits the path of a root at the folder "__env__"; false if it has none.
func cutAny(dir string) (envs, below string, ok bool) {
	envs, below, ok = strings.Cut(filepath.Clean(dir)+"/", "/"+anyEnv+"/")
	if !ok {
		return "", "", false
	}
	return filepath.Clean(envs + "/"), below, true
}

// safeEnv reports whether a name from another master may be put into the path of a root.
func safeEnv(env string) bool {
	return env != "" && env != "." && env != ".." && env != anyEnv && len(env) <= maxName &&
		!strings.ContainsAny(env, "/\\\x00") && !skippedDir(env)
}

// scopes lists the roots of this master, of one environment or all. "__env__" stands for each
// environment that has a folder.
func (s *Store) scopes(t Tree, env string) []Scope {
	var out []Scope
	named := make(map[string]bool)
	for _, e := range s.envs(t) {
		named[e.Name] = true
	}
	seen := make(map[string]bool)
	add := func(name string, e *Env) {
		if env != "" && name != env || seen[name] {
			return
		}
		seen[name] = true
		for i := range e.plain() {
			out = append(out, Scope{name, i})
		}
		if name == e.Name {
			out = append(out, e.further()...)
		}
	}
	for _, e := range s.envs(t) {
		if e.Name != anyEnv {
			add(e.Name, &e)
			continue
		}
		for _, dir := range e.Dirs {
			envs, below, ok := cutAny(dir)
			if !ok {
				continue
			}
			entries, err := os.ReadDir(envs)
			if err != nil {
				continue
			}
			for _, f := range entries {
				if st, err := os.Stat(filepath.Join(envs, f.Name(), below)); err == nil &&
					st.IsDir() && !named[f.Name()] && safeEnv(f.Name()) {
					add(f.Name(), &e)
				}
			}
		}
	}
	return out
}
