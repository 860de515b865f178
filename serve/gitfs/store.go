package gitfs

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"clustermaster/transport/pace"
	"clustermaster/value"
	"clustermaster/value/hashtype"
)

// Options are the settings of a Store.
type Options struct {
	Dir      string // of mirrors and caches
	CacheDir string // cachedir: messages name files below it, as in Salt
	Git      string // the program; "" is the one in PATH
	Files    Config // role gitfs
	Pillars  []Config
	HashType string        // option hash_type; "" is sha256
	Timeout  time.Duration // of one run of git; 0 is 10 minutes
	Rate     int64         // bytes per second to other masters; 0: no limit
	Signers  string        // allowed signers file of ssh-keygen; "": all commits are accepted
	// KnownHosts is a file with the host keys of servers reached over ssh; "": ssh's default.
	KnownHosts string
	// JobFunctions are globs of the functions whose files come from the commits at the start of the
	// job; JobLimit is how long at most, 0 an hour.
	JobFunctions []string
	JobLimit     time.Duration
	Tick         time.Duration // interval of the leader's checks; 0 is one second
	// Low returns why nothing may be written now; nil: the disk has room.
	Low func() error
	// Room returns why so many bytes more may not be written; nil: they fit.
	Room func(bytes int64) error
	// Changed is called for each change of role gitfs that this master published.
	Changed func()
}

// Store keeps the mirrors of all remotes and serves files from them. It is safe for concurrent use.
type Store struct {
	opts    Options
	log     *slog.Logger
	git     *program
	caches  *caches
	files   []*Remote
	pillars []pillarGroup
	mirrors map[string]*mirror
	keys    []string // of mirrors, sorted
	with    Agreement
	peers   Peers

	looking   sync.Mutex // held while making the view
	view      atomic.Pointer[view]
	jobs      *jobs
	kick      chan struct{}
	fetching  places // from remotes
	retrying  places // of these, from remotes that hung
	gathering places // from other masters
	tidying   places
	listing   flights[*lists]
	opening   flights[opened] // by mirror and id
	summing   flights[[]byte]
	warned    sync.Map // texts that are logged once
	rate      *pace.Throttle
	newHash   func() hash.Hash
	dropping  sync.WaitGroup // of old contents
	asking    sync.WaitGroup // for fetches of missing branches
	firstWait time.Duration  // the constant, but for tests
	life      context.Context
	end       context.CancelFunc // of life
	calm      atomic.Bool        // everything agreed on is served here

	fetches, failures, requests prometheus.Counter
	moved, missing              *prometheus.CounterVec
}

// Peers are the other masters.
type Peers interface {
	Self() string
	Members() []string // nodes, including this one
	Alive(node string) bool
	Conn(node string) (grpc.ClientConnInterface, error)
}

// Agreement is the replicated state about git.
type Agreement interface {
	// Tables returns what to serve of each mirror, by key.
	Tables() map[string]Table
	// Publish replaces refs of a mirror; seq is the number of the change. It returns ErrStale if
	// another change came first.
	Publish(ctx context.Context, key string, seq uint64, put Refs, drop []string) error
	// Pin sets or removes a pin (commit "" removes it); Lock sets or removes the lock against
	// fetches.
	Pin(ctx context.Context, key, env, commit, by string) error
	Lock(ctx context.Context, key string, on bool) error
	// Leading reports whether this master fetches; Leader names the node that does.
	Leading() bool
	Leader() (node string, ok bool)
	// Voters lists the nodes of the masters with a vote.
	Voters() []string
	// Refresh waits until this master has the leader's state.
	Refresh(ctx context.Context) error
}

// Table is the agreement of the masters on one mirror.
type Table struct {
	Seq    uint64
	Refs   Refs
	Before map[string][]string // earlier commits per ref, the newest first
	Pins   map[string]Pin      // by environment
	Locked bool
	At     time.Time
}

// Pin keeps an environment at a commit.
type Pin struct {
	Commit, By string
	At         time.Time
}

// ErrStale means that another change was published first.
var ErrStale = errors.New("something newer was published meanwhile")

// New opens the mirrors of all remotes. The problems are those of remotes that it leaves out; the
// error means that nothing can be served from git.
func New(o Options, with Agreement, peers Peers, log *slog.Logger,
	reg prometheus.Registerer) (*Store, []Problem, error) {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Tick <= 0 {
		o.Tick = time.Second
	}
	if o.JobLimit <= 0 {
		o.JobLimit = time.Hour
	}
	if o.Low == nil {
		o.Low = func() error { return nil }
	}
	if o.Room == nil {
		o.Room = func(int64) error { return nil }
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	newHash, err := hashtype.Of(o.HashType)
	if err != nil {
		return nil, nil, err
	}
	git, err := newProgram(o.Git, o.Dir, o.Timeout)
	if err != nil {
		return nil, nil, err
	}
	git.knownHosts = o.KnownHosts
	s := &Store{
		opts: o, log: log.With("component", "gitfs"), git: git,
		caches:  newCaches(filepath.Join(o.Dir, "blobs"), newHash().Size()),
		mirrors: make(map[string]*mirror), with: with, peers: peers, kick: make(chan struct{}, 1),
		rate: pace.NewThrottle(o.Rate), newHash: newHash, jobs: newJobs(), firstWait: firstWait,
		fetching: make(places, parallelFetches), retrying: make(places, parallelRetries),
		gathering: make(places, parallelFetches), tidying: make(places, 1),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.dropAll()
	if err := os.MkdirAll(s.caches.folder, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make folder for contents: %w", err)
	}
	var problems []Problem
	s.files, problems = Parse(o.Files)
	for _, c := range o.Pillars {
		remotes, more := Parse(c)
		problems = append(problems, more...)
		s.pillars = append(s.pillars, pillarGroup{conf: c.confKey(), remotes: remotes})
	}
	all := slices.Clone(s.files)
	for _, g := range s.pillars {
		all = append(all, g.remotes...)
	}
	ctx := context.Background()
	for _, r := range all {
		if s.mirrors[r.key] != nil {
			continue
		}
		m, err := openMirror(ctx, git, s.caches, filepath.Join(o.Dir, "mirrors"), r)
		if err != nil {
			return nil, problems, fmt.Errorf("open mirror of %s: %w", r.Label(), err)
		}
		if seq, refs, ok := m.loadServed(); ok && len(m.lacks(refs.tips())) == 0 {
			m.served, m.seq = refs, seq
		}
		s.mirrors[r.key] = m
	}
	s.keys = slices.Sorted(maps.Keys(s.mirrors))
	s.register(reg)
	s.look()
	return s, problems, nil
}

func (s *Store) register(reg prometheus.Registerer) {
	s.fetches = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "clustermaster_git_fetches_total", Help: "Fetches from remotes that succeeded.",
	})
	s.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "clustermaster_git_fetch_errors_total", Help: "Fetches from remotes that failed.",
	})
	s.requests = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "clustermaster_git_published_total",
		Help: "Changes of commits that this master published.",
	})
	s.moved = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "clustermaster_git_pack_bytes_total", Help: "Bytes of packs moved between masters.",
	}, []string{"direction"})
	s.missing = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "clustermaster_git_missing_branches_total",
		Help: "Pillars from a branch that is not there, by result: fetched, waited (for the fetch of another one), limited.",
	}, []string{"result"})
	damaged := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "clustermaster_git_damaged_mirrors",
		Help: "Mirrors with missing or corrupt objects that were not fetched anew yet.",
	}, func() (n float64) {
		for _, m := range s.mirrors {
			if m.broken.Load() {
				n++
			}
		}
		return n
	})
	if reg != nil {
		reg.MustRegister(s.fetches, s.failures, s.requests, s.moved, s.missing, damaged)
	}
}

// dropAll drops the contents of an earlier run, which a crash of the machine may have truncated.
func (s *Store) dropAll() {
	old := s.caches.folder + ".old"
	if err := os.MkdirAll(old, 0o700); err != nil {
		return // the next step gives the reason
	}
	_ = os.Rename(s.caches.folder, filepath.Join(old, fmt.Sprint(time.Now().UnixNano())))
	s.dropping.Go(func() { _ = os.RemoveAll(old) })
}

// Close ends fetches for missing branches and the git processes that read.
func (s *Store) Close() {
	s.end()
	s.asking.Wait()
	s.dropping.Wait()
	for _, m := range s.mirrors {
		m.restAll()
	}
}

// view is everything served at one moment.
type view struct {
	name  string // the same on masters that serve the same
	files []*bound
	by    map[*Remote]*bound
	envs  []string
}

// bound is a remote with the commits that it is served from.
type bound struct {
	*Remote
	m    *mirror
	refs Refs
	pins map[string]Pin
	// the masters have agreed on refs, and this one has none of their commits yet: nobody can say
	// what is not found
	awaited bool
	// commits that requests may name by their ids: with git_allowed_signers the present and earlier
	// commits of refs, else nil for all
	known   map[string]bool
	targets sync.Map // environment to target
	kept    atomic.Int32
}

// errAwaited means that a remote was fetched by another master, but is not here yet.
var errAwaited = errors.New("this master does not have the commits yet that the others serve; ask again")

// target is the source of an environment of a remote; the zero value means none.
type target struct{ commit, tree string }

// look makes a new view if what is served has changed.
func (s *Store) look() {
	s.looking.Lock()
	defer s.looking.Unlock()
	tables := s.with.Tables()
	seqs, served := make(map[string]uint64), make(map[string]Refs)
	held := make(map[string]map[string]Pin)
	awaited := make(map[string]bool)
	for _, key := range s.keys {
		m := s.mirrors[key]
		m.mu.Lock()
		seqs[key], served[key] = m.seq, m.served
		m.mu.Unlock()
		awaited[key] = served[key] == nil && tables[key].Seq > 0
		held[key] = make(map[string]Pin)
		for env, pin := range tables[key].Pins {
			if len(m.lacks([]string{pin.Commit})) == 0 {
				held[key][env] = pin
			}
		}
	}
	v := &view{name: nameOf(s.keys, seqs, held, awaited), by: make(map[*Remote]*bound)}
	if was := s.view.Load(); was != nil && was.name == v.name {
		return // its results stay valid
	}
	bind := func(r *Remote) *bound {
		b := &bound{Remote: r, m: s.mirrors[r.key], refs: served[r.key], pins: held[r.key],
			awaited: awaited[r.key]}
		if s.opts.Signers != "" {
			b.known = known(b.refs, tables[r.key].Before)
		}
		v.by[r] = b
		return b
	}
	for _, r := range s.files {
		v.files = append(v.files, bind(r))
	}
	for _, g := range s.pillars {
		for _, r := range g.remotes {
			bind(r)
		}
	}
	v.envs = envsOf(v.files)
	s.view.Store(v)
	s.jobs.saw(v)
}

// known returns the commits of refs, present and earlier.
func known(refs Refs, before map[string][]string) map[string]bool {
	ids := make(map[string]bool)
	for _, id := range refs {
		ids[id] = true
	}
	for _, list := range before {
		for _, id := range list {
			ids[id] = true
		}
	}
	return ids
}

// adopt serves what was agreed on, as far as it is here. It reports whether all of it is.
func (s *Store) adopt() bool {
	all := true
	tables := s.with.Tables()
	for _, key := range s.keys {
		m, t := s.mirrors[key], tables[key]
		if t.Seq == 0 {
			continue
		}
		for _, pin := range t.Pins {
			if len(m.lacks([]string{pin.Commit})) > 0 {
				all = false
			}
		}
		m.mu.Lock()
		current := m.seq == t.Seq && m.served != nil
		m.mu.Unlock()
		if current {
			continue
		}
		if len(m.lacks(t.Refs.tips())) > 0 {
			all = false
			continue
		}
		s.serve(m, t)
	}
	s.look() // pins may have changed
	s.calm.Store(all)
	return all
}

// serve puts in force what was agreed on, which the mirror has.
func (s *Store) serve(m *mirror, t Table) {
	m.mu.Lock()
	m.served, m.seq = t.Refs, t.Seq
	m.mu.Unlock()
	if err := m.saveServed(t.Seq, t.Refs); err != nil {
		s.log.Warn("served commits not saved to disk; a restart reads them from the cluster's state",
			"remote", m.remote.Label(), "err", err)
	}
}

// Follow must be called whenever the agreement has changed.
func (s *Store) Follow() {
	if !s.adopt() {
		s.Kick()
	}
}

// Kick makes Run check now.
func (s *Store) Kick() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Behind reports whether something agreed on is missing here.
func (s *Store) Behind() bool { return !s.calm.Load() }

// confKey identifies a list of remotes.
func (c Config) confKey() string {
	if c.Shown != nil {
		return confKey(c.Shown)
	}
	return confKey(c.Remotes)
}

func confKey(remotes []any) string {
	b, err := value.Pack(remotes)
	if err != nil {
		return fmt.Sprint(remotes)
	}
	return string(b)
}
