package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

// backupOf is what a cluster with n keys saves; each call gives other keys.
func backupOf(t *testing.T, n int) fsm.Saved {
	t.Helper()
	key, err := wire.GeneratePrivateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	aes, err := wire.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	saved := fsm.Saved{ClusterKey: string(key.PEM()), AES: aes.String(), Session: make([]byte, 32)}
	pem := strings.Repeat("k", 451) // of 2048 bits
	for i := range n {
		saved.Keys = append(saved.Keys, fsm.Key{ID: fmt.Sprintf("minion%d-%d", n, i), Pub: pem,
			State: fsm.KeyAccepted, Since: time.Now().UTC(), Index: uint64(i + 1)})
	}
	return saved
}

func keyCount(n *clustertest.Node) int {
	keys, _ := n.State().Keys()
	return len(keys)
}

// hasKeys waits for that many keys.
func hasKeys(want int) func(n *clustertest.Node) error {
	return func(n *clustertest.Node) error {
		if got := keyCount(n); got != want {
			return fmt.Errorf("%d keys, want %d", got, want)
		}
		return nil
	}
}

// Many keys come back, all at once for whoever looks, and the cluster takes other commands
// meanwhile.
func TestLargeRestore(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	for _, n := range []int{10_000, 30_000} {
		by := c.Follower()
		saved := backupOf(t, n)
		propose(t, by, offer("stray"))
		ctx, cancel := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		others := 0
		first, last := saved.Keys[0].ID, saved.Keys[len(saved.Keys)-1].ID
		for _, node := range c.Nodes {
			watch.Go(func() {
				for ctx.Err() == nil {
					_, some := node.State().Key(first)
					_, all := node.State().Key(last)
					_, old := node.State().Key("stray")
					if some && (!all || old) {
						t.Errorf("%s has the first key of the backup, the last %v, one that isn't in it %v", node.ID, all, old)
						return
					}
					<-time.After(time.Millisecond)
				}
			})
		}
		watch.Go(func() {
			for ctx.Err() == nil {
				if _, _, err := c.Leader().Propose(ctx, fsm.Noop{}); err == nil {
					others++
				}
			}
		})
		began := time.Now()
		_, err := by.PutBack(t.Context(), saved)
		took := time.Since(began)
		cancel()
		watch.Wait()
		t.Logf("%d keys took %v, with %d other commands meanwhile", n, took, others)
		if err != nil {
			t.Fatal(err)
		}
		if others < 10 {
			t.Errorf("only %d other commands were taken meanwhile", others)
		}
		c.WaitAll("all keys", hasKeys(n))
	}
}

// begun waits until a node has parts of a restore.
func begun(c *clustertest.Cluster, by *clustertest.Node) {
	c.Wait("parts arrive", func() error {
		if _, ok := by.State().Unfinished(); !ok {
			return errors.New("none")
		}
		return nil
	})
}

// The leader dies in the middle of a restore: it goes on with the next one. Its own master dies:
// nothing comes back, and another try has all.
func TestRestoreIsCutShort(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	const n = 10_000
	by, leader := c.Follower(), c.Leader()
	saved := backupOf(t, n)
	ended := make(chan error, 1)
	go func() {
		_, err := by.PutBack(t.Context(), saved)
		ended <- err
	}()
	begun(c, by)
	leader.Kill()
	if err := <-ended; err != nil {
		t.Errorf("without the leader: %v", err)
	}
	c.WaitAll("all keys", hasKeys(n))
	leader.Start()
	c.WaitReady()
	c.WaitAll("all keys", hasKeys(n))

	saved.Keys = saved.Keys[:n/2]
	by = c.Follower()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := by.PutBack(ctx, saved)
		ended <- err
	}()
	begun(c, by)
	cancel()
	if err := <-ended; err == nil {
		t.Error("a restore without its master came to its end")
	}
	by.Kill()
	c.WaitAll("the keys from before", hasKeys(n))
	if _, err := c.Leader().PutBack(t.Context(), saved); err != nil {
		t.Error(err)
	}
	c.WaitAll("the keys of the other try", hasKeys(n/2))
}

const orderWaits = 11 * time.Second // an order waits for 10 s

// A master that is cut off in the middle of a restore goes on with it when it has the others back.
func TestRestoreOutlivesACut(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	const n = 10_000
	by := c.Follower()
	ended := make(chan error, 1)
	go func() {
		_, err := by.PutBack(t.Context(), backupOf(t, n))
		ended <- err
	}()
	begun(c, by)
	c.Isolate(by)
	cut := time.Now()
	c.Wait("it misses the others for longer than an order waits", func() error {
		if err := by.ReadIndex(t.Context()); !errors.Is(err, cluster.ErrNoQuorum) {
			return fmt.Errorf("read index: %w", err)
		}
		if lasts := time.Since(cut); lasts < orderWaits {
			return fmt.Errorf("since %v", lasts)
		}
		return nil
	})
	if len(ended) > 0 {
		t.Fatalf("the restore ended before: %v", <-ended)
	}
	c.Heal()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	c.WaitAll("all keys", hasKeys(n))
}

// The leader dies in the middle of a restore, and no other is elected for longer than one order
// waits: the restore waits for longer.
func TestRestoreWaitsForALeader(t *testing.T) {
	t.Parallel()
	const n, lease = 10_000, orderWaits
	patient := false
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) {
		if patient {
			cfg.HeartbeatTimeout = lease
		}
	})
	c.WaitVoters(3)
	leader := c.Leader()
	patient = true
	for _, node := range c.Nodes {
		if node != leader {
			node.Kill()
			node.Start()
			c.WaitReady()
		}
	}
	by := c.Follower()
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := by.PutBack(t.Context(), backupOf(t, n))
		ended <- err
	}()
	begun(c, by)
	leader.Kill()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < lease {
		t.Errorf("after %v; there was a leader before", took)
	}
	c.WaitAll("all keys", hasKeys(n))
}
