package cluster_test

import (
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
)

// A clone of a member ends, and says why at each further start. Nobody takes it for the member.
func TestClonedMember(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	n := c.Follower()
	n.Stop()
	clone := n.Clone(movedAddr(t, n.Addr))
	n.Start()
	c.WaitVoters(3)
	clone.Start()
	err := clone.Ended()
	want := "the master " + n.ID + " runs at " + n.Addr
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the clone ended with %v", err)
	}
	_, err = cluster.Open(cluster.Config{ID: n.ID, Version: "test", DataDir: clone.Dir}, nil, nil, nil)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the clone started again: %v", err)
	}
	if strings.Contains(clone.Log(), "pre-vote successful") {
		t.Error("most masters would have voted for the clone")
	}
	c.WaitVoters(3)
	propose(t, n, offer("after the clone"))
	for _, m := range c.Nodes {
		record, _ := m.State().MemberByID(n.ID)
		if record.Addr != n.Addr || strings.Contains(m.Log(), "peer has moved") {
			t.Errorf("%s has %s at %s", m.ID, n.ID, record.Addr)
		}
	}
}

// A majority of masters is put back to older copies of their disks, and agrees on something else
// where the newest one has what all had agreed on. That one ends, and keeps what it knows until an
// operator has decided who is right.
func TestMajorityPutBack(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	newest, older := c.Nodes[0], c.Nodes[1:]
	copies := t.TempDir()
	for _, n := range older {
		n.Stop()
		n.CopyDisk(filepath.Join(copies, n.ID))
		n.Start()
		c.WaitVoters(3)
	}
	propose(t, newest, offer("before"))
	propose(t, newest, offer("next")) // the log shows by it that the former one is committed
	c.WaitAll("the key", hasKey("next"))
	for _, n := range c.Nodes {
		n.Stop()
	}
	for _, n := range older {
		n.UseDisk(filepath.Join(copies, n.ID))
		n.Start()
	}
	propose(t, older[0], offer("after"))
	for range 2 {
		newest.Start()
		if err := newest.Ended(); err == nil || !strings.Contains(err.Error(), "the leader lacks entry") {
			t.Errorf("it ended with %v", err)
		}
	}

	// The operator keeps what the newest one has.
	for _, n := range older {
		n.Stop()
		n.Wipe()
	}
	newest.Start()
	c.Wait("recovery", func() error {
		_, err := newest.Recover(patience(t), clustertest.ClusterID)
		return err
	})
	newest.Reopen()
	c.WaitVoters(1)
	for _, n := range older {
		n.Start()
	}
	c.WaitVoters(3)
	c.WaitAll("the key", hasKey("before"))
	if _, found := older[0].State().Key("after"); found {
		t.Error("what the others agreed on without the newest one is there")
	}
}
