package cluster_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
)

// hangingLog is raft's log on a disk that can hang: writes then wait until it is released.
type hangingLog struct {
	cluster.RaftLog
	gate sync.RWMutex // held while the disk hangs
}

func (l *hangingLog) StoreLogs(entries []*raft.Log) error {
	l.gate.RLock()
	defer l.gate.RUnlock()
	return l.RaftLog.StoreLogs(entries)
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
	logs := make([]*hangingLog, 3)
	var writing atomic.Int64
	c := clustertest.New(t, len(logs), func(i int, cfg *cluster.Config) {
		cfg.OpenLog = func(dir string) (cluster.RaftLog, error) {
			store, err := raftboltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
			logs[i] = &hangingLog{RaftLog: store}
			return logs[i], err
		}
		cfg.Writing = func() func() {
			writing.Add(1)
			return func() { writing.Add(-1) }
		}
	})
	c.WaitVoters(len(logs))
	acquainted(c)
	old := c.Leader()
	rest := others(c, old)
	hung := logs[slices.Index(c.Nodes, old)]
	hung.gate.Lock()
	release := sync.OnceFunc(hung.gate.Unlock)
	t.Cleanup(release)

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
