package clustertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"clustermaster/cluster"
	"clustermaster/test/logtest"
	"clustermaster/transport/peer"
)

// ClusterID and Secret are those of every kit.
const (
	ClusterID = "kit"
	Secret    = "a secret of the test kit, long enough"
)

// Patience is how long the kit waits for anything before it fails the test.
const Patience = 45 * time.Second

var joinKey = sync.OnceValue(func() []byte { return peer.JoinKey(Secret, ClusterID) })

// Option changes a node's config before it starts.
type Option func(i int, cfg *cluster.Config)

// Founders makes the first n nodes know only each other, so that they found without the later ones.
// Those know all.
func Founders(n int) Option {
	return func(i int, cfg *cluster.Config) {
		if i < n {
			cfg.Peers = cfg.Peers[:n-1] // of the others, in order
		}
	}
}

// Cluster is a set of nodes that know each other by cluster_peers.
type Cluster struct {
	t     testing.TB
	Nodes []*Node // sorted by address: Nodes[0] founds
	opts  []Option
}

// Node is one master's node and all that it needs. Its methods are for the test's own goroutine.
type Node struct {
	*cluster.Node // nil while stopped
	ID            string
	Addr          string
	Dir           string

	c      *Cluster
	i      int
	log    *logtest.Buffer
	port   *peer.Port
	pins   *cutPins
	cancel context.CancelFunc
	ended  chan error
	peerTo context.CancelFunc
	peerOK chan error
	server *grpc.Server
	// Register is called with the gRPC server before it serves, at each start.
	Register func(n *Node, s grpc.ServiceRegistrar)
	// BeforeRun is called at each start when the node is open and does not run yet: for OnApply.
	BeforeRun func(n *Node)
	// Network makes the connections from the next start on; nil: the machine's.
	Network peer.Network
}

// New makes a cluster of n nodes and starts them all; it waits for nothing.
func New(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	c := Prepare(t, n, opts...)
	for _, node := range c.Nodes {
		node.Start()
	}
	return c
}

// Prepare makes a cluster of n nodes and starts none.
func Prepare(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t, opts: opts}
	port, net3 := freePort(t), 1+rand.IntN(250)
	for i := range n {
		c.add(fmt.Sprintf("m%d", i+1), fmt.Sprintf("127.99.%d.%d:%d", net3, i+1, port))
	}
	return c
}

func freePort(t testing.TB) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

func (c *Cluster) add(id, addr string) *Node {
	n := c.newNode(id, addr, len(c.Nodes))
	c.Nodes = append(c.Nodes, n)
	return n
}

func (c *Cluster) newNode(id, addr string, i int) *Node {
	n := &Node{ID: id, Addr: addr, Dir: filepath.Join(c.t.TempDir(), id), c: c, i: i,
		log: new(logtest.Buffer)}
	c.t.Cleanup(func() {
		n.Stop()
		if c.t.Failed() {
			c.t.Logf("log of %s:\n%s", n.ID, n.log)
		}
	})
	return n
}

// Start starts a stopped node on its data directory.
func (n *Node) Start() {
	t := n.c.t
	t.Helper()
	if n.Node != nil {
		return
	}
	cfg := cluster.Config{
		ID: n.ID, Addr: n.Addr, Version: "test", ClusterID: ClusterID, JoinKey: joinKey(),
		DataDir:     n.Dir,
		JoinTimeout: 3 * time.Second, StaleLimit: 3 * time.Second, ServeWithout: 4 * time.Second,
		HeartbeatTimeout: 500 * time.Millisecond, AESGrace: 2 * time.Second, DemoteCooldown: time.Minute,
	}
	for _, other := range n.c.Nodes {
		if other != n {
			cfg.Peers = append(cfg.Peers, other.Addr)
		}
	}
	for _, o := range n.c.opts {
		o(n.i, &cfg)
	}
	level := slog.LevelDebug
	log := slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: level}))
	if err := os.MkdirAll(n.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	key, err := peer.LoadNodeKey(n.Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.SPKI, cfg.Pins = key.SPKI(), cluster.NewPins()
	cut := map[string]bool{}
	if n.pins != nil {
		cut = n.pins.cut
	}
	n.pins = &cutPins{Pins: cfg.Pins, cut: cut}
	reg := prometheus.NewRegistry()
	n.port, err = listen(peer.Config{
		Listen: n.Addr, Key: key, Pins: n.pins, Log: log, Registerer: reg, JoinTries: 1000,
		JoinTriesTotal: 1000, Network: n.Network,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Node, err = cluster.Open(cfg, n.port, log, reg)
	if err != nil {
		n.port.Close()
		t.Fatalf("open %s: %v", n.ID, err)
	}
	n.server = grpc.NewServer(n.port.ServerOptions()...)
	n.port.RegisterRPC(n.server)
	n.Node.RegisterRPC(n.server)
	if n.Register != nil {
		n.Register(n, n.server)
	}
	ln := n.port.RPCListener()
	server := n.server
	n.peerOK = make(chan error, 2)
	pctx, stop := context.WithCancel(context.Background())
	n.peerTo = stop
	port, node := n.port, n.Node
	go func() { n.peerOK <- server.Serve(ln) }()
	go func() { n.peerOK <- port.Serve(pctx) }()
	if n.BeforeRun != nil {
		n.BeforeRun(n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.ended = cancel, make(chan error, 1)
	ended := n.ended
	go func() { ended <- node.Run(ctx) }()
}

// listen binds an address that a node stopped a moment ago may still hold.
func listen(cfg peer.Config) (*peer.Port, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		p, err := peer.New(cfg)
		if err == nil || time.Now().After(deadline) {
			return p, err
		}
		cfg.Registerer = prometheus.NewRegistry()
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends a node in good order: leadership first.
func (n *Node) Stop() {
	n.c.t.Helper()
	if n.Node == nil {
		return
	}
	n.cancel()
	n.wait()
	n.unplug()
	n.Node = nil
}

// Kill ends a node as a crash looks to the others: its connections go first, nothing is handed
// over.
func (n *Node) Kill() {
	n.c.t.Helper()
	if n.Node == nil {
		return
	}
	n.unplug()
	n.cancel()
	n.wait()
	n.Node = nil
}

func (n *Node) wait() {
	n.c.t.Helper()
	select {
	case err := <-n.ended:
		if err != nil {
			n.c.t.Errorf("%s ended: %v", n.ID, err)
		}
	case <-time.After(Patience):
		n.c.t.Errorf("%s did not end", n.ID)
	}
}

// Reopen waits until the node has ended with cluster.ErrReopen, and starts it again.
func (n *Node) Reopen() {
	n.c.t.Helper()
	if err := n.Ended(); !errors.Is(err, cluster.ErrReopen) {
		n.c.t.Fatalf("%s ended with %v instead of ErrReopen", n.ID, err)
	}
	n.Start()
}

// Ended waits until the node has ended by itself, and returns its reason.
func (n *Node) Ended() error {
	n.c.t.Helper()
	var reason error
	select {
	case reason = <-n.ended:
	case <-time.After(Patience):
		n.c.t.Fatalf("%s did not end", n.ID)
	}
	n.unplug()
	n.cancel()
	n.Node = nil
	return reason
}

// Clone makes a node with a copy of the data directory of a stopped one, at another address. It is
// not started, and not among the cluster's nodes.
func (n *Node) Clone(addr string) *Node {
	n.c.t.Helper()
	clone := n.c.newNode(n.ID, addr, n.i)
	n.CopyDisk(clone.Dir)
	return clone
}

// CopyDisk copies the data directory of a stopped node to a new folder.
func (n *Node) CopyDisk(to string) {
	n.c.t.Helper()
	if n.Node != nil {
		n.c.t.Fatal("copy the disk of a running node")
	}
	copyDir(n.c.t, n.Dir, to)
}

// UseDisk replaces the data directory of a stopped node by a copy of it.
func (n *Node) UseDisk(from string) {
	n.c.t.Helper()
	n.Wipe()
	copyDir(n.c.t, from, n.Dir)
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(to, "node.key"), 0o600); err != nil { // which CopyFS changed
		t.Fatal(err)
	}
}

func (n *Node) unplug() {
	n.server.Stop()
	n.peerTo()
	<-n.peerOK
	<-n.peerOK
}

// Wipe removes the data directory of a stopped node: disk and node key are gone.
func (n *Node) Wipe() {
	n.c.t.Helper()
	if n.Node != nil {
		n.c.t.Fatal("wipe a running node")
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		n.c.t.Fatal(err)
	}
}

// Log is what the node has logged so far.
func (n *Node) Log() string { return n.log.String() }

// Isolate cuts nodes off from all others; raft and rpc between them and the rest end at once.
func (c *Cluster) Isolate(cut ...*Node) {
	inside := map[*Node]bool{}
	for _, n := range cut {
		inside[n] = true
	}
	for _, a := range c.Nodes {
		for _, b := range c.Nodes {
			if a.Node != nil && b.Node != nil && inside[a] != inside[b] {
				a.pins.setCut(b.Self().Node, true)
			}
		}
	}
	for _, a := range c.Nodes {
		for _, b := range c.Nodes {
			if a.Node != nil && b.Node != nil && inside[a] != inside[b] {
				a.port.Drop(b.Self().Node)
			}
		}
	}
}

// Heal ends all isolation.
func (c *Cluster) Heal() {
	for _, a := range c.Nodes {
		if a.pins != nil {
			a.pins.heal()
		}
	}
}

// Up lists the running nodes.
func (c *Cluster) Up() []*Node {
	var up []*Node
	for _, n := range c.Nodes {
		if n.Node != nil {
			up = append(up, n)
		}
	}
	return up
}

// Wait waits until f is nil.
func (c *Cluster) Wait(what string, f func() error) {
	c.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waited in vain: %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// WaitAll waits until f is nil for every running node.
func (c *Cluster) WaitAll(what string, f func(n *Node) error) {
	c.t.Helper()
	for _, n := range c.Up() {
		c.Wait(what+" on "+n.ID, func() error { return f(n) })
	}
}

// WaitReady waits until all running nodes are ready.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	c.WaitAll("ready", func(n *Node) error {
		if !n.Ready() {
			return errors.New("not ready")
		}
		return nil
	})
}

// WaitVoters waits until every running node sees n voters, all in the ring.
func (c *Cluster) WaitVoters(n int) {
	c.t.Helper()
	c.WaitAll(fmt.Sprintf("%d voters", n), func(node *Node) error {
		voters := 0
		for _, m := range node.Members() {
			if m.Voter {
				voters++
			}
		}
		if ring := len(node.State().Ring().Members); voters != n || ring != n {
			return fmt.Errorf("%d voters, %d in the ring", voters, ring)
		}
		return nil
	})
	c.WaitReady()
}

// Leader waits until the running nodes have a leader among them that has taken office.
func (c *Cluster) Leader() *Node {
	c.t.Helper()
	var leader *Node
	c.Wait("a leader", func() error {
		for _, n := range c.Up() {
			if n.IsLeader() {
				leader = n
				return nil
			}
		}
		return errors.New("none")
	})
	return leader
}

// Follower returns a running node that is not the leader.
func (c *Cluster) Follower() *Node {
	c.t.Helper()
	leader := c.Leader()
	for _, n := range c.Up() {
		if n != leader {
			return n
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// cutPins are pins that do not know the nodes that a test cut off.
type cutPins struct {
	*cluster.Pins
	mu  sync.Mutex // guards cut
	cut map[string]bool
}

func (p *cutPins) setCut(node string, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut[node] = cut
}

func (p *cutPins) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.cut)
}

func (p *cutPins) isCut(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut[node]
}

func (p *cutPins) NodeBySPKI(spki [32]byte) (string, bool) {
	node, ok := p.Pins.NodeBySPKI(spki)
	return node, ok && !p.isCut(node)
}

func (p *cutPins) SPKIOf(node string) ([32]byte, bool) {
	spki, ok := p.Pins.SPKIOf(node)
	return spki, ok && !p.isCut(node)
}

func (p *cutPins) AddrOf(node string) (string, bool) {
	addr, ok := p.Pins.AddrOf(node)
	return addr, ok && !p.isCut(node)
}
