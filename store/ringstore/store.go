package ringstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/memory"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/query"
	"clustermaster/store/ringstore/remote"
	"clustermaster/store/ringstore/rings"
	"clustermaster/store/seal"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// Peers is the cluster as the store sees it. The store calls all methods often, from many
// goroutines. They must not block, except Conn, which may dial.
type Peers interface {
	// Self returns this master's node name ("id/incarnation").
	Self() string
	// Ring returns the newest ring that the cluster agreed on; nil if this master is in no cluster.
	Ring() *hashring.Ring
	// Conn returns a connection to another master.
	Conn(node string) (grpc.ClientConnInterface, error)
	// Alive reports whether another master is reachable now.
	Alive(node string) bool
	// Members returns the nodes of the cluster, in the ring or not, reachable or not.
	Members() []string
	// QuorumNeedsSelf reports whether this master is a member, and the others have no quorum
	// without it.
	QuorumNeedsSelf() bool
	// Disowned reports whether a member has refused this master's node key and not answered since:
	// this master may have been removed, and not know it yet.
	Disowned() bool
}

// Options bound and time the store. The zero value of each field means the default.
type Options struct {
	// width of the buckets in which expired records are dropped; default 1 h, best
	// keep_jobs_seconds/24
	BucketWidth  time.Duration
	TombstoneFor time.Duration // ring_tombstone_seconds; default 72 h
	WriteTimeout time.Duration // of one RPC that writes; default 5 s
	// of one read, and the longest silence within a list or scan; default 10 s
	ReadTimeout  time.Duration
	ReadyTimeout time.Duration // how long a member's operation waits for the first ring; default 5 s
	// of a whole list or scan of another master; default 10 min
	StreamTimeout time.Duration
	StatusEvery   time.Duration // between status requests to each other master; default 1 s
	// between comparisons with all others when none was away; default 10 min
	RepairEvery time.Duration
	ExpireEvery time.Duration // between checks for buckets that have ended; default 1 min
	// cluster_transfer_rate, bytes per second fetched for repair and ring changes; default 64 MiB
	TransferRate int64
	ScrubEvery   time.Duration // between two reads of all records that find rot; default 24 h
	ScrubRate    int64         // bytes per second read for that; default 4 MiB
	// bytes of one value; default 160 MiB: max_frame_size and what surrounds it
	MaxRecord int
	// bytes of the answer to one List; default 512 MiB, at most a 16th of the runtime's limit
	MaxList       int
	WriteQueue    int   // writes that wait for the disk; default 4096
	LaneRecords   int   // records that wait for one other master; default 16384
	LaneBytes     int64 // bytes that wait for one other master; default 64 MiB
	Streams       int   // reads and scans served to other masters at once; default 64
	CacheBytes    int64 // Pebble's block cache; default 4 MiB
	MemTableBytes int   // one of at most three; default 4 MiB
	Now           func() time.Time
	// reports whether Now was compared with the other masters' clocks; until then nothing is
	// dropped for its age, nothing fetched, and nothing answered from this disk; default: always
	// true
	ClockJudged func() bool
	Tick        time.Duration // interval of the loops in Run; default 200 ms
	WriteRPCs   int           // running writes to one other master; default 2
	// between a write's checks whether the owners that it waits for are alive; default 50 ms
	LookAgain       time.Duration
	RepairsInFlight int // running read repairs; default 64
	// returns why this disk takes no more records (it is almost full, or hangs), or nil; default:
	// always nil
	Room func() error
	// called when a write begins to wait for the disk, and what it returns when that has ended;
	// they must not block; default: nothing
	Writing func() (ended func())
	Seal    *seal.Key // encrypts all files; nil leaves them unencrypted
	// memory for the parts of records that questions read; default 32 MiB
	PartBytes int64

	FS vfs.FS // the file system, for tests; nil: the machine's
	// how long deleted ranges may wait before a flush of their own; default 10 s; negative: no such
	// flush
	FlushDelay time.Duration

	Compilers map[Space]Compiler // of the spaces that allow questions; see Ask
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (o Options) withDefaults() Options {
	def(&o.TombstoneFor, 72*time.Hour)
	def(&o.WriteTimeout, 5*time.Second)
	def(&o.ReadTimeout, 10*time.Second)
	def(&o.ReadyTimeout, 5*time.Second)
	def(&o.StreamTimeout, 10*time.Minute)
	def(&o.StatusEvery, time.Second)
	def(&o.RepairEvery, 10*time.Minute)
	def(&o.ExpireEvery, time.Minute)
	def(&o.TransferRate, 64<<20)
	def(&o.ScrubEvery, 24*time.Hour)
	def(&o.ScrubRate, 4<<20)
	def(&o.MaxRecord, 160<<20)
	def(&o.MaxList, int(min(512<<20, memory.MostOfAnswer())))
	def(&o.LaneRecords, 16384)
	def(&o.LaneBytes, 64<<20)
	def(&o.Streams, 64)
	def(&o.Tick, 200*time.Millisecond)
	def(&o.WriteRPCs, 2)
	def(&o.LookAgain, 50*time.Millisecond)
	def(&o.RepairsInFlight, 64)
	def(&o.PartBytes, 32<<20)
	if o.Room == nil {
		o.Room = func() error { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ClockJudged == nil {
		o.ClockJudged = func() bool { return true }
	}
	return o
}

// Store keeps records on the masters that own them. It is safe for concurrent use.
type Store struct {
	self  string
	node  uint64 // this master in versions
	peers Peers
	opts  Options
	log   *slog.Logger
	met   *metrics
	clock *disk.Clock
	disk  *disk.Store

	// when this master was last in contact with others, seconds since 1970; 0: unknown
	contact atomic.Int64
	// what Clock.Heard was when this master had asked the others, seconds since 1970
	asked atomic.Int64
	noted int64       // the value of contact on disk; only the ring loop uses it
	stale atomic.Bool // the records here may have been deleted elsewhere: no answer uses them

	parts *query.Parts
	query *query.Queries

	lineage lineage
	view    atomic.Pointer[rings.View]

	remote *remote.Masters

	heard   heard
	syncing syncing

	streams chan struct{}   // one token for each stream served
	repairs chan struct{}   // one token for each read repair under way
	kick    chan struct{}   // wakes Run's loops, capacity 1
	life    context.Context // ends when the store closes: parent of RPCs without a waiting caller
	end     context.CancelFunc
	closed  chan struct{}
	once    sync.Once
	wg      sync.WaitGroup // goroutines that Close waits for
	// read-held while a goroutine is added to wg, so that none is added after Close
	closing sync.RWMutex
	closeOK bool // under closing
}

// Open opens or makes the store in dir. It serves reads and writes from then on; the caller must
// also call Run, which keeps the copies equal. Log nil discards, reg nil registers no metrics. The
// caller closes the store.
func Open(dir string, peers Peers, opts Options, log *slog.Logger,
	reg prometheus.Registerer) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "ringstore")
	opts = opts.withDefaults()
	on := opts.disk(log)
	if err := disk.CheckSealed(dir, on); err != nil {
		return nil, err
	}
	s, err := open(dir, peers, opts, on, reg)
	if !disk.IsDamage(err) {
		return s, err
	}
	aside, moveErr := disk.MoveAside(dir, on)
	if moveErr != nil {
		return nil, errors.Join(err, moveErr)
	}
	message := toldDamage
	if len(peers.Members()) == 1 { // this one
		message = toldAlone
	}
	log.Error(message, "err", err, "path", aside)
	on.Anew = true
	return open(dir, peers, opts, on, reg)
}

// disk returns the options for this master's disk.
func (o Options) disk(log *slog.Logger) disk.Options {
	return disk.Options{
		BucketWidth: o.BucketWidth, WriteQueue: o.WriteQueue, CacheBytes: o.CacheBytes,
		MemTableBytes: o.MemTableBytes, FlushDelay: o.FlushDelay, Now: o.Now, Room: o.Room,
		Writing: o.Writing,
		Seal:    o.Seal, FS: o.FS, Log: log,
	}
}

func open(dir string, peers Peers, opts Options, on disk.Options,
	reg prometheus.Registerer) (*Store, error) {
	s := &Store{
		self: peers.Self(), node: incarnation(peers.Self()), peers: peers, opts: opts, log: on.Log,
		clock: disk.NewClock(opts.Now), parts: query.NewParts(opts.PartBytes, opts.Compilers),
		streams: make(chan struct{}, opts.Streams),
		repairs: make(chan struct{}, opts.RepairsInFlight),
		lineage: lineage{mu: make(turn, 1)},
		kick:    make(chan struct{}, 1), closed: make(chan struct{}),
	}
	on.Clock, on.Watch = s.clock, s.parts
	on.Synced = func(took time.Duration, writes int) {
		s.met.syncSeconds.Observe(took.Seconds())
		s.met.groupTasks.Observe(float64(writes))
	}
	on.Refused = func() { s.met.refused.WithLabelValues("disk").Inc() }
	d, err := disk.Open(dir, on)
	if err != nil {
		return nil, err
	}
	s.disk = d
	s.life, s.end = context.WithCancel(context.Background())
	s.met = newMetrics(reg, s)
	s.heard.start(peers.Members(), s.self)
	s.remote = remote.New(remote.Options{
		Self: s.self, Conn: peers.Conn, Clock: s.clock, WriteTimeout: opts.WriteTimeout,
		ReadTimeout: opts.ReadTimeout, MaxRecord: opts.MaxRecord, LaneRecords: opts.LaneRecords,
		LaneBytes: opts.LaneBytes, LaneCalls: opts.WriteRPCs, Spawn: s.spawn, Life: s.life,
		Closed: s.closed, Full: func(node string) { s.met.lanesFull.WithLabelValues(node).Inc() },
	})
	s.query = s.newQueries()
	if err := s.prepare(); err != nil {
		s.met.unregister()
		d.Close()
		return nil, fmt.Errorf("open ring store %s: %w", dir, err)
	}
	s.spawn(s.watchDamage)
	s.spawn(func() {
		select {
		case <-d.Counted():
			s.wake()
		case <-s.closed:
		}
	})
	return s, nil
}

// prepare reads this master's notes, and lets the disk take writes.
func (s *Store) prepare() error {
	floor, err := s.loadView()
	if err != nil {
		return err
	}
	if err := s.loadAway(); err != nil {
		return err
	}
	return s.disk.Start(floor)
}

// RaiseLevel converts the files on disk to the formats of the cluster's level, which has risen.
func (s *Store) RaiseLevel(to int) error { return s.disk.RaiseLevel(to) }

// spawn runs f in a goroutine that Close waits for; after Close it returns false without running f.
func (s *Store) spawn(f func()) bool {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closeOK {
		return false
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
	return true
}

// wake makes Run check for work at once.
func (s *Store) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Close finishes queued work and closes the disk. Run must have returned and the RPC server must
// have stopped.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closed)
		s.end()
		s.closing.Lock()
		s.closeOK = true
		s.closing.Unlock()
		s.remote.Close()
		s.wg.Wait()
		if e := s.disk.Close(); e != nil {
			err = fmt.Errorf("close ring store: %w", e)
		}
		s.met.unregister()
	})
	return err
}
