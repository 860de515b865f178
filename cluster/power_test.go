package cluster_test

import (
	"fmt"
	"testing"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/test/powerdisk"
)

// A node that loses power after a snapshot, when its log has been cut, has all that it had
// acknowledged. Without the syncs of the snapshot this fails.
func TestPowerLossAfterASnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := powerdisk.Mount(t, dir, t.TempDir())
	c := clustertest.New(t, 1, func(_ int, cfg *cluster.Config) {
		cfg.DataDir, cfg.SnapshotThreshold = dir, 2
	})
	c.WaitVoters(1)
	n := c.Leader()
	for round := range 3 {
		for i := range 100 {
			propose(t, n, offer(fmt.Sprintf("minion%d-%d", round, i)))
		}
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		left := disk.Lose(t)
		n.Kill()
		disk.Return(t, left)
		n.Start()
		c.WaitAll("all keys", func(n *clustertest.Node) error {
			if keys, _ := n.State().Keys(); len(keys) != 100*(round+1) {
				return fmt.Errorf("%d keys", len(keys))
			}
			return nil
		})
	}
}
