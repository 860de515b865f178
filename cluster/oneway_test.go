package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
)

// oneWayStale is Config.StaleLimit of these tests.
const oneWayStale = 5 * time.Second

// oneWay is the network of a node that can be kept from dialling others. They can still dial it.
type oneWay struct {
	mu     sync.Mutex // guards all below
	barred map[string]bool
	open   map[string][]net.Conn // by the address dialled
}

// Listen implements peer.Network.
func (w *oneWay) Listen(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}

// Dial implements peer.Network.
func (w *oneWay) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.barred[addr] {
		c.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: c.RemoteAddr(), Err: syscall.ECONNREFUSED}
	}
	w.open[addr] = append(w.open[addr], c)
	return c, nil
}

// bar ends what was dialled to a node and refuses to dial it.
func (w *oneWay) bar(to *clustertest.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.barred[to.Addr] = true
	for _, c := range w.open[to.Addr] {
		c.Close()
	}
	delete(w.open, to.Addr)
}

// keep refuses to dial a node anew, so this one can't relay to it; what was dialled stays open.
func (w *oneWay) keep(to *clustertest.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.barred[to.Addr] = true
}

func (w *oneWay) unbar() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.barred)
}

// startOneWay starts three nodes that can be kept from dialling each other.
func startOneWay(t *testing.T) (*clustertest.Cluster, map[*clustertest.Node]*oneWay) {
	t.Helper()
	c := clustertest.Prepare(t, 3, func(_ int, cfg *cluster.Config) {
		// no election, and no silence, only because the machine is busy
		cfg.HeartbeatTimeout, cfg.StaleLimit = 2*time.Second, oneWayStale
	})
	nets := map[*clustertest.Node]*oneWay{}
	for _, n := range c.Nodes {
		nets[n] = &oneWay{barred: map[string]bool{}, open: map[string][]net.Conn{}}
		n.Network = nets[n]
		n.Start()
	}
	c.WaitVoters(3)
	acquainted(c)
	return c, nets
}

// refusesFor waits for the error of a change at n, which must name a leader that n can't call.
func refusesFor(c *clustertest.Cluster, n, leader *clustertest.Node) {
	c.Wait("a change at "+n.ID+" names "+leader.ID, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), oneWayStale)
		defer cancel()
		_, _, err := n.Propose(ctx, offer("web1"))
		var nq *cluster.NoQuorumError
		if !errors.As(err, &nq) || nq.Leader != leader.ID || nq.Reachable != 2 || nq.Voters != 3 ||
			!strings.Contains(err.Error(), leader.ID+", the leader as far as this master knows, does not answer it") {
			return fmt.Errorf("it says: %w", err)
		}
		return nil
	})
}

func readyIs(n *clustertest.Node, want bool) func() error {
	return func() error {
		if n.Ready() != want {
			return fmt.Errorf("%s: ready is %v", n.ID, !want)
		}
		return nil
	}
}

// Masters that hear the leader but can't call it stay ready for StaleLimit, and say whom they can't
// call. Another leader mends it.
func TestFollowersThatCantCallTheLeader(t *testing.T) {
	t.Parallel()
	c, nets := startOneWay(t)
	leader := c.Leader()
	followers := others(c, leader)
	began := time.Now()
	for _, f := range followers {
		nets[f].bar(leader)
	}
	for _, f := range followers {
		if !f.Ready() && time.Since(began) < oneWayStale/2 {
			t.Errorf("%s is not ready after %v", f.ID, time.Since(began))
		}
	}
	for _, f := range followers {
		refusesFor(c, f, leader)
		c.Wait("not ready", readyIs(f, false))
		if !f.Serving() {
			t.Errorf("%s does not serve", f.ID)
		}
	}
	if !leader.IsLeader() || !leader.Ready() {
		t.Errorf("the leader leads: %v, is ready: %v", leader.IsLeader(), leader.Ready())
	}
	next := followers[0]
	c.Wait("another leader", func() error {
		// the former leader does not hear of its success
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := leader.TransferLeader(ctx, next.ID)
		if next.IsLeader() {
			return nil
		}
		return err
	})
	for _, f := range followers {
		c.Wait("ready", readyIs(f, true))
		propose(t, f, offer("of-"+f.ID))
	}
}

// A master that can't call the new leader is ready for StaleLimit from the change on, whenever that
// one last answered. If it does not hear the leader either, it still says whom it lacks.
func TestNewLeaderThatCantBeCalled(t *testing.T) {
	t.Parallel()
	c, nets := startOneWay(t)
	first := c.Leader()
	next, lone := others(c, first)[0], others(c, first)[1]
	nets[first].keep(next)
	nets[lone].bar(next)
	c.Wait("no answer for long", func() error {
		for _, m := range lone.Members() {
			if m.Node == next.Self().Node && time.Since(m.LastContact) > oneWayStale+time.Second {
				return nil
			}
		}
		return errors.New("heard")
	})
	if !lone.Ready() {
		t.Error("not ready although the leader answers")
	}
	if _, err := first.TransferLeader(patience(t), next.ID); err != nil {
		t.Fatal(err)
	}
	var changed time.Time
	c.Wait("not ready", func() error {
		if l, _ := lone.Leader(); l != next.Self().Node {
			return fmt.Errorf("the leader of %s is %q", lone.ID, l)
		}
		if changed.IsZero() {
			changed = time.Now()
		}
		return readyIs(lone, false)()
	})
	if d := time.Since(changed); d < oneWayStale/2 {
		t.Errorf("not ready %v after the change of the leader", d)
	}
	refusesFor(c, lone, next)

	nets[first].keep(lone)
	nets[next].bar(lone) // now it hears nothing from it either
	c.Wait("no leader", func() error {
		if l, ok := lone.Leader(); ok {
			return fmt.Errorf("the leader of %s is %q", lone.ID, l)
		}
		return nil
	})
	refusesFor(c, lone, next)
	for _, n := range nets {
		n.unbar()
	}
	c.WaitReady()
	propose(t, lone, offer("web2"))
}

// A master that starts, hears its leader and can call nobody serves what it has, as one that hears
// none does.
func TestAStartThatCanCallNobody(t *testing.T) {
	t.Parallel()
	c, nets := startOneWay(t)
	n := c.Follower()
	n.Stop()
	for _, other := range c.Up() {
		nets[n].bar(other)
	}
	n.Start()
	c.Wait("it serves", func() error {
		if !n.Serving() {
			return errors.New(n.NotServing())
		}
		return nil
	})
	if _, led := n.Leader(); !led {
		t.Error("it hears no leader")
	}
}

// What a master waits for before it calls a change of keys done follows from how long others may be
// ready: a silent one is ready anew from a change of the leader on.
func TestSilentMayBeReadyAfterAChangeOfLeader(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	first := c.Leader()
	silent := c.Follower()
	index := propose(t, first, offer("web1"))
	silent.Stop()
	unconfirmed := func() []string {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return first.ConfirmEverywhere(ctx, index)
	}
	c.Wait("nobody waits for one that is silent", func() error {
		if un := unconfirmed(); len(un) > 0 {
			return fmt.Errorf("unconfirmed: %v", un)
		}
		return nil
	})
	c.Wait("it counts again since another leads", func() error {
		un := unconfirmed()
		if slices.Contains(un, silent.ID) {
			return nil
		}
		leader := c.Leader()
		_, err := leader.TransferLeader(patience(t), others(c, leader)[0].ID)
		return errors.Join(fmt.Errorf("unconfirmed: %v; another is asked to lead", un), err)
	})
}
