package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

// alone runs a stand-alone node until the test ends or stop is called.
func alone(t *testing.T, cfg cluster.Config) (n *cluster.Node, stop func()) {
	t.Helper()
	cfg.ID = "m1"
	n, err := cluster.Open(cfg, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n, running(t, n)
}

// running runs a node until the test ends or stop is called.
func running(t *testing.T, n *cluster.Node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func serving(t *testing.T, n *cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := n.WaitServing(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAloneFoundsWithTheKeyThatIsThere(t *testing.T) {
	t.Parallel()
	key, err := wire.GeneratePrivateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	pem := filepath.Join(t.TempDir(), "master.pem")
	if err := os.WriteFile(pem, key.PEM(), 0o400); err != nil {
		t.Fatal(err)
	}
	calls := 0
	cfg := cluster.Config{
		DataDir: filepath.Join(t.TempDir(), "data"),
		FoundingKeys: []cluster.FoundingKey{
			{From: "absent", Read: func() ([]byte, error) { return os.ReadFile(pem + ".absent") }},
			{From: pem, Read: func() ([]byte, error) { return os.ReadFile(pem) }},
		},
		OnFounded: func(ctx context.Context, n *cluster.Node) error {
			if calls++; calls == 1 {
				return errors.New("first attempt breaks")
			}
			_, _, err := n.Propose(ctx,
				&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyAccepted, Pub: "P"}},
					At: time.Now().UTC()})
			return err
		},
	}
	n, stop := alone(t, cfg)
	serving(t, n)
	if calls != 2 {
		t.Errorf("OnFounded ran %d times before serving, want 2", calls)
	}
	if got := n.ClusterKey().Public().Text(); got != key.Public().Text() {
		t.Error("another cluster key")
	}
	if _, ok := n.State().Key("web1"); !ok {
		t.Error("import is missing while serving")
	}
	if !n.Ready() || len(n.Members()) != 1 || n.Ring().Replicas() != 1 ||
		len(n.Secrets().AES) != 1 {
		t.Errorf("ready %v, members %d", n.Ready(), len(n.Members()))
	}
	if un := n.ConfirmEverywhere(t.Context(), n.State().AppliedIndex()); un != nil {
		t.Errorf("unconfirmed: %v", un)
	}
	uuid, _ := n.State().Cluster()
	stop()
	n, _ = alone(t, cfg)
	again, ok := n.State().Cluster()
	if !ok || again.UUID != uuid.UUID {
		t.Error("another cluster after restart")
	}
	serving(t, n)
	if calls != 2 {
		t.Error("OnFounded ran again after a restart")
	}
}

// TestAloneMakesNoOtherKey founds without the key that minions know: only an operator's order makes
// another one.
func TestAloneMakesNoOtherKey(t *testing.T) {
	t.Parallel()
	lost := errors.New("minions know another key")
	cfg := cluster.Config{ID: "m1", DataDir: filepath.Join(t.TempDir(), "data"),
		MayMakeKey: func() error { return lost }}
	n, err := cluster.Open(cfg, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.Run(ctx); !errors.Is(err, lost) {
		t.Errorf("it ended with %v", err)
	}
	if _, founded := n.State().Cluster(); founded {
		t.Error("it founded")
	}
	cfg.Found = true
	n, _ = alone(t, cfg)
	serving(t, n)
}

// untilItEnds starts a stand-alone master that is to end by itself, within 40 s, and returns when
// it serves; ended gets the result of Run.
func untilItEnds(t *testing.T, cfg cluster.Config) (n *cluster.Node, ended <-chan error) {
	t.Helper()
	n, err := cluster.Open(cfg, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	t.Cleanup(cancel)
	end := make(chan error, 1)
	go func() { end <- n.Run(ctx) }()
	serving(t, n)
	return n, end
}

// TestDeletedDataDirectoryEndsTheMaster deletes the data directory of a master that serves: it must
// not acknowledge anything more.
func TestDeletedDataDirectoryEndsTheMaster(t *testing.T) {
	t.Parallel()
	cfg := cluster.Config{ID: "m1", DataDir: filepath.Join(t.TempDir(), "data")}
	_, ended := untilItEnds(t, cfg)
	if err := os.Rename(cfg.DataDir, cfg.DataDir+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("it ended with %v", err)
	}
}

// A stand-alone master has no leader to wait for, at its first start and later.
func TestAloneWaitsForNoLeader(t *testing.T) {
	t.Parallel()
	cfg := cluster.Config{DataDir: t.TempDir(), HeartbeatTimeout: time.Hour}
	for range 2 {
		n, stop := alone(t, cfg)
		serving(t, n)
		if !n.IsLeader() {
			t.Error("serves without leading")
		}
		stop()
	}
}

func TestSnapshotAndReplay(t *testing.T) {
	t.Parallel()
	cfg := cluster.Config{DataDir: filepath.Join(t.TempDir(), "data")}
	n, stop := alone(t, cfg)
	serving(t, n)
	for i := range 400 {
		if _, _, err := n.Propose(t.Context(), offer(fmt.Sprintf("web%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	n, stop = alone(t, cfg)
	// the last one may wait for the leader's no-op
	if keys, _ := n.State().Keys(); len(keys) < 399 {
		t.Errorf("%d keys right after Open", len(keys))
	}
	serving(t, n)
	if keys, _ := n.State().Keys(); len(keys) != 400 {
		t.Errorf("%d keys", len(keys))
	}
	stop()
}

func TestFollowersHearEveryChangeInOrder(t *testing.T) {
	t.Parallel()
	cfg := cluster.Config{ID: "m1", DataDir: filepath.Join(t.TempDir(), "data")}
	n, err := cluster.Open(cfg, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	type heard struct {
		index  uint64
		change fsm.Change
	}
	changes := make(chan heard, 100)
	n.OnApply(func(index uint64, c fsm.Change) { changes <- heard{index, c} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	serving(t, n)
	if _, _, err := n.Propose(ctx, offer("a")); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; !c.change.Restored {
		t.Errorf("first: %+v", c)
	}
	last := uint64(0)
	for {
		select {
		case c := <-changes:
			if c.index <= last {
				t.Errorf("index %d after %d", c.index, last)
			}
			last = c.index
			if c.change.Op == fsm.OpOfferKey {
				if len(c.change.Keys) != 1 || c.change.Keys[0].Key.ID != "a" {
					t.Errorf("got %+v", c.change)
				}
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the change was not told")
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, err := cluster.Open(cluster.Config{ID: "m1", DataDir: dir}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	lost := t.TempDir()
	if err := os.MkdirAll(filepath.Join(lost, "raft"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lost, "raft", "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cfg  cluster.Config
		want string
	}{
		{"another id", cluster.Config{ID: "m2", DataDir: dir},
			`belongs to the master "m1", not to "m2": give each master its own cachedir`},
		{"another id, further remedy", cluster.Config{ID: "m2", DataDir: dir, WholeDir: "/srv/whole"},
			`if "m1" has ended for good, move /srv/whole to another place, as a copy of its keys. Nothing was changed`},
		{"no id", cluster.Config{DataDir: dir}, "must be set and contain no slash"},
		{"a log without identity", cluster.Config{ID: "m1", DataDir: lost},
			"has a raft log but no identity.json"},
		{"an address without a port", cluster.Config{ID: "m1", DataDir: dir, Addr: "127.0.0.1:1",
			ClusterID: "c", JoinKey: []byte("k")}, "go together"},
		{"no secret", cluster.Config{ID: "m1", DataDir: dir, Addr: "127.0.0.1:1", ClusterID: "c"},
			"cluster_secret"},
	}
	for _, tt := range tests {
		if _, err := cluster.Open(tt.cfg, nil, nil, nil); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestAloneRefusesLargeCommands(t *testing.T) {
	t.Parallel()
	n, _ := alone(t, cluster.Config{DataDir: t.TempDir()})
	serving(t, n)
	keys := make([]fsm.Key, 100) // each within its bounds
	for i := range keys {
		keys[i] = fsm.Key{
			ID:    fmt.Sprintf("web%d", i),
			State: fsm.KeyPending,
			Pub:   strings.Repeat("k", 48<<10),
		}
	}
	_, _, err := n.Propose(t.Context(), &fsm.ImportKeys{Keys: keys, At: time.Now()})
	if _, known := n.State().Key("web1"); !errors.Is(err, cluster.ErrTooLarge) || known {
		t.Errorf("got %v, key known: %v", err, known)
	}
}

// Of masters that begin in one data directory at the same time one has it, and the others change
// nothing there.
func TestOneDataDirectoryIsOneMasters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nodes, errs := make([]*cluster.Node, 3), make([]error, 3)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			nodes[i], errs[i] = cluster.Open(cluster.Config{ID: fmt.Sprintf("m%d", i),
				DataDir: dir}, nil, nil, nil)
		})
	}
	wg.Wait()
	owner := ""
	for i, n := range nodes {
		if errs[i] == nil {
			owner += n.Self().ID
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		} else if !strings.Contains(errs[i].Error(), "give each master its own cachedir") {
			t.Error(errs[i])
		}
	}
	n, err := cluster.Open(cluster.Config{ID: owner, DataDir: dir}, nil, nil, nil)
	if err != nil {
		t.Fatalf("the directory is not %q's: %v", owner, err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
