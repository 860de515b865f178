package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestMinority: the side of a partition without a majority takes no key and no member, and says
// why. It continues to serve the minions that it knows, and has the others' history afterwards. The
// leader is the one cut off, and must notice.
func TestMinority(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "")
	lone := c.Leader(t, c.Masters[0])
	majority := c.Others(lone)
	known := accepted(t, lone, "known")
	waiting, gone := newMinion(t, "waiting"), accepted(t, lone, "gone")
	waiting.comes(t, lone)

	isolate(t, c.net, c.Masters, lone)
	missing := []string{"no quorum", "1 of 3", majority[0].ID, majority[1].ID}
	e2e.Eventually(t, healed, "the majority elects another leader", func() error {
		v, err := membersOf(t, majority[0])
		if err == nil && (v.Leader == "" || v.Leader == lone.ID) {
			err = errors.New("leader is " + v.Leader)
		}
		return err
	})

	t.Run("keys", func(t *testing.T) {
		refused(t, lone.Key(t, "-a", waiting.id, "-y"), missing...)
		refused(t, lone.Key(t, "-d", gone.id, "-y"), missing...)
		equal(t, "waiting on the lone master", keyState(t, lone, waiting.id), "minions_pre")
		r := lone.Key(t, "-L")
		if r.Code != 0 || !strings.Contains(r.Stderr, "no quorum") {
			t.Errorf("an old list of keys is shown and not called old\n%v", r)
		}
	})
	t.Run("members", func(t *testing.T) {
		for _, args := range [][]string{
			{"cluster.remove", majority[0].ID}, {"cluster.demote", majority[0].ID},
			{"cluster.promote", majority[0].ID},
			{"cluster.drain", majority[0].ID}, {"cluster.rotate_secret"}, {"cluster.rotate_keys"},
		} {
			refused(t, lone.Runner(t, args...), missing...)
		}
	})
	joiner := c.joiner(t, peers(c.net.Peer(lone.Number)))
	for _, m := range majority {
		cut(t, c.net, joiner.Number, m.Number)
	}
	t.Run("joiner", func(t *testing.T) {
		joiner.Run(t)
		logged(t, joiner, 0, "not a member of the cluster yet", "no quorum", majority[0].ID,
			majority[1].ID)
		v, err := membersOf(t, lone)
		if err != nil || len(v.Voters) != 3 || len(v.Learners) != 0 {
			t.Errorf("members are %+v, %v", v, err)
		}
		joiner.Kill(t)
	})
	t.Run("minions", func(t *testing.T) {
		if word, err := known.signIn(within(t, 5*time.Second), lone); err != nil ||
			word != "accepted" {
			t.Errorf("a known minion signs in: %s, %v", word, err)
		}
		if _, err := known.ask(within(t, 10*time.Second), lone,
			known.returned("20260101000000000001", "test.ping", true)); err != nil {
			t.Errorf("a known minion returns: %v", err)
		}
		stranger := newMinion(t, "stranger")
		if word, err := stranger.signIn(within(t, 10*time.Second), lone); err != nil ||
			word != "pending" {
			t.Errorf("an unknown minion signs in: %s, %v", word, err)
		}
		equal(t, "stranger on the lone master", keyState(t, lone, stranger.id), "")
		if err := lone.Probe("/livez"); err != nil {
			t.Errorf("/livez: %v", err)
		}
		e2e.Eventually(t, healed, "it isn't ready", func() error {
			if lone.Probe("/readyz") == nil {
				return errors.New("it is")
			}
			return nil
		})
	})

	succeeds(t, majority[0].Key(t, "-a", waiting.id, "-y"))
	succeeds(t, majority[1].Key(t, "-d", gone.id, "-y"))
	c.net.heal(t)
	c.Masters = c.Masters[:3]
	oneHistory(t, c.Masters...)
	for _, m := range c.Masters {
		equal(t, "waiting on "+m.ID, keyState(t, m, waiting.id), "minions")
		equal(t, "gone on "+m.ID, keyState(t, m, gone.id), "")
		equal(t, "stranger on "+m.ID, keyState(t, m, "stranger"), "")
		e2e.Eventually(t, healed, "the return of the partition on "+m.ID, func() error {
			var got map[string]any
			err := m.RunnerJSON(t, &got, "jobs.lookup_jid", "20260101000000000001")
			if err == nil && got[known.id] != true {
				err = errors.New("is not there")
			}
			return err
		})
	}
}
