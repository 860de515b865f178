package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/transport/peer"
)

// ports stands for the minion ports: whether they are open, and how often they were opened.
type ports struct {
	open   atomic.Bool
	opened atomic.Int32
}

func (p *ports) follow(t *testing.T, n *clustertest.Node) {
	node, ctx := n.Node, t.Context()
	go func() {
		_ = node.WhileServing(ctx, func(ctx context.Context) error {
			p.opened.Add(1)
			p.open.Store(true)
			<-ctx.Done()
			p.open.Store(false)
			return nil
		})
	}()
}

func (p *ports) closed() error {
	if p.open.Load() {
		return errors.New("its ports are open")
	}
	return nil
}

// never fails the test if the ports open during the time in which a master without a leader begins
// to serve.
func (p *ports) never(t *testing.T, n *clustertest.Node, why string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(serveWithout + time.Second); time.Now().Before(end); <-tick.C {
		if p.open.Load() || n.Serving() {
			t.Fatalf("%s: it serves", why)
		}
	}
}

const serveWithout = 2 * time.Second

// A removed member closes its ports at once, and opens them neither beside dead peers, nor from a
// disk of before the removal with a secret that is older still, before it is allowed; then it
// catches up first.
func TestRemovedServesNoMore(t *testing.T) {
	t.Parallel()
	var secret atomic.Pointer[[]byte] // of those that start
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) {
		cfg.ServeWithout = serveWithout
		if k := secret.Load(); k != nil {
			cfg.JoinKey = *k
		}
	})
	c.WaitVoters(3)
	for _, n := range c.Nodes { // a member refuses the key of one that it has not heard of yet
		if strings.Contains(n.Log(), "refuse its node key") {
			t.Errorf("%s held itself for removed while others joined", n.ID)
		}
	}
	by := c.Leader()
	gone := others(c, by)[0]
	gone.Stop()
	image := t.TempDir()
	if err := os.CopyFS(image, os.DirFS(gone.Dir)); err != nil {
		t.Fatal(err)
	}
	minions := &ports{}
	gone.BeforeRun = func(n *clustertest.Node) { minions.follow(t, n) }
	gone.Start()
	c.WaitVoters(3)
	c.Wait("it serves", func() error {
		if !minions.open.Load() {
			return errors.New("its ports are closed")
		}
		return nil
	})
	if _, err := by.RotateSecret(patience(t)); err != nil { // the image is older than this secret
		t.Fatal(err)
	}
	begin := time.Now()
	done, err := by.Remove(patience(t), gone.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	c.Wait("it is disowned", func() error {
		if !gone.Node.Peers().Disowned() || by.Node.Peers().Disowned() {
			return fmt.Errorf("%v, the leader %v", gone.Node.Peers().Disowned(), by.Node.Peers().Disowned())
		}
		return nil
	})
	c.Wait("its ports close", minions.closed)
	t.Logf("ports closed %v after the order", time.Since(begin))
	c.Wait("told why", says(gone, "was removed from the cluster"))

	gone.Stop()
	rest := c.Up()
	for _, n := range rest {
		n.Stop()
	}
	gone.Start()
	minions.never(t, gone, "restarted beside dead peers")
	gone.Stop()
	for _, n := range rest {
		n.Start()
	}
	c.WaitVoters(2)

	gone.Wipe()
	err = errors.Join(os.CopyFS(gone.Dir, os.DirFS(image)),
		os.Chmod(filepath.Join(gone.Dir, "node.key"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	turnedAway := saysAnew(gone, "refuse its node key")
	begin = time.Now()
	gone.Start()
	c.Wait("it is turned away", turnedAway)
	if took := time.Since(begin); took < time.Second { // twice HeartbeatTimeout
		t.Errorf("it held itself for removed after %v: so would a joiner whose admission is on its way",
			took)
	}
	minions.never(t, gone, "started from an old disk")
	gone.Stop()

	key := peer.JoinKey(done.Secret, clustertest.ClusterID)
	secret.Store(&key)
	told := saysAnew(gone, "see salt-run cluster.allow")
	gone.Start()
	c.Wait("told to ask for cluster.allow", told)
	minions.never(t, gone, "with the present secret")
	if ok, err := c.Leader().Allow(patience(t), gone.ID); err != nil || !ok {
		t.Fatalf("allow: %v %v", ok, err)
	}
	c.WaitVoters(3)
	c.Wait("its ports open", func() error {
		if !minions.open.Load() {
			return errors.New("they are closed")
		}
		return nil
	})
	if n := minions.opened.Load(); n != 2 {
		t.Errorf("its ports were opened %d times", n)
	}
}

// A member that holds itself for removed, though the others count on it, asks them and serves.
func TestNotRemovedAfterAll(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	wrong := others(c, c.Leader())[0]
	wrong.Stop()
	note := filepath.Join(wrong.Dir, "removed.json")
	err := os.WriteFile(note, []byte(`{"at": "2026-11-23T05:52:17Z", "by": ""}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	wrong.Start()
	if wrong.Serving() {
		t.Error("it serves before it has asked")
	}
	c.WaitVoters(3)
	if _, err := os.Stat(note); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note is still there: %v", err)
	}
}
