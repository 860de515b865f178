package miniondata

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/hashring"
	"clustermaster/salt/target/targettest"
	"clustermaster/store/ringstore"
	"clustermaster/value"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// masters are some ring stores in one process that reach each other by gRPC over loopback sockets.
type masters struct {
	t    testing.TB
	dir  string
	opts ringstore.Options

	mu    sync.Mutex // guards all below
	ring  *hashring.Ring
	epoch uint64
	nodes map[string]*node
}

type node struct {
	all   *masters
	name  string
	addr  string
	store *ringstore.Store
	data  *Data
	grpc  *grpc.Server
	ln    net.Listener
	stop  context.CancelFunc
	done  chan struct{}
	conns map[string]*grpc.ClientConn
	up    bool
}

func newMasters(t testing.TB, names ...string) *masters {
	t.Helper()
	a := &masters{t: t, dir: t.TempDir(), nodes: map[string]*node{}, opts: ringstore.Options{
		Tick: 20 * time.Millisecond, StatusEvery: 50 * time.Millisecond,
		LookAgain: 10 * time.Millisecond, Compilers: compilers,
	}}
	t.Cleanup(func() {
		for _, n := range a.list() {
			n.kill()
		}
	})
	a.setRing(names...)
	a.settled()
	return a
}

// setRing starts those that do not run, and makes a ring of all that the cluster agrees on.
func (a *masters) setRing(names ...string) {
	a.t.Helper()
	a.mu.Lock()
	a.epoch++
	a.ring = hashring.New(names, 256, 3, a.epoch)
	a.mu.Unlock()
	for _, name := range names {
		if n := a.node(name); n == nil || !n.up {
			a.start(name)
		}
	}
}

func (a *masters) start(name string) {
	a.t.Helper()
	// Outgoing connections have ports of 127.0.0.1, so a node that starts again could find its own
	// port taken there.
	addr := fmt.Sprintf("127.97.%d.%d:0", 1+rand.IntN(250), 1+rand.IntN(250))
	n := &node{all: a, name: name, addr: addr, conns: map[string]*grpc.ClientConn{},
		done: make(chan struct{}), up: true}
	if old := a.node(name); old != nil {
		n.addr = old.addr
	}
	ln, err := net.Listen("tcp", n.addr)
	if err != nil {
		a.t.Fatal(err)
	}
	n.ln, n.addr = ln, ln.Addr().String()
	n.store, err = ringstore.Open(filepath.Join(a.dir, strings.ReplaceAll(name, "/", "_")), n,
		a.opts, nil, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	n.data = New(n.store, nil)
	n.grpc = grpc.NewServer()
	n.store.RegisterRPC(n.grpc)
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	a.mu.Lock()
	a.nodes[name] = n
	a.mu.Unlock()
	go n.grpc.Serve(ln)
	go func() {
		defer close(n.done)
		n.store.Run(ctx)
	}()
}

func (a *masters) node(name string) *node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[name]
}

func (a *masters) list() []*node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*node
	for _, n := range a.nodes {
		out = append(out, n)
	}
	return out
}

// settled waits until the members of the ring have settled on it.
func (a *masters) settled() {
	a.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, n := range a.list() {
		for slices.Contains(a.ring.Members(), n.name) && n.up &&
			(!n.store.Settled() || n.store.Info().Epoch != a.epoch) {
			if time.Now().After(deadline) {
				a.t.Fatalf("%s does not settle: %+v", n.name, n.store.Info())
			}
			time.Sleep(10 * time.Millisecond) // between looks at the condition
		}
	}
}

func (n *node) kill() {
	n.all.mu.Lock()
	up := n.up
	n.up = false
	n.all.mu.Unlock()
	if !up {
		return
	}
	n.grpc.Stop()
	n.ln.Close() // the server closes it only if it serves already
	n.stop()
	<-n.done
	if err := n.store.Close(); err != nil {
		n.all.t.Errorf("close %s: %v", n.name, err)
	}
	for _, c := range n.conns {
		c.Close()
	}
}

func (n *node) Self() string { return n.name }

func (n *node) Ring() *hashring.Ring {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	return n.all.ring
}

func (n *node) Members() []string { return n.Ring().Members() }

func (n *node) QuorumNeedsSelf() bool { return len(n.Members()) <= 2 }

func (n *node) Disowned() bool { return false }

func (n *node) Alive(name string) bool {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	other := n.all.nodes[name]
	return other != nil && other.up
}

func (n *node) Conn(name string) (grpc.ClientConnInterface, error) {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	other := n.all.nodes[name]
	if other == nil {
		return nil, fmt.Errorf("no way to %s", name)
	}
	if c := n.conns[other.addr]; c != nil {
		return c, nil
	}
	c, err := grpc.NewClient("passthrough:///"+other.addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	n.conns[other.addr] = c
	return c, nil
}

// source is what a master knows of a world of synthetic minions whose data lies on the ring.
func source(w *targettest.World, data *Data) *World {
	return NewWorld(w, data, true, w.Nodegroups)
}

// fill writes a world's data.
func (a *masters) fill(ctx context.Context, w *targettest.World) {
	a.t.Helper()
	for _, id := range w.IDs {
		if grains, ok := w.Grains[id]; ok {
			packed, err := value.Pack(grains)
			if err != nil {
				a.t.Fatal(err)
			}
			if err := a.node("m1/a").data.SetGrains(ctx, id, packed); err != nil {
				a.t.Fatal(err)
			}
		}
		if pillar, ok := w.Pillar[id]; ok {
			if err := a.node("m1/a").data.SetPillar(ctx, id, "", pillar); err != nil {
				a.t.Fatal(err)
			}
		}
	}
}

// accepted are ids with an accepted key.
type accepted []string

func (a accepted) AcceptedIDs() []string { return a }
