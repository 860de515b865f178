package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// journal is the least FSM: the entries in order.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) Apply(l *raft.Log) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, string(l.Data))
	return nil
}

func (j *journal) Snapshot() (raft.FSMSnapshot, error) { return nil, fmt.Errorf("none here") }
func (j *journal) Restore(r io.ReadCloser) error       { return r.Close() }

func (j *journal) has(entry string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.entries {
		if e == entry {
			return true
		}
	}
	return false
}

type raftMaster struct {
	*master
	raft  *raft.Raft
	trans *raft.NetworkTransport
	fsm   *journal
}

func (r *raftMaster) end() {
	_ = r.raft.Shutdown().Error()
	_ = r.trans.Close()
}

func newRaftMaster(t *testing.T, m *master) *raftMaster {
	t.Helper()
	log := hclog.NewNullLogger()
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: m.RaftLayer(), MaxPool: 3, Timeout: time.Second, Logger: log,
	})
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(m.node)
	cfg.Logger = log
	store, fsm := raft.NewInmemStore(), &journal{}
	r, err := raft.NewRaft(cfg, fsm, store, store, raft.NewInmemSnapshotStore(), trans)
	if err != nil {
		t.Fatal(err)
	}
	rm := &raftMaster{master: m, raft: r, trans: trans, fsm: fsm}
	t.Cleanup(rm.end)
	return rm
}

// leaderOf waits for a leader among these.
func leaderOf(t *testing.T, ms []*raftMaster) *raftMaster {
	t.Helper()
	i := -1
	eventually(t, "a leader", func() bool {
		i = slices.IndexFunc(ms,
			func(m *raftMaster) bool { return m.raft.State() == raft.Leader })
		return i >= 0
	})
	return ms[i]
}

func (r *raftMaster) apply(t *testing.T, entry string) {
	t.Helper()
	if err := r.raft.Apply([]byte(entry), 5*time.Second).Error(); err != nil {
		t.Fatalf("apply %s: %v", entry, err)
	}
}

// Three real Raft nodes over the layer: they elect, replicate, and go on when
// the leader's port ends; a removed one gets no more entries.
func TestRaftOverTheLayer(t *testing.T) {
	t.Parallel()
	pins, masters := newMasters(t, 3)
	var ms []*raftMaster
	var cfg raft.Configuration
	for _, m := range masters {
		cfg.Servers = append(cfg.Servers,
			raft.Server{ID: raft.ServerID(m.node), Address: raft.ServerAddress(m.node)})
		ms = append(ms, newRaftMaster(t, m))
	}
	if err := ms[0].raft.BootstrapCluster(cfg).Error(); err != nil {
		t.Fatal(err)
	}
	leader := leaderOf(t, ms)
	leader.apply(t, "one")
	for _, m := range ms {
		eventually(t, "one on "+m.node, func() bool { return m.fsm.has("one") })
	}

	leader.stop() // as a crash: the port is gone, its streams reset
	leader.end()
	var rest []*raftMaster
	for _, m := range ms {
		if m != leader {
			rest = append(rest, m)
		}
	}
	leader = leaderOf(t, rest)
	leader.apply(t, "two")
	for _, m := range rest {
		eventually(t, "two on "+m.node, func() bool { return m.fsm.has("two") })
	}

	// Unpin the follower: its streams end, and it can't get them back.
	follower := rest[0]
	if follower == leader {
		follower = rest[1]
	}
	pins.remove(follower.node)
	leader.Drop(follower.node)
	follower.Drop(leader.node)
	if err := leader.raft.Apply([]byte("three"), time.Second).Error(); err == nil {
		t.Error("an entry was committed with the help of a removed peer")
	}
	if follower.fsm.has("three") {
		t.Error("a removed peer got an entry")
	}
}

// A layer that Raft has closed can be opened again, and streams carry bulk.
func TestLayerReopensAndCarriesBulk(t *testing.T) {
	t.Parallel()
	_, ms := newMasters(t, 2)
	first := ms[1].RaftLayer()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Accept(); err == nil {
		t.Error("a closed layer accepts")
	}
	// With nobody to take it, a stream is refused as backlog, at once.
	if c, err := ms[0].RaftLayer().Dial(raft.ServerAddress(ms[1].node),
		time.Second); err == nil {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		readsNothing(t, c)
		c.Close()
	}
	eventually(t, "counted as backlog", func() bool { return ms[1].refusedFor("backlog") == 1 })

	layer := ms[1].RaftLayer()
	got := make(chan []byte, 1)
	go func() {
		var c net.Conn
		c, err := layer.Accept()
		if err != nil {
			got <- nil
			return
		}
		b, _ := io.ReadAll(c)
		got <- b
	}()
	c, err := ms[0].DialNode(context.Background(), ms[1].node)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("clustermaster"), 1<<17)
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if b := <-got; !bytes.Equal(b, want) {
		t.Errorf("got %d bytes, sent %d", len(b), len(want))
	}
}

// The end of a layer doesn't wait for peers that say nothing: neither for an answer nor for a
// hand-shake.
func TestLayerCloseEndsWhatWaits(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 2, func(c *Config) { c.HandshakeTimeout = time.Hour })
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	pins.add("mute", [32]byte{1}, mute.Addr().String())

	layer := ms[0].RaftLayer()
	c, err := layer.Dial(raft.ServerAddress(ms[1].node), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		_, err := layer.Dial("mute", time.Hour)
		ended <- err
	}()
	greeted, err := mute.Accept() // the second is in its hand-shake
	if err != nil {
		t.Fatal(err)
	}
	defer greeted.Close()
	if err := layer.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("no error")
			}
		case <-time.After(time.Minute):
			t.Fatal("something still waits for a silent peer")
		}
	}
	if _, err := layer.Dial(raft.ServerAddress(ms[1].node), time.Minute); err == nil {
		t.Error("a closed layer dials")
	}
}
