package ringstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// kit is some stores in one process that reach each other by gRPC over loopback sockets.
type kit struct {
	t    testing.TB
	opts Options
	now  *shiftClock
	dir  string
	// host is of this kit alone: the port of a node that is down is free, and on 127.0.0.1 clients
	// of all tests of this machine have their ports.
	host string

	mu    sync.Mutex // guards all below
	nodes map[string]*kitNode
	ring  *hashring.Ring
	epoch uint64
	also  []string           // members beside those of the ring
	cut   map[[2]string]bool // who does not reach whom
	// who takes requests and answers none, as when stopped by a signal
	hung map[string]bool
	slow map[string]chan struct{} // nodes whose answers wait for its end
	old  map[string]bool          // who knows no questions, as the program did once
}

type kitNode struct {
	kit   *kit
	name  string
	dir   string
	store *Store
	addr  string
	grpc  *grpc.Server
	stop  context.CancelFunc
	done  chan struct{}
	ln    net.Listener
	conns map[string]*grpc.ClientConn
	up    bool
	log   *slog.Logger
	ring  *hashring.Ring // nil: the kit's; else what this node has heard of
	// the others have a quorum without it, for it is no voter or was removed
	spare bool
	// another one refuses its node key
	disowned bool
}

// shiftClock is the real clock, moved.
type shiftClock struct {
	mu    sync.Mutex
	shift time.Duration
}

func (c *shiftClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.shift)
}

func (c *shiftClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift += d
}

func newKit(t testing.TB, names ...string) *kit {
	t.Helper()
	k := &kit{t: t, dir: t.TempDir(), now: &shiftClock{}, nodes: map[string]*kitNode{},
		host: fmt.Sprintf("127.98.%d.%d", 1+rand.IntN(250), 1+rand.IntN(250)),
		cut:  map[[2]string]bool{}, hung: map[string]bool{}, old: map[string]bool{}}
	k.opts = Options{Now: k.now.Now, Tick: 20 * time.Millisecond,
		ExpireEvery: 50 * time.Millisecond, StatusEvery: 50 * time.Millisecond,
		LookAgain: 10 * time.Millisecond, Compilers: map[Space]Compiler{SpaceMinions: fields{}}}
	t.Cleanup(func() {
		for _, n := range k.all() {
			n.kill()
		}
	})
	k.begin(names...)
	return k
}

// begin starts the members of a first ring.
func (k *kit) begin(names ...string) {
	k.setRing(names...)
	for _, n := range names {
		k.start(n)
	}
}

func (k *kit) all() []*kitNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []*kitNode
	for _, n := range k.nodes {
		out = append(out, n)
	}
	return out
}

// setRing makes a new ring of these members the one that the cluster agreed on.
func (k *kit) setRing(names ...string) {
	k.mu.Lock()
	also := k.also
	k.mu.Unlock()
	k.setMembers(also, names...)
}

// setMembers is setRing with members beside those of the ring. Both change at once: a master that
// is a member throughout must never seem to be none.
func (k *kit) setMembers(also []string, names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.also = also
	k.epoch++
	k.ring = hashring.New(names, 64, 3, k.epoch)
}

func (k *kit) node(name string) *kitNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[name]
}

func (k *kit) store(name string) *Store { return k.node(name).store }

// start starts a node, with the disk that it had if it ran before.
func (k *kit) start(name string) *kitNode {
	k.t.Helper()
	n := k.node(name)
	if n == nil {
		n = &kitNode{kit: k, name: name,
			dir: filepath.Join(k.dir, strings.ReplaceAll(name, "/", "_"))}
		k.mu.Lock()
		k.nodes[name] = n
		k.mu.Unlock()
	}
	log := n.log
	if os.Getenv("RINGSTORE_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
	}
	n.conns = map[string]*grpc.ClientConn{}
	addr := n.kit.host + ":0"
	if n.addr != "" {
		addr = n.addr
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		k.t.Fatal(err)
	}
	s, err := Open(n.dir, n, k.opts, log, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(n.hangUnary), grpc.StreamInterceptor(n.hangStream))
	s.RegisterRPC(g)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	k.mu.Lock()
	n.store, n.grpc, n.addr, n.stop, n.done, n.up = s, g, ln.Addr().String(), cancel, done, true
	n.ln = ln
	k.mu.Unlock()
	go g.Serve(ln)
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return n
}

// kill stops a node; nothing that it acknowledged may depend on an orderly end, and the crash test
// has the disorderly one.
func (n *kitNode) kill() {
	n.kit.mu.Lock()
	up := n.up
	n.up = false
	n.kit.mu.Unlock()
	if !up {
		return
	}
	n.grpc.Stop()
	n.ln.Close() // the server closes it only if it serves already
	n.stop()
	<-n.done
	if err := n.store.Close(); err != nil {
		n.kit.t.Errorf("close %s: %v", n.name, err)
	}
	for _, c := range n.conns {
		c.Close()
	}
}

// isolate cuts a node off from all others, or joins it again.
func (k *kit) isolate(name string, cut bool) {
	for _, other := range k.all() {
		if other.name != name {
			k.cutLine(name, other.name, cut)
		}
	}
}

// cutLine cuts the line between two nodes, or joins it again.
func (k *kit) cutLine(a, b string, cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut[[2]string{a, b}], k.cut[[2]string{b, a}] = cut, cut
}

func (k *kit) hang(name string, hung bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hung[name] = hung
}

func (n *kitNode) isHung() bool {
	n.kit.mu.Lock()
	defer n.kit.mu.Unlock()
	return n.kit.hung[n.name]
}

func (n *kitNode) hangUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
	h grpc.UnaryHandler) (any, error) {
	if n.isHung() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n.kit.mu.Lock()
	slow := n.kit.slow[n.name]
	n.kit.mu.Unlock()
	if slow != nil {
		<-slow
	}
	return h(ctx, req)
}

func (n *kitNode) hangStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
	h grpc.StreamHandler) error {
	n.kit.mu.Lock()
	old := n.kit.old[n.name]
	n.kit.mu.Unlock()
	if old && info.FullMethod == ringpb.Ring_Ask_FullMethodName {
		return status.Error(codes.Unimplemented, "unknown method Ask")
	}
	if n.isHung() {
		<-ss.Context().Done()
		return ss.Context().Err()
	}
	return h(srv, ss)
}

func (n *kitNode) Self() string { return n.name }

func (n *kitNode) Ring() *hashring.Ring {
	n.kit.mu.Lock()
	defer n.kit.mu.Unlock()
	if n.ring != nil {
		return n.ring
	}
	return n.kit.ring
}

func (n *kitNode) Members() []string {
	n.kit.mu.Lock()
	defer n.kit.mu.Unlock()
	if n.ring != nil {
		return n.ring.Members()
	}
	return append(slices.Clone(n.kit.ring.Members()), n.kit.also...)
}

func (n *kitNode) QuorumNeedsSelf() bool {
	members := len(n.Members())
	n.kit.mu.Lock()
	defer n.kit.mu.Unlock()
	return !n.spare && members <= 2
}

func (n *kitNode) Disowned() bool {
	n.kit.mu.Lock()
	defer n.kit.mu.Unlock()
	return n.disowned
}

func (n *kitNode) Alive(node string) bool {
	n.kit.mu.Lock()
	defer n.kit.mu.Unlock()
	other := n.kit.nodes[node]
	return other != nil && other.up && !n.kit.cut[[2]string{n.name, node}]
}

func (n *kitNode) Conn(node string) (grpc.ClientConnInterface, error) {
	n.kit.mu.Lock()
	defer n.kit.mu.Unlock()
	other := n.kit.nodes[node]
	if other == nil || other.addr == "" || n.kit.cut[[2]string{n.name, node}] {
		return nil, fmt.Errorf("no way to %s", node)
	}
	if c := n.conns[node]; c != nil {
		return c, nil
	}
	c, err := grpc.NewClient("passthrough:///"+other.addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, err
	}
	n.conns[node] = c
	return c, nil
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond) // between looks at the condition
	}
}

// settled waits until all nodes have settled on the newest ring and caught up with each other.
func (k *kit) settled() {
	k.t.Helper()
	eventually(k.t, "ring settles", func() error {
		for _, n := range k.all() {
			if !n.up || !slices.Contains(k.ring.Members(), n.name) {
				continue
			}
			if !n.store.Settled() || n.store.Info().Epoch != k.epoch {
				return fmt.Errorf("%s: %+v", n.name, n.store.Info())
			}
			if !n.store.heard.caughtUp(n.Alive) {
				return fmt.Errorf("%s has not caught up", n.name)
			}
			if hints, _ := n.store.disk.OwedTotals(); hints > 0 &&
				len(k.all()) == len(k.ring.Members()) {
				return fmt.Errorf("%s owes %d", n.name, hints)
			}
		}
		return nil
	})
}

// contactNoted lets so much time pass that all nodes note on disk that they are in contact.
func (k *kit) contactNoted() {
	k.t.Helper()
	k.now.add(2 * contactEvery)
	from := uint64(k.now.Now().Unix())
	eventually(k.t, "contact is noted", func() error {
		for _, n := range k.all() {
			b, err := n.store.disk.Note(contactNote)
			if err != nil || len(b) != 8 || binary.BigEndian.Uint64(b) < from {
				return fmt.Errorf("%s: %v, %v", n.name, b, err)
			}
		}
		return nil
	})
}

// notices waits until a node knows that another one is away.
func (k *kit) notices(name, away string) {
	k.t.Helper()
	eventually(k.t, name+" notices that "+away+" is away", func() error {
		h := &k.store(name).heard
		h.mu.Lock()
		defer h.mu.Unlock()
		if p := h.peers[away]; p == nil || p.lost.IsZero() {
			return errors.New("not yet")
		}
		return nil
	})
}

// holds reports that a record is on the node's disk; it has none before it knows a ring.
func (n *kitNode) holds(k Key) bool {
	v := n.store.view.Load()
	if v == nil {
		return false
	}
	_, ok, err := n.store.disk.Get(k, v.Latest().Partition(k.Place))
	if err != nil {
		n.kit.t.Fatal(err)
	}
	return ok
}

// foreign are the cells on a disk that a ring gives to others.
func foreign(s *Store, ring *hashring.Ring) []disk.Sum {
	return slices.DeleteFunc(s.disk.Digest(0, nil, true),
		func(x disk.Sum) bool { return ring.Owns(s.self, int(x.Partition)) })
}
