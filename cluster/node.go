package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"clustermaster/cluster/fsm"
	"clustermaster/hashring"
	"clustermaster/transport/peer"
	"clustermaster/wire"
)

// PeerPort is what a node needs of the port between peers.
type PeerPort interface {
	RaftLayer() raft.StreamLayer
	Conn(node string) (*grpc.ClientConn, error)
	Drop(node string)
	Watch(nodes ...string)
	Alive(node string) bool
	Through(node string) string
	OnUp(f func(node string))
	LastHeard(node string) time.Time
	DisownedAt(node string) time.Time
	ServeJoins(self peer.Hello, secrets peer.Secrets, h peer.JoinHandler, signer peer.ClusterSigner)
	AskJoin(ctx context.Context, addr string, self peer.Hello, k []byte,
		pinned func(pub string) bool, request []byte) (peer.Hello, []byte, error)
}

var _ PeerPort = (*peer.Port)(nil)

// Bounds for raft.
const (
	maxAppendEntries = 64 // in one message to a peer, which has raftTimeout to take it
	// bytes; minions cause 10 KB at most, and lists of keys and backups come in parts of 32 KiB, so
	// that a slow line takes 64 of them in raftTimeout
	maxEntry       = 4 << 20
	keptSnapshots  = 2
	raftTimeout    = 5 * time.Second // of one message to a peer; snapshots get more by their size
	enqueueTimeout = 3 * time.Second
	// for requests to peers that are under way when the node closes
	streamGrace = 500 * time.Millisecond
)

// Node is this master's part of the cluster. Safe for concurrent use.
type Node struct {
	cfg  Config
	self fsm.Member // what this master says about itself
	port PeerPort   // nil when stand-alone
	log  *slog.Logger
	m    *metrics

	logSync   prometheus.Histogram // made before raft starts, because raft writes at once
	snapshots raft.SnapshotStore   // with their seals opened

	state   *fsm.State
	machine *machine
	feed    *feed
	pins    *Pins
	raft    *raft.Raft
	store   io.Closer
	logs    *trackedLog // on store
	trans   interface {
		raft.Transport
		io.Closer
	}

	started time.Time
	began   atomic.Pointer[time.Time] // when Run began, after the replay of the log; nil: not yet
	fatal   chan error                // capacity 1: the first reason to stop
	serving chan struct{}             // closed when this master began to serve

	membership membership // from new to removed
	barring    sync.Mutex // held while the removal is noted or forgotten, in memory and on disk
	served     pulse      // beats when Serving changes

	// term in which this leader has applied all earlier commands; 0: not the leader
	established atomic.Uint64
	verified    atomic.Int64          // when this leader last heard a majority, UnixNano
	told        atomic.Uint64         // the index that a leader named last
	leaderless  atomic.Int64          // since when no leader has been known, UnixNano; 0: one is known
	reign       atomic.Pointer[reign] // nil: no leader has been known yet
	rotating    atomic.Bool
	// when the leader last looked for dead voters; only its goroutine uses it
	checked time.Time
	// ids of members that should have no vote but keep it; only the leader's goroutine uses it
	kept []string
	// when the leader last tried to hand over; only its goroutine uses it
	handing     time.Time
	handingOver atomic.Bool  // this leader takes no commands
	applying    atomic.Int64 // commands under way, some of them not yet in the log
	// a member that answers has not caught up yet; only the leader's goroutine uses it
	awaited bool
	owed    map[string]owing // by id and time of the bar; only the leader's goroutine uses it
	// the uuid of the new history while recovery is under way; after Open only the leader's
	// goroutine uses it
	recovering string
	anchored   atomic.Pointer[anchor] // nil: this machine's own clock counts
	// this master's clock was compared with those of most members, or it has no peers
	clockJudged atomic.Bool
	stagedSeen  map[string]sighting // by kind of secret; only the leader's goroutine uses it

	// beats when members, ring, leader or reachability change, so that the loops of Run look at
	// once
	moved    pulse
	staleKey atomic.Pointer[[]byte] // join key that a member refused last
	// beats before founding when a master asks for the first time
	newcomer pulse
	// capacity 1: the cluster key for the founding, made ahead; nil: none is expected
	spareKey chan *wire.PrivateKey

	former  former // what ran on this machine before the cluster; read only after Open
	leftOut bool   // sayLeftOut has logged; only become's goroutine uses it
	// why the last attempt to found, join or adopt failed; read by Apart
	hindrance atomic.Pointer[string]
	promising sync.Mutex // held to decide to found, or to promise the founding to another master

	checkedState time.Time // when the leader last wrote a checkpoint; only its goroutine uses it
	checks       checks    // of the state at checkpoints

	secrets    atomic.Pointer[Secrets]
	clusterKey atomic.Pointer[parsedKey]
	ring       atomic.Pointer[hashring.Ring]

	secretsMu   sync.Mutex // guards retiredSeen; held while secrets are replaced
	retiredSeen map[string]map[uint64]retirement

	aligning turn // held to change raft's configuration and the ring

	mu       sync.Mutex // guards all below; never held across I/O
	onApply  []func(index uint64, change fsm.Change)
	contacts map[string]contact // by node
	refusal  complaint          // about joiners
	askers   map[string]bool    // addresses of masters that asked over the join channel
	grant    grant
	given    uint64 // promises of the founding to others, in this process
	reading  *readBatch
	readers  bool
	stopped  bool
	wg       sync.WaitGroup
}

// Open reads the state from disk. After it, State, Members, Secrets and ClusterKey return what this
// master last knew to be agreed. Open starts no conversation but Raft's own; Run starts the rest. A
// nil port makes the master stand-alone. The caller runs Run once, which also closes the node. On
// error Open leaves nothing open.
func Open(cfg Config, port PeerPort, log *slog.Logger, reg prometheus.Registerer) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	if (cfg.Addr == "") != (port == nil) {
		return nil, errors.New("open cluster: a peer port and its address go together")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		cfg: cfg, port: port, log: log.With("component", "cluster"),
		state: fsm.New(), feed: newFeed(), pins: cfg.Pins,
		started:     time.Now(),
		fatal:       make(chan error, 1),
		serving:     make(chan struct{}),
		contacts:    make(map[string]contact),
		askers:      make(map[string]bool),
		retiredSeen: map[string]map[uint64]retirement{},
		stagedSeen:  map[string]sighting{},
		checks:      checks{ready: make(chan struct{}, 1)},
		logSync:     newLogSync(),
		aligning:    make(turn, 1),
	}
	n.secrets.Store(&Secrets{})
	n.leaderless.Store(n.started.UnixNano())
	n.clockJudged.Store(port == nil)
	if n.pins == nil {
		n.pins = NewPins()
	}
	if err := n.open(reg); err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	return n, nil
}

func (n *Node) open(reg prometheus.Registerer) error {
	id, err := loadIdentity(n.cfg.DataDir, n.cfg.WholeDir, n.cfg.ID)
	if err != nil {
		return err
	}
	n.self = fsm.Member{
		Node: fsm.NodeName(id.ID, id.Incarnation), ID: id.ID, Incarnation: id.Incarnation,
		Addr: n.cfg.Addr, SPKI: n.cfg.SPKI, Version: n.cfg.Version, Pub: n.cfg.NodePub,
	}
	if _, err := readJSON(filepath.Join(n.cfg.DataDir, grantFile), &n.grant); err != nil {
		return err
	}
	if err := n.checkCopy(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(n.cfg.DataDir, foundingFile)); err == nil {
		n.membership.note(func(f *facts) { f.founding = true })
	}
	n.machine = newMachine(n.state, n.feed, n.stop)
	n.pins.open(n.state, n.self)
	if err := errors.Join(n.loadLearnt(), n.loadRemoved()); err != nil {
		return err
	}
	if err := n.openRaft(); err != nil {
		return err
	}
	if n.m, err = newMetrics(reg, n); err != nil {
		return errors.Join(err, n.close())
	}
	if err := n.refreshSecrets(); err != nil {
		return errors.Join(err, n.close())
	}
	if _, founded := n.state.Cluster(); !founded && len(n.pins.known()) == 0 {
		n.former = n.cfg.findFormer()
	}
	n.makeKeyAhead()
	if n.port != nil {
		n.port.OnUp(func(string) { n.moved.beat() })
		n.port.ServeJoins(n.hello(), n, n, n)
	}
	return nil
}

// openRaft opens the stores and starts raft. It applies what is known to be committed.
func (n *Node) openRaft() error {
	dir := filepath.Join(n.cfg.DataDir, "raft")
	store, err := n.openLog(dir)
	if err != nil {
		return fmt.Errorf("open raft log: %w", err)
	}
	n.store = store
	hl := newRaftLog(n.log)
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, hl)
	if err != nil {
		return errors.Join(fmt.Errorf("open snapshots: %w", err), n.close())
	}
	var snapshots raft.SnapshotStore = privateSnapshots{files, filepath.Join(dir, "snapshots")}
	var onDisk raft.LogStore = store
	if n.cfg.Seal != nil {
		snapshots = sealedSnapshotStore{snapshots, n.cfg.Seal}
		onDisk = sealedLog{store, n.cfg.Seal.Box(sealedLogs)}
	}
	cache, err := raft.NewLogCache(512, onDisk)
	if err != nil {
		return errors.Join(fmt.Errorf("open raft log: %w", err), n.close())
	}
	n.snapshots = snapshots
	logs := &trackedLog{LogStore: cache, writing: n.cfg.Writing, refused: n.diskRefused,
		applied: &n.machine.applied, lacking: n.othersPutBack, patient: n.cfg.hangsAfter(),
		wrote: func(took time.Duration) { n.logSync.Observe(took.Seconds()) }}
	n.logs = logs
	err = n.replay(logs, snapshots)
	if err == nil {
		err = n.checkClusterID()
	}
	if err != nil {
		return errors.Join(err, n.close())
	}

	var trans raft.Transport
	if n.port == nil {
		_, mem := raft.NewInmemTransport(raft.ServerAddress(n.self.Node))
		n.trans, trans = mem, mem
	} else {
		net := newTransport(n.port.RaftLayer(), n.pins, logs, hl)
		n.trans, trans = net, net
	}
	conf := raft.DefaultConfig()
	conf.ProtocolVersion = raftProtocol
	conf.LocalID = raft.ServerID(n.self.Node)
	conf.HeartbeatTimeout = n.cfg.HeartbeatTimeout
	conf.ElectionTimeout = n.cfg.ElectionTimeout
	conf.LeaderLeaseTimeout = n.cfg.HeartbeatTimeout
	conf.CommitTimeout = min(conf.CommitTimeout, n.cfg.HeartbeatTimeout/10)
	conf.MaxAppendEntries = maxAppendEntries
	conf.SnapshotThreshold = n.cfg.SnapshotThreshold
	conf.SnapshotInterval = 20 * time.Second
	conf.TrailingLogs = trailingSnapshots * n.cfg.SnapshotThreshold
	conf.ShutdownOnRemove = false
	conf.RestoreCommittedLogs = true     // only makes raft stage commit indexes, see trackedLog
	conf.NoSnapshotRestoreOnStart = true // replay did it
	conf.NoLegacyTelemetry = true
	conf.Logger = hl
	renewed, err := n.recoverRaft(conf, logs.LogStore, store, snapshots, trans) // it deletes the whole log
	if err == nil && renewed {
		err = errors.Join(n.replay(logs, snapshots), n.forgetRemoved())
	}
	if err != nil {
		return errors.Join(err, n.close())
	}
	n.machine.onCheck, n.machine.installed = n.checks.offer, n.settle
	n.raft, err = raft.NewRaft(conf, n.machine, logs, patientStable{store, n.cfg.Writing, n.log}, snapshots, trans)
	if err != nil {
		return errors.Join(fmt.Errorf("start raft: %w", err), n.close())
	}
	if net, ok := trans.(*transport); ok {
		net.own.Store(n.raft)
	}
	if err := n.electAlone(); err != nil {
		return errors.Join(err, n.close())
	}
	return nil
}

func (n *Node) openLog(dir string) (RaftLog, error) {
	if n.cfg.OpenLog != nil {
		return n.cfg.OpenLog(dir)
	}
	return openBolt(filepath.Join(dir, "raft.db"), n.log)
}

// electAlone makes the only voter of a group its leader at once, because no leader exists whose
// silence it should wait for first. In any other group it does nothing. Call it while this master
// follows, right after start or founding.
func (n *Node) electAlone() error {
	if servers := n.servers(); len(servers) != 1 || string(servers[0].ID) != n.self.Node {
		return nil
	}
	now := n.raft.ReloadableConfig()
	longer := now
	longer.HeartbeatTimeout += time.Millisecond
	longer.ElectionTimeout += time.Millisecond
	// When the timeout becomes shorter raft checks at once, and sees that it never heard a leader.
	if err := errors.Join(n.raft.ReloadConfig(longer), n.raft.ReloadConfig(now)); err != nil {
		return fmt.Errorf("elect this master alone: %w", err)
	}
	return nil
}

// diskRefused ends a master whose disk does not take raft's log although it has space. Raft itself
// would go on: a follower that learns nothing any more would still hear its leader, and be ready.
func (n *Node) diskRefused(err error) {
	n.stop(fmt.Errorf("the disk of %s refuses raft's log: %w; this master ends, because it learns nothing any more; replace that disk, and start it again",
		n.cfg.WholeDir, err))
}

// othersPutBack ends a master whose leader lacks an entry that was committed here. Raft would go
// on, with a state on this master that the others do not have.
func (n *Node) othersPutBack(index uint64) {
	n.stop(fmt.Errorf("the leader lacks entry %d of the log, which all masters had agreed on: a majority of them runs with "+
		"older copies of their data directories. This master ends, because it knows what they do not. To give that up, move "+
		"%s to another place, and start this master again. To keep it, stop the others and move their data directories to "+
		"another place, start this master alone, run salt-run cluster.recover here, and start the others again. Nothing was "+
		"changed here", index, n.cfg.WholeDir))
}

// stop ends Run with a reason.
func (n *Node) stop(reason error) {
	select {
	case n.fatal <- reason:
	default:
	}
}

// OnApply registers f to receive every change, in order, one at a time. F may block; raft does not
// wait for it. Register before Run: the first call is a Change with Restored for the state that was
// on disk.
func (n *Node) OnApply(f func(index uint64, change fsm.Change)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onApply = append(n.onApply, f)
}

// Run founds, joins or resumes, does the leader's duties while this master is the leader, and
// blocks until ctx ends or the node can't go on. Then it hands leadership over and closes the node.
// It needs the peer port and the gRPC server until it returns, so close those afterwards. It
// returns nil when ctx ends.
func (n *Node) Run(ctx context.Context) error {
	began := time.Now()
	n.began.Store(&began)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case err := <-n.fatal:
			return err
		case <-gctx.Done():
			return nil
		}
	})
	// when the channel is full, the waiting observation already says enough
	leaders := make(chan raft.Observation, 1)
	observer := raft.NewObserver(leaders, false, func(o *raft.Observation) bool {
		seen, is := o.Data.(raft.LeaderObservation)
		if is {
			n.m.leaders.saw(string(seen.LeaderID))
		}
		return is
	})
	n.raft.RegisterObserver(observer)
	if leader, ok := n.Leader(); ok { // elected before the observer was registered
		n.m.leaders.saw(leader)
	}
	g.Go(func() error {
		defer n.raft.DeregisterObserver(observer)
		for {
			select {
			case <-leaders:
				n.moved.beat()
			case <-gctx.Done():
				return nil
			}
		}
	})
	g.Go(func() error { return n.follow(gctx) })
	g.Go(func() error { return n.lead(gctx) })
	g.Go(func() error { return n.watch(gctx) })
	g.Go(func() error { return n.watchData(gctx) })
	g.Go(func() error { return n.become(gctx) })
	g.Go(func() error { return n.checks.run(gctx) })
	if n.port != nil {
		g.Go(func() error { return n.contact(gctx) })
	}
	err := g.Wait()
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	n.wg.Wait()
	if n.raft.State() == raft.Leader && len(n.voters()) > 1 {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*n.cfg.HeartbeatTimeout)
		_, terr := n.transferHere(short, "", n.self.Node)
		cancel()
		if terr != nil {
			n.log.Warn("leadership not handed over; the others elect a leader",
				"err", terr)
		}
	}
	if cerr := n.close(); err == nil && cerr != nil {
		err = fmt.Errorf("close cluster: %w", cerr)
	}
	return err
}

// Close closes a node whose Run is never called.
func (n *Node) Close() error { return n.close() }

func (n *Node) close() error {
	var errs []error
	if n.raft != nil {
		errs = append(errs, n.shutDownRaft())
	}
	if n.trans != nil {
		errs = append(errs, n.trans.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	if n.m != nil {
		n.m.unregister()
	}
	return errors.Join(errs...)
}

// shutDownRaft closes raft, which waits for its requests to peers. It cuts off those that a silent
// peer holds up.
func (n *Node) shutDownRaft() error {
	ended := make(chan error, 1)
	go func() { ended <- n.raft.Shutdown().Error() }()
	t := time.NewTimer(streamGrace)
	defer t.Stop()
	select {
	case err := <-ended:
		return err
	case <-t.C:
	}
	return errors.Join(n.trans.Close(), <-ended)
}

// spawn starts a goroutine that Run waits for; it reports false when the node is stopping.
func (n *Node) spawn(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return false
	}
	n.wg.Go(f)
	return true
}

// follow passes changes to those that registered, beginning with the state that was on disk.
func (n *Node) follow(ctx context.Context) error {
	n.mu.Lock()
	followers := n.onApply
	n.mu.Unlock()
	tell := func(index uint64, c fsm.Change) error {
		if c.Restored || c.Secrets {
			if err := n.refreshSecrets(); err != nil {
				return err
			}
		}
		if c.Restored || len(c.Added) > 0 || len(c.Removed) > 0 {
			n.membersChanged(c)
		}
		if c.Restored || len(c.Added) > 0 || len(c.Removed) > 0 || c.Ring {
			n.moved.beat()
		}
		for _, f := range followers {
			f(index, c)
		}
		return nil
	}
	_ = n.feed.take() // the first call covers what was replayed at start
	if err := tell(n.state.AppliedIndex(), fsm.Change{Restored: true}); err != nil {
		return err
	}
	for {
		for _, e := range n.feed.take() {
			if err := tell(e.index, e.change); err != nil {
				return err
			}
		}
		select {
		case <-n.feed.ready:
		case <-ctx.Done():
			return nil
		}
	}
}

// membersChanged disconnects members that left and begins to watch new ones.
func (n *Node) membersChanged(c fsm.Change) {
	for _, m := range c.Removed {
		if m.Node == n.self.Node {
			continue
		}
		n.mu.Lock()
		delete(n.contacts, m.Node)
		n.mu.Unlock()
		if n.port != nil {
			n.port.Drop(m.Node)
		}
		n.log.Info("peer left the cluster", "peer", m.ID, "addr", m.Addr)
	}
	for _, m := range c.Added {
		n.log.Info("peer is a member", "peer", m.ID, "addr", m.Addr)
	}
	if n.port == nil {
		return
	}
	for _, m := range n.state.Members() {
		if m.Node != n.self.Node {
			n.port.Watch(m.Node)
		}
	}
}

// State returns the replicated state. Its read methods are safe for concurrent use.
func (n *Node) State() *fsm.State { return n.state }

// Ring returns the placement of data, computed once per epoch. It has no members before the first
// one, and is nil while this master is in no cluster.
func (n *Node) Ring() *hashring.Ring {
	c, member := n.state.Cluster()
	if !member {
		return nil
	}
	r := n.state.Ring()
	if have := n.ring.Load(); have != nil && have.Epoch() == r.Epoch {
		return have
	}
	made := hashring.New(r.Members, c.Partitions, r.Replicas(), r.Epoch)
	n.ring.Store(made)
	return made
}
