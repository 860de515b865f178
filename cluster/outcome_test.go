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

// An order whose answer was lost comes out once there is a quorum: as done, with its result, or as
// not done so far.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		heartbeat time.Duration // longer than the cut, or shorter
		done      bool
	}{
		{"the leader stays in office", 30 * time.Second, true},
		{"the leader is replaced", time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.HeartbeatTimeout = tt.heartbeat })
			c.WaitVoters(3)
			acquainted(c)
			leader := c.Leader()
			key := fsm.Key{ID: "web1", State: fsm.KeyAccepted, Pub: "a key"}
			propose(t, leader, &fsm.ImportKeys{Keys: []fsm.Key{key}, At: time.Now().UTC()})
			c.Isolate(leader)
			soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, _, lost := leader.Propose(soon, &fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"web1"},
				From: fsm.StateSet(fsm.KeyAccepted), At: time.Now().UTC()})
			if !errors.As(lost, new(*cluster.UnknownOutcomeError)) {
				t.Fatalf("the leader says: %v", lost)
			}
			if _, _, err := leader.Settle(soon, lost); err != lost {
				t.Errorf("without a quorum: %v", err)
			}
			if !tt.done {
				c.Wait("another leader", func() error {
					for _, n := range others(c, leader) {
						if n.IsLeader() {
							return nil
						}
					}
					return errors.New("none leads")
				})
			}
			c.Heal()
			r, index, err := leader.Settle(patience(t), lost)
			_, there := leader.State().Key("web1")
			switch {
			case tt.done && (err != nil || len(r.Keys) != 1 || r.Keys[0].From != fsm.KeyAccepted || index == 0 ||
				there):
				t.Errorf("%+v, index %d, error %v; the key is there: %t", r, index, err, there)
			case !tt.done && (err != lost || !there):
				t.Errorf("%+v, error %v; the key is there: %t", r, err, there)
			}
			other := errors.New("another one")
			if _, _, err := leader.Settle(t.Context(), other); err != other {
				t.Errorf("another error: %v", err)
			}
		})
	}
}

// A staged AES key that its proposer does not activate is activated by the leader.
func TestStagedKeyIsActivated(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.OwedAfter = time.Second })
	c.WaitVoters(3)
	proposer := c.Follower()
	epoch, err := proposer.StageAES(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	if active := proposer.State().AES().Active.Number; epoch <= active {
		t.Fatalf("epoch %d is staged, %d is active", epoch, active)
	}
	proposer.Kill()
	c.WaitAll("the staged key seals", func(n *clustertest.Node) error {
		if active := n.Secrets().AES[0].Epoch; active != epoch {
			return fmt.Errorf("epoch %d, want %d", active, epoch)
		}
		return nil
	})
}

// Of two AES keys that are staged at the same time, the later one serves both.
func TestLaterStagedKeyServesBoth(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 1)
	c.WaitReady()
	n := c.Nodes[0]
	active := func() uint64 { return n.State().AES().Active.Number }
	first, err := n.StageAES(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := n.StageAES(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, epoch := range []uint64{first, second, first} {
		if err := n.ActivateAES(patience(t), epoch); err != nil || active() != second {
			t.Errorf("epoch %d: %v; %d is active", epoch, err, active())
		}
	}
	var refused *cluster.RefusedError
	if err := n.ActivateAES(patience(t), second+1); !errors.As(err, &refused) || active() != second {
		t.Errorf("a key that was never staged: %v", err)
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
