package cluster_test

import (
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
	term := n.Term()
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
	c.WaitVoters(3)
	propose(t, n, offer("after the clone"))
	for _, m := range c.Nodes {
		record, _ := m.State().MemberByID(n.ID)
		if m.Term() != term || record.Addr != n.Addr || strings.Contains(m.Log(), "peer has moved") {
			t.Errorf("%s has the term %d after %d, and %s at %s", m.ID, m.Term(), term, n.ID, record.Addr)
		}
	}
}
