package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
)

// Two of three disks are lost: the wiped masters found no second cluster, the survivor changes
// nothing, all name the way out; after it there is one cluster again, with the keys of the old one
// and another uuid.
func TestTwoOfThreeWipedRecover(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	propose(t, c.Leader(), offer("web1"))
	survivor := c.Nodes[2] // the founder by address is among the wiped
	c.WaitAll("key known", func(n *clustertest.Node) error {
		if _, ok := n.State().Key("web1"); !ok {
			return errors.New("not yet")
		}
		return nil
	})
	if _, err := survivor.Recover(patience(t), clustertest.ClusterID); err == nil ||
		!strings.Contains(err.Error(), "there is a quorum") {
		t.Errorf("recovery of a healthy cluster: %v", err)
	}
	old, _ := survivor.State().Cluster()
	for _, n := range c.Nodes[:2] {
		n.Kill()
		n.Wipe()
	}
	for _, n := range c.Nodes[:2] {
		n.Start()
	}
	for _, n := range c.Nodes[:2] {
		c.Wait(n.ID+" is told the way out",
			says(n, "if they are lost for good, see salt-run cluster.recover"))
		if cl, founded := n.State().Cluster(); founded {
			t.Errorf("%s has founded a cluster of its own: %s", n.ID, cl.UUID)
		}
	}
	if _, _, err := survivor.Propose(patience(t), offer("web2")); !errors.Is(err,
		cluster.ErrNoQuorum) {
		t.Errorf("the survivor takes a key alone: %v", err)
	}
	_, err := survivor.Recover(patience(t), "")
	if err == nil || !strings.Contains(err.Error(), "nothing done yet") ||
		!strings.Contains(err.Error(), "confirm="+clustertest.ClusterID) {
		t.Fatalf("recovery without confirmation: %v", err)
	}
	lost, err := survivor.Recover(patience(t), clustertest.ClusterID)
	if err != nil || len(lost) != 2 {
		t.Fatalf("recover: %v %v", lost, err)
	}
	survivor.Reopen()
	c.WaitVoters(3) // the wiped ones join it by themselves
	for _, n := range c.Nodes {
		cl, _ := n.State().Cluster()
		if _, ok := n.State().Key("web1"); !ok || cl.UUID == old.UUID || cl.UUID == "" {
			t.Errorf("%s: key known %v, uuid %s was %s", n.ID, ok, cl.UUID, old.UUID)
		}
	}
	propose(t, c.Nodes[0], offer("web2"))
	// A restart of the recovered one begins nothing again.
	cl, _ := survivor.State().Cluster()
	survivor.Stop()
	survivor.Start()
	c.WaitVoters(3)
	if now, _ := survivor.State().Cluster(); now.UUID != cl.UUID {
		t.Error("recovered twice")
	}
}

// Two of three masters have no leader, but may elect one: each answers the other.
func TestRecoveryWaitsForAMajorityThatAnswers(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.HeartbeatTimeout = time.Minute })
	c.WaitVoters(3)
	acquainted(c)
	leader := c.Leader()
	rest := others(c, leader)
	leader.Kill()
	_, err := rest[0].Recover(patience(t), clustertest.ClusterID)
	if err == nil || !strings.Contains(err.Error(), "nothing done: 2 of 3 voters answer") {
		t.Errorf("two of three without a leader: %v", err)
	}
	rest[1].Kill()
	c.Wait("it recovers alone", func() error {
		_, err := rest[0].Recover(patience(t), clustertest.ClusterID)
		return err
	})
}

// One that was given up comes back with its old disk: it is refused by name, and takes no part.
func TestGivenUpMasterIsRefusedByName(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	for _, n := range c.Nodes[1:] {
		n.Kill()
	}
	survivor := c.Nodes[0]
	c.Wait("no quorum", func() error {
		if _, err := survivor.Recover(patience(t), "not the id"); err == nil ||
			!strings.Contains(err.Error(), "nothing done yet") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	if _, err := survivor.Recover(patience(t), clustertest.ClusterID); err != nil {
		t.Fatal(err)
	}
	survivor.Reopen()
	c.Wait("leads alone", func() error {
		if !survivor.IsLeader() || len(survivor.Members()) != 1 {
			return fmt.Errorf("%d members", len(survivor.Members()))
		}
		return nil
	})
	back := c.Nodes[1]
	back.Start()
	c.Wait("refused by name", says(back, "move its data directory to another place"))
	if len(survivor.Members()) != 1 || back.Ready() {
		t.Error("it takes part")
	}
}

func TestSnapshotsArePrivate(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 1, func(_ int, cfg *cluster.Config) { cfg.Found = true })
	c.WaitVoters(1)
	if err := c.Nodes[0].Snapshot(); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(c.Nodes[0].Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("%d files looked at: %v", files, err)
	}
}

// A wiped master is nobody's voter: with one other master it makes no majority, although the old
// one would have. Once there is a majority without it, it comes in under a new name, and holds no
// share under the old one.
func TestWipedMasterNeitherVotesTwiceNorCountsAsCopy(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	c.WaitReady()
	wiped, alive, away := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	old, epoch := wiped.Self().Node, alive.State().Ring().Epoch
	away.Kill()
	wiped.Kill()
	wiped.Wipe()
	wiped.Start()
	c.Wait("it has asked and was told that there is no quorum", says(wiped, "no quorum"))
	if alive.IsLeader() || wiped.IsLeader() || wiped.Serving() {
		t.Errorf("leader: %v, %v; the wiped one serves: %v", alive.IsLeader(), wiped.IsLeader(),
			wiped.Serving())
	}
	if _, _, err := alive.Propose(patience(t), offer("web1")); !errors.Is(err,
		cluster.ErrNoQuorum) {
		t.Errorf("a key is taken with the help of an empty voter: %v", err)
	}
	if wiped.Self().Node == old {
		t.Error("it has its old incarnation")
	}
	away.Start()
	c.WaitVoters(3)
	c.WaitAll("the new incarnation has a share, the old one none", func(n *clustertest.Node) error {
		ring := n.State().Ring()
		if ring.Epoch == epoch || len(ring.Members) != 3 || slices.Contains(ring.Members, old) ||
			!slices.Contains(ring.Members, wiped.Self().Node) {
			return fmt.Errorf("ring %d of %v", ring.Epoch, ring.Members)
		}
		if _, ok := n.State().MemberByNode(old); ok {
			return errors.New("the old incarnation is still a member")
		}
		return nil
	})
	propose(t, wiped, offer("web1"))
}
