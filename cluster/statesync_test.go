package cluster_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
)

// A joiner that still copies roots gets neither a vote nor a share of the data; every member sees
// how far it is.
func TestAJoinerIsPromotedOnceItsRootsAreThere(t *testing.T) {
	t.Parallel()
	var copying atomic.Bool
	copying.Store(true)
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		if i != 2 {
			return
		}
		cfg.StateSync = func() cluster.SyncState {
			if !copying.Load() {
				return cluster.SyncState{FileHead: 7}
			}
			return cluster.SyncState{Joining: true, Bytes: 30, BytesTotal: 120, Rate: 10,
				ETA: 9 * time.Second}
		}
	})
	joiner := c.Nodes[2]
	seen := func(n *clustertest.Node) (cluster.Member, bool) {
		i := slices.IndexFunc(n.Members(), func(m cluster.Member) bool { return m.ID == joiner.ID })
		if i < 0 {
			return cluster.Member{}, false
		}
		return n.Members()[i], true
	}
	for _, n := range c.Nodes {
		c.Wait(n.ID+" sees the joiner copying", func() error {
			m, ok := seen(n)
			want := cluster.SyncState{Joining: true, Bytes: 30, BytesTotal: 120, Rate: 10,
				ETA: 9 * time.Second}
			if !ok || m.Sync != want || m.Sync.Percent() != 25 {
				return fmt.Errorf("it sees %+v", m)
			}
			return nil
		})
	}
	c.Wait("the other two vote", func() error {
		if got := len(c.Nodes[0].Ring().Members()); got != 2 {
			return fmt.Errorf("%d are in the ring", got)
		}
		return nil
	})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if m, _ := seen(c.Nodes[0]); m.Voter || m.Serving ||
			slices.Contains(c.Nodes[0].Ring().Members(), m.Node) {
			t.Fatalf("promoted before its roots were there: %+v", m)
		}
	}
	copying.Store(false)
	for _, n := range c.Nodes {
		c.Wait(n.ID+" sees the joiner vote", func() error {
			if m, _ := seen(n); !m.Voter || !m.Serving ||
				m.Sync != (cluster.SyncState{FileHead: 7}) {
				return fmt.Errorf("it sees %+v", m)
			}
			return nil
		})
	}
}
