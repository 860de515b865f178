package cluster_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
)

// TestAWrongClockHarmsNobody steps and drifts the clock of one of three masters, leader and
// follower in turns.
func TestAWrongClockHarmsNobody(t *testing.T) {
	t.Parallel()
	var wrong atomic.Int64 // what is added to the third one's clock
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		cfg.PublishSession = 30 * time.Minute
		if i == 2 {
			cfg.Now = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
		}
	})
	c.WaitVoters(3)
	c.WaitReady()
	ctx := patience(t)
	bad, good := c.Nodes[2], c.Nodes[0]
	epoch := good.State().AES().Active.Number
	token := func(n *clustertest.Node, hash byte) {
		t.Helper()
		propose(t, n, &fsm.PutToken{
			Token: fsm.Token{Hash: [32]byte{hash}, Owner: "pam/carol",
				Expire: n.Now().Add(12 * time.Hour)}, Max: 100, MaxPerOwner: 100, At: n.Now().UTC(),
		})
	}
	token(good, 1)
	check := func(what string, off time.Duration) {
		t.Helper()
		c.Wait(what+": all see it, and all have one time", func() error {
			for _, n := range c.Up() {
				for _, m := range n.Members() {
					want := time.Duration(0)
					if m.ID == bad.ID {
						want = off
					}
					if !m.ClockKnown || (m.ClockAhead-want).Abs() > 500*time.Millisecond {
						return fmt.Errorf("%s sees %s ahead by %v (%t), want %v", n.ID, m.ID,
							m.ClockAhead, m.ClockKnown, want)
					}
				}
				if d := time.Until(n.Now()).Abs(); d > 500*time.Millisecond {
					return fmt.Errorf("%s is off by %v", n.ID, d)
				}
				if n.ClocksDiffer() {
					return fmt.Errorf("%s can't tell who is right", n.ID)
				}
			}
			return nil
		})
		token(bad, byte(off.Hours())+2) // a login prunes what has expired
		if _, ok := good.State().Token([32]byte{1}); !ok {
			t.Errorf("%s: another's token is gone", what)
		}
		if got := good.State().AES().Active.Number; got != epoch {
			t.Errorf("%s: the AES key was rotated early, to epoch %d", what, got)
		}
	}
	for _, leads := range []*clustertest.Node{bad, good} {
		c.Wait(leads.ID+" leads", func() error {
			_,
				err := good.TransferLeader(ctx, leads.ID)
			return err
		})
		for _, off := range []time.Duration{time.Hour, 24 * time.Hour, -time.Hour,
			-24 * time.Hour} {
			wrong.Store(int64(off))
			check(fmt.Sprintf("%s leads, the clock is off by %v", leads.ID, off), off)
		}
	}
	for range 20 { // drifts by a minute
		wrong.Add(int64(3 * time.Second))
		c.Wait("the drift is followed", func() error {
			if d := time.Until(bad.Now()).Abs(); d > 500*time.Millisecond {
				return fmt.Errorf("off by %v", d)
			}
			return nil
		})
	}
	c.Wait("it is said", says(bad, "a master's clock is wrong"))
	c.Wait("it is said", says(good, "a master's clock is wrong"))
	wrong.Store(int64(20 * time.Second))
	c.Wait("within the limit it counts as right", func() error {
		if d := (time.Until(bad.Now()) - 20*time.Second).Abs(); d > 500*time.Millisecond {
			return fmt.Errorf("off by %v from its own clock", d)
		}
		return nil
	})
}

// TestFutureStampsDoNotStopRotation has a rotation that was stamped by a clock a day ahead.
func TestFutureStampsDoNotStopRotation(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	ahead.Store(int64(24 * time.Hour))
	c := clustertest.New(t, 1, func(_ int, cfg *cluster.Config) {
		cfg.PublishSession = time.Hour
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	c.WaitReady()
	n := c.Nodes[0]
	first := n.State().AES().Active
	ahead.Store(0) // somebody sets the clock
	c.Wait("the secrets of tomorrow are replaced", func() error {
		for _, e := range []fsm.Epoch{n.State().AES().Active, n.State().Session().Active} {
			if time.Until(e.At) > time.Minute {
				return fmt.Errorf("stamped %v", e.At)
			}
		}
		return nil
	})
	if now := n.State().AES(); now.Active.Number != first.Number+1 ||
		!slices.ContainsFunc(now.Old, func(e fsm.Epoch) bool { return e.Number == first.Number }) {
		t.Errorf("rotated to epoch %d from %d", now.Active.Number, first.Number)
	}
}
