package cluster_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
)

// faultyLog is raft's log on a disk that can hang, or refuse what is written.
type faultyLog struct {
	cluster.RaftLog
	gate    sync.RWMutex // held while the disk hangs
	refuses atomic.Bool
}

func openFaulty(dir string) (*faultyLog, error) {
	store, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
	return &faultyLog{RaftLog: store}, err
}

func (l *faultyLog) StoreLogs(entries []*raft.Log) error {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.refuses.Load() {
		return syscall.EIO
	}
	return l.RaftLog.StoreLogs(entries)
}

// faultyCluster is three masters whose logs can be faulty.
func faultyCluster(t *testing.T, change func(*cluster.Config)) (*clustertest.Cluster, []*faultyLog) {
	t.Helper()
	logs := make([]*faultyLog, 3)
	c := clustertest.New(t, len(logs), func(i int, cfg *cluster.Config) {
		cfg.OpenLog = func(dir string) (_ cluster.RaftLog, err error) {
			logs[i], err = openFaulty(dir)
			return logs[i], err
		}
		change(cfg)
	})
	c.WaitVoters(len(logs))
	acquainted(c)
	return c, logs
}

// hang lets a log hang until the returned function is called.
func (l *faultyLog) hang(t *testing.T) (release func()) {
	l.gate.Lock()
	release = sync.OnceFunc(l.gate.Unlock)
	t.Cleanup(release)
	return release
}

func accept(id string) fsm.Command {
	key := fsm.Key{ID: id, State: fsm.KeyAccepted, Pub: "a key"}
	return &fsm.ImportKeys{Keys: []fsm.Key{key}, At: time.Now().UTC()}
}

// TestLeaderWhoseDiskHangs: the disk of the leader hangs while its process, its network and so its
// heartbeats are well. Another master leads within seconds; without that nothing could be changed
// before the disk comes back. Then the former leader follows, and has what it missed.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	var writing atomic.Int64
	c, logs := faultyCluster(t, func(cfg *cluster.Config) {
		cfg.Writing = func() func() {
			writing.Add(1)
			return func() { writing.Add(-1) }
		}
	})
	old := c.Leader()
	rest := others(c, old)
	release := logs[slices.Index(c.Nodes, old)].hang(t)

	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, _, err := rest[0].Propose(soon, accept("during"))
	t.Logf("the order that finds the disk hanging: %v", err)
	c.Wait("another master leads", func() error {
		for _, n := range rest {
			if led, ok := n.Leader(); !ok || led == old.Self().Node {
				return errors.New(n.ID + " knows no other leader")
			}
		}
		return nil
	})
	propose(t, rest[0], accept("web1"))
	propose(t, rest[1], accept("web2"))
	if writing.Load() == 0 {
		t.Error("the write that hangs is not told")
	}
	if !strings.Contains(old.Log(), "the disk hangs") {
		t.Error("the log of the former leader doesn't say why it gave up")
	}

	release()
	for _, id := range []string{"web1", "web2"} {
		c.WaitAll(id+" is known", hasKey(id))
	}
	propose(t, old, accept("web3"))
	c.WaitAll("web3 is known", hasKey("web3"))
}

// TestFollowerWhoseDiskHangs: a follower hears its leader, but can't take what that tells. So it is
// not ready once its state is too old, and ready again when it has caught up.
func TestFollowerWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	c, logs := faultyCluster(t, func(*cluster.Config) {})
	leader := c.Leader()
	follower := others(c, leader)[0]
	release := logs[slices.Index(c.Nodes, follower)].hang(t)
	propose(t, leader, accept("web1"))
	c.Wait("the follower is not ready", func() error {
		if follower.Ready() {
			return errors.New("it is")
		}
		return nil
	})
	if _, led := follower.Leader(); !led {
		t.Error("the follower does not hear the leader")
	}
	release()
	c.WaitAll("web1 is known", hasKey("web1"))
	c.Wait("the follower is ready", func() error {
		if !follower.Ready() {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestStartBehindTheLeader: a master that was away hears its leader, but can't take yet what it
// missed. It serves no minion from its old state, however long that lasts.
func TestStartBehindTheLeader(t *testing.T) {
	t.Parallel()
	const late = 2
	hang, release := false, func() {}
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		cfg.ServeWithout = serveWithout + time.Second
		if i == late && hang {
			cfg.OpenLog = func(dir string) (cluster.RaftLog, error) {
				log, err := openFaulty(dir)
				release = log.hang(t)
				return log, err
			}
		}
	})
	c.WaitVoters(3)
	away := c.Nodes[late]
	for _, id := range []string{"web1", "web2"} { // its disk shows by web2 that web1 was agreed on
		propose(t, away, accept(id))
	}
	away.Stop()
	propose(t, c.Leader(), &fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
		From: fsm.StateSet(fsm.KeyAccepted), At: time.Now().UTC()})
	hang = true
	minions := &ports{}
	away.BeforeRun = func(n *clustertest.Node) { minions.follow(t, n) }
	away.Start()
	for range 2 { // a look at the leader takes it a second
		minions.never(t, away, "behind the leader that it hears")
	}
	if _, led := away.Leader(); !led || hasKey("web1")(away) != nil {
		t.Errorf("it hears a leader: %v; the deletion: %v", led, hasKey("web1")(away))
	}
	release()
	c.WaitVoters(3)
	if hasKey("web1")(away) == nil {
		t.Error("it serves with a key that was deleted")
	}
}

// TestRefusedLogEndsTheMaster: the disk answers an error. The master confirms nothing, and ends
// with a line that says why.
func TestRefusedLogEndsTheMaster(t *testing.T) {
	t.Parallel()
	var log *faultyLog
	n, ended := untilItEnds(t, cluster.Config{ID: "m1", DataDir: t.TempDir(),
		OpenLog: func(dir string) (_ cluster.RaftLog, err error) {
			log, err = openFaulty(dir)
			return log, err
		}})
	log.refuses.Store(true)
	if _, _, err := n.Propose(patience(t), accept("web1")); err == nil {
		t.Error("an order was confirmed that is not on the disk")
	}
	err := <-ended
	if err == nil || !strings.Contains(err.Error(), "refuses raft's log") ||
		!strings.Contains(err.Error(), syscall.EIO.Error()) {
		t.Errorf("it ended with %v", err)
	}
}
