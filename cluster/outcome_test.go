package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
)

// A leader that is cut off in mid-order can't know whether the others take over its entry; one that
// finds no leader knows that nothing was sent.
func TestUnknownOutcomeIsToldAsUnknown(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second // of a leader that is cut off, in which it must begin the order
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.HeartbeatTimeout = lease })
	c.WaitVoters(3)
	acquainted(c)
	leader := c.Leader()
	var gone string
	for _, n := range others(c, leader) {
		gone = n.Self().Node
	}
	c.Isolate(leader)
	order := &fsm.RemoveMember{Node: gone, Bar: true, At: time.Now().UTC()}
	ctx, cancel := context.WithTimeout(t.Context(), 3*lease)
	defer cancel()
	_, _, err := leader.Propose(ctx, order)
	var unknown *cluster.UnknownOutcomeError
	if !errors.As(err, &unknown) || !errors.Is(err, cluster.ErrNoQuorum) {
		t.Fatalf("the leader says: %v", err)
	}
	if !strings.Contains(err.Error(), "it may still happen; check with salt-run cluster.members") {
		t.Errorf("the leader says: %v", err)
	}
	c.Wait("no leader is known", func() error {
		if _, led := leader.Leader(); led {
			return errors.New("one is")
		}
		return nil
	})
	ctx, cancel = context.WithTimeout(t.Context(), lease)
	defer cancel()
	_, _, err = leader.Propose(ctx, order)
	if !errors.Is(err, cluster.ErrNoQuorum) || errors.As(err, &unknown) {
		t.Errorf("without a leader: %v", err)
	}
}

// A removal that was committed after its proposer had given up, or died, leaves secrets that the
// removed one knows. The leader rotates them, once.
func TestLateRemovalIsFollowedByItsRotations(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.OwedAfter = time.Second })
	c.WaitVoters(3)
	leader := c.Leader()
	gone := others(c, leader)[0]
	before := leader.Secrets()
	propose(t, leader, &fsm.RemoveMember{Node: gone.Self().Node, Bar: true, At: time.Now().UTC()})
	rotated := func() error {
		now := leader.Secrets()
		if now.AES[0].Epoch == before.AES[0].Epoch ||
			now.Session[0].Epoch == before.Session[0].Epoch {
			return fmt.Errorf("AES epoch %d, session epoch %d", now.AES[0].Epoch,
				now.Session[0].Epoch)
		}
		return nil
	}
	c.Wait("both secrets are rotated", rotated)
	after := leader.Secrets()
	// of a second each, in which it would rotate again
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	<-ctx.Done()
	now := leader.Secrets()
	if now.AES[0].Epoch != after.AES[0].Epoch || now.Session[0].Epoch != after.Session[0].Epoch {
		t.Errorf("rotated again: AES epoch %d after %d", now.AES[0].Epoch, after.AES[0].Epoch)
	}
}
