package sim

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"clustermaster/cluster"
	"clustermaster/keystore"
	"clustermaster/serve/event"
	"clustermaster/store/jobcache"
	"clustermaster/store/miniondata"
	"clustermaster/store/ringstore"
	"clustermaster/test/logtest"
	"clustermaster/transport/peer"
)

const (
	clusterID = "sim"
	peerPort  = 4520
	ringDir   = "ring"
)

var joinKey = sync.OnceValue(func() []byte { return peer.JoinKey("a secret of the simulator", clusterID) })

// clusterKey is made once: it costs more than all the rest of a small run.
var clusterKey = sync.OnceValue(func() []byte {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
})

// minionKey is the public key of all minions.
var minionKey = sync.OnceValue(func() string {
	block, _ := pem.Decode(clusterKey())
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.(*rsa.PrivateKey).Public())
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
})

// master is a machine: a host and a disk, on which instances run one after the other.
type master struct {
	w     *world
	no    int
	id    string
	addr  string
	ip    netip.Addr
	log   *logtest.Buffer
	small string // folder for small files
	// gets the error with which the node ends; nil for one that must not end by itself
	over chan error

	mu      sync.Mutex // guards the fields below
	files   *disk
	now     *instance // nil while the master is down
	gen     int
	disks   int // counts those that did not come from the one before
	claimed bool
	ahead   time.Duration // of its clock
	paid    time.Time     // copies that were owed before were handed over
	aside   []string      // stores that it put aside
}

// clock is the time as this machine shows it.
func (m *master) clock() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.ahead)
}

func (m *master) setClock(ahead time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = ahead
	if ahead != 0 {
		m.w.clocksDiffered.Store(true)
	}
}

// instance is one process of a master.
type instance struct {
	m      *master
	host   *host
	files  *disk
	port   *peer.Port
	node   *cluster.Node
	store  *ringstore.Store
	counts *prometheus.Registry // of the store
	keys   *keystore.Store
	jobs   *jobcache.Cache
	data   *miniondata.Data
	bus    *event.Bus
	mesh   *event.Mesh
	server *grpc.Server
	began  time.Time
	gen    int
	crash  atomic.Bool
	heard  map[string]int  // events by tag, since load.hearAnew; guarded by load.mu
	life   context.Context // ends with the process
	end    context.CancelFunc
	parts  sync.WaitGroup
	ended  chan struct{} // closed once the shutdown is complete

	writing writing
	detours detours
	alone   atomic.Int64 // when it last reached no other member of its ring, in ns since 1970
}

// owesNothing notes that the disk of a master owes no copy. A debt is noted a moment after the
// acknowledgement.
func (m *master) owesNothing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paid = time.Now().Add(-time.Second)
}

// lookAside notes a loss for each store that the master has put aside on this disk, because it was
// damaged or deletions were forgotten.
func (m *master) lookAside(files *disk) {
	names, err := files.List("")
	if err != nil {
		m.w.fault("%s: %v", m.id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if strings.HasPrefix(name, ringDir+".damaged-") && !slices.Contains(m.aside, name) {
			m.aside = append(m.aside, name)
			m.w.note("%s begins a new store", m.id)
			m.w.losses.add(loss{m, m.paid, time.Now()})
		}
	}
}

// loses notes that a master, which is down, has lost what its disk had.
func (m *master) loses() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.losses.add(loss{m, m.paid, time.Now()})
}

// up is the running instance, or nil.
func (m *master) up() *instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *master) start() error {
	m.mu.Lock()
	files := m.files
	m.gen++
	gen := m.gen
	voter := fmt.Sprintf("%s with disk %d", m.addr, m.disks)
	m.mu.Unlock()
	m.w.net.lit(m.ip.String())
	i := &instance{m: m, host: &host{f: m.w.net, ip: m.ip, dead: make(chan struct{})}, files: files,
		counts: prometheus.NewRegistry(), began: time.Now(), gen: gen, ended: make(chan struct{}),
		detours: detours{by: map[string]detour{}}}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(m.log, m.w.kept), &slog.HandlerOptions{Level: slog.LevelDebug}))
	log = log.With("master", m.id, "gen", gen)
	key, err := peer.LoadNodeKey(m.small, nil)
	if err != nil {
		return err
	}
	pins := cluster.NewPins()
	if i.port, err = peer.New(peer.Config{Network: i.host, Listen: m.addr, Key: key, Pins: pins,
		Level: pins.Level, Log: log, JoinTries: 1000, JoinTriesTotal: 1000}); err != nil {
		return err
	}
	cfg := cluster.Config{
		ID: m.id, Addr: m.addr, Version: "sim", ClusterID: clusterID, JoinKey: joinKey(),
		DataDir: filepath.Join(m.small, "cluster"), SPKI: key.SPKI(), NodePub: key.Public(), Pins: pins,
		CheckEvery:        10 * time.Second,
		SnapshotThreshold: m.w.snapshotAfter, Partitions: m.w.partitions, RingDeadAfter: m.w.deadAfter,
		FoundingKeys: []cluster.FoundingKey{{From: "simulator",
			Read: func() ([]byte, error) { return clusterKey(), nil }}},
		Now:     m.clock,
		OpenLog: func(string) (cluster.RaftLog, error) { return openRaftLog(files, m.w.ledger, voter, &i.crash) },
	}
	for _, o := range m.w.masters {
		if o != m {
			cfg.Peers = append(cfg.Peers, o.addr)
		}
	}
	if i.node, err = cluster.Open(cfg, i.port, log, nil); err != nil {
		i.port.Close()
		return fmt.Errorf("open node of %s: %w", m.id, err)
	}
	files.promptly(func() {
		i.store, err = ringstore.Open(ringDir, i.node.Peers(), ringstore.Options{
			FS: files, Now: i.node.Now, ClockJudged: i.node.ClockJudged, Room: files.room, TombstoneFor: m.w.tombstones,
			BucketWidth: 4 * time.Second, ExpireEvery: 2 * time.Second, RepairEvery: 30 * time.Second,
			ScrubEvery:    30 * time.Second,
			MemTableBytes: 256 << 10,
			CacheBytes:    4 << 20, // with less Pebble decompresses the same blocks again and again
			FlushDelay:    -1,      // such a flush waits for the disk, with a mutex: fake time stops
			Compilers:     map[ringstore.Space]ringstore.Compiler{ringstore.SpaceMinions: miniondata.Questions{}},
		}, log, i.counts)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("open ring store of %s: %w", m.id, err), i.node.Close())
	}
	m.lookAside(files)
	if i.keys, err = keystore.New(i.node, log, nil); err != nil {
		return err
	}
	i.jobs, i.data = jobcache.New(i.store, 86400, i.node.Now, log), miniondata.New(i.store, log)
	i.bus = event.NewBus(0, log, nil)
	i.mesh = event.NewMesh(i.bus, i.node.NearPeers(i.began), log)
	i.server = grpc.NewServer(i.port.ServerOptions()...)
	for _, r := range []interface{ RegisterRPC(grpc.ServiceRegistrar) }{i.port, i.node, i.store, i.mesh} {
		r.RegisterRPC(i.server)
	}
	i.life, i.end = context.WithCancel(context.Background())
	m.w.onStart(i)
	m.mu.Lock()
	m.now = i
	m.mu.Unlock()
	serve, stopServing := context.WithCancel(context.Background())
	run, stop := context.WithCancel(context.Background())
	served := make(chan struct{}, 2)
	go func() { i.server.Serve(i.port.RPCListener()); served <- struct{}{} }()
	go func() { i.port.Serve(serve); served <- struct{}{} }()
	var stores, node sync.WaitGroup
	stores.Go(func() { i.store.Run(run) })
	stores.Go(func() { i.mesh.Run(run) })
	node.Go(func() {
		err := i.node.Run(run)
		if m.over != nil {
			m.over <- err
		} else if err != nil && !i.crash.Load() {
			m.w.fault("%s ended by itself: %v", m.id, err)
		}
	})
	node.Go(func() { m.w.watch(i, run) })
	go func() {
		defer close(i.ended)
		<-i.life.Done()
		stop()
		node.Wait()
		stores.Wait()
		i.server.Stop()
		stopServing()
		<-served
		<-served
		i.parts.Wait()
		i.files.promptly(func() { err = i.store.Close() })
		if err != nil && !i.crash.Load() {
			m.w.fault("%s: close ring store: %v", m.id, err)
		}
	}()
	return nil
}

// stop ends a master in good order.
func (m *master) stop() {
	i := m.up()
	if i == nil {
		return
	}
	i.end()
	m.w.ends(i)
	i.host.kill(false)
	m.mu.Lock()
	m.now = nil
	m.mu.Unlock()
}

// kill ends a master at this moment by a loss of power: what its disk has not synced is gone. The
// remains of the process see neither the network nor the new disk.
func (m *master) kill(silently bool) {
	i := m.up()
	if i == nil {
		return
	}
	i.crash.Store(true)
	m.lookAside(i.files)
	i.host.kill(silently)
	m.mu.Lock()
	m.files = newDisk(i.files.crashed(rng(m.w.seed, "crash", m.id, fmt.Sprint(i.gen))),
		rng(m.w.seed, "disk", m.id, fmt.Sprint(i.gen)))
	m.now = nil
	m.mu.Unlock()
	next := filepath.Join(filepath.Dir(m.small), fmt.Sprintf("%s-%d", m.id, i.gen+1))
	m.copySmall(next)
	m.small = next
	i.files.setFull(false)
	i.files.setSlow(0)
	i.files.setStill(false)
	m.w.zombies.Go(func() {
		i.end()
		m.w.ends(i)
	})
}

// endLimit is how long the shutdown of a master may take, in fake time.
const endLimit = 3 * time.Minute

// ends waits for the shutdown of an instance. One that does not end ends the test: nothing can end
// its goroutines, and the bubble ends only with them.
func (w *world) ends(i *instance) {
	t := time.NewTimer(endLimit)
	defer t.Stop()
	select {
	case <-i.ended:
	case <-t.C:
		panic(fmt.Sprintf("seed %d: %s does not end within %v; repeat it: %s\n%s", w.seed, i.m.id, endLimit,
			again(w.seed), allStacks()))
	}
}

// wipe gives an empty disk to a master that is down.
func (m *master) wipe() {
	m.mu.Lock()
	m.files = newDisk(vfs.NewCrashableMem(), rng(m.w.seed, "wiped", m.id, fmt.Sprint(m.gen)))
	m.disks++
	m.mu.Unlock()
	m.small += "-wiped"
	if err := os.MkdirAll(m.small, 0o700); err != nil {
		m.w.fault("%v", err)
	}
}

// image is what a snapshot of a machine has of the master on it.
type image struct {
	files *vfs.MemFS
	small string
}

// image makes a snapshot of a running master's machine.
func (m *master) image() image {
	i := m.up()
	taken := image{files: i.files.crashed(rng(m.w.seed, "image", m.id, fmt.Sprint(i.gen))),
		small: fmt.Sprintf("%s-image-%d", m.small, time.Now().UnixNano())}
	m.copySmall(taken.small)
	return taken
}

// copySmall copies the small files of a master, as a crash or a snapshot of its machine finds them.
func (m *master) copySmall(to string) {
	if err := copyTree(m.small, to); err != nil {
		m.w.fault("copy the small files of %s: %v", m.id, err)
	}
}

// putBack puts the machine of a master that is down back to a snapshot.
func (m *master) putBack(old image) {
	m.mu.Lock()
	m.files = newDisk(old.files, rng(m.w.seed, "put back", m.id, fmt.Sprint(m.gen)))
	m.disks++
	m.mu.Unlock()
	m.small = old.small
}

// clone makes another machine of a snapshot: with the same master, at another address.
func (m *master) clone(taken image) *master {
	c := &master{w: m.w, no: m.no, id: m.id, log: new(logtest.Buffer), small: taken.small,
		ip: netip.AddrFrom4([4]byte{10, 0, 1, byte(m.no + 1)}), over: make(chan error, 1),
		files: newDisk(taken.files, rng(m.w.seed, "clone", m.id, fmt.Sprint(m.gen)))}
	c.addr = netip.AddrPortFrom(c.ip, peerPort).String()
	return c
}

// copyTree copies a folder. A file that disappears meanwhile counts as missing.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
}

// world is a cluster under simulation.
type world struct {
	seed       uint64
	net        *fabric
	ledger     *ledger
	masters    []*master
	partitions int
	deadAfter  time.Duration
	// entries of Raft's log between two snapshots
	snapshotAfter uint64
	// how long deletions are remembered; in half of the runs masters are away for longer
	tombstones time.Duration
	zombies    sync.WaitGroup
	began      time.Time
	kept       io.Writer // gets each log line as it comes; see -logs

	load     *load
	onStart  func(*instance)
	underWay atomic.Int64 // faults
	// from when a clock was set until the end
	clocksDiffered atomic.Bool
	losses         losses
	hush           hush

	mu     sync.Mutex // guards the fields below
	faults []string
	trace  []string
	count  int // of faults so far
}

func newWorld(seed uint64, n int, dir string) *world {
	chance := rng(seed, "world")
	w := &world{seed: seed, ledger: newLedger(), partitions: 64, began: time.Now(), kept: io.Discard,
		deadAfter: time.Duration(15+chance.IntN(600)) * time.Second,
		net:       newFabric(seed, time.Duration(1+chance.IntN(20))*time.Millisecond)}
	if *logs != "" {
		kept, err := os.Create(filepath.Join(*logs, fmt.Sprintf("seed-%d.log", seed)))
		if err != nil {
			w.fault("%v", err)
		} else {
			w.kept = kept
		}
	}
	w.snapshotAfter = []uint64{8, 64}[rng(seed, "snapshots").IntN(2)]
	w.tombstones = []time.Duration{10 * time.Second, 10 * time.Minute}[chance.IntN(2)]
	if !long() {
		w.tombstones = 10 * time.Minute
	}
	if w.forgetful() { // Copies are owed to a master until it counts as dead, and keep the tombstones.
		w.deadAfter = time.Duration(3+chance.IntN(5)) * time.Second
	}
	for i := range n {
		m := &master{w: w, no: i, id: fmt.Sprintf("m%d", i+1), log: new(logtest.Buffer),
			ip: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}
		m.addr = netip.AddrPortFrom(m.ip, peerPort).String()
		m.small = filepath.Join(dir, m.id+"-0")
		if err := os.MkdirAll(m.small, 0o700); err != nil {
			w.fault("%v", err)
		}
		m.files = newDisk(vfs.NewCrashableMem(), rng(seed, "disk", m.id))
		w.masters = append(w.masters, m)
	}
	return w
}

// forgetful reports that masters are away for longer than deletions are remembered.
func (w *world) forgetful() bool { return w.tombstones < time.Minute }

// absentee is the only master that is away for long in such runs.
func (w *world) absentee() *master { return w.masters[int(w.seed)%len(w.masters)] }

// fault records a violation.
func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	w.faults = append(w.faults, fmt.Sprintf("at %v: %s", time.Since(w.began), text))
}

// note adds a line to the trace. Two runs of one seed are compared by their traces.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%12v ", time.Since(w.began)) + fmt.Sprintf(format, args...)
	w.trace = append(w.trace, line)
	fmt.Fprintln(w.kept, line)
}

// watch looks at an instance all the time, and notes the terms in which it says that it leads.
func (w *world) watch(i *instance, ctx context.Context) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if i.crash.Load() {
			return
		}
		i.look()
		term := i.node.Term()
		if i.node.IsLeader() && i.node.Term() == term {
			w.ledger.leads(term, i.node.Self().Node)
		}
	}
}

// running lists the instances that are up.
func (w *world) running() []*instance {
	var out []*instance
	for _, m := range w.masters {
		if i := m.up(); i != nil {
			out = append(out, i)
		}
	}
	return out
}

// until waits for a condition, on fake time.
func (w *world) until(most time.Duration, f func() error) error {
	deadline := time.Now().Add(most)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // fake time, between looks
	}
}

func (w *world) allReady() error {
	for _, m := range w.masters {
		i := m.up()
		if i == nil || !i.node.Ready() {
			return fmt.Errorf("%s is not ready", m.id)
		}
		if r := len(i.node.State().Ring().Members); r != len(w.masters) {
			return fmt.Errorf("%s: %d in the ring", m.id, r)
		}
	}
	return nil
}

// dirOf is the folder for small files: one in memory if the machine has it, because the files are
// synced.
func dirOf(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "sim-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
