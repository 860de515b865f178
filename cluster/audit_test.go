package cluster

import (
	"testing"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/serve/origin"
)

// Below level 2 members would stop at an audited command, so none is made; from then on it says who
// ordered it.
func TestAuditBeginsWithTheLevel(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	n := &Node{state: fsm.New(), self: fsm.Member{ID: "m1"}}
	n.cfg.Now = func() time.Time { return now }
	n.state.Apply(1, &fsm.Found{
		Cluster: fsm.Cluster{UUID: "u", Partitions: 1},
		Member:  fsm.Member{ID: "m1", Incarnation: "1", Node: "m1/1"},
		AES:     "a", Session: []byte("s"), At: now,
	})
	ctx := origin.With(t.Context(), origin.Origin{User: "carol", Eauth: "pam", From: "192.0.2.1",
		Order: "cluster.rotate_secret"})
	order := &fsm.SetJoinKey{JoinKey: []byte("k")}
	if c, err := n.audited(ctx, order); err != nil || c != fsm.Command(order) {
		t.Errorf("at level 1: %T, %v", c, err)
	}
	n.state.Apply(2, &fsm.SetLevel{Level: 2, Release: "0.2.0", At: now})
	offer := &fsm.OfferKey{ID: "minion"}
	if c, err := n.audited(ctx, offer); err != nil || c != fsm.Command(offer) {
		t.Errorf("a minion's request: %T, %v", c, err)
	}
	c, err := n.audited(ctx, order)
	a, ok := c.(*fsm.Audited)
	want := fsm.Orderer{At: now, Master: "m1", User: "carol", Eauth: "pam", From: "192.0.2.1",
		Order: "cluster.rotate_secret"}
	if err != nil || !ok || a.By != want {
		t.Errorf("ordered: %+v, %v", c, err)
	}
	c, err = n.audited(t.Context(), order)
	a, ok = c.(*fsm.Audited)
	want = fsm.Orderer{At: now, Master: "m1", From: "the master itself", Automatic: true}
	if err != nil || !ok || a.By != want {
		t.Errorf("by nobody: %+v, %v", c, err)
	}
}
