package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestCutLine: while only the line between two masters is cut, or loses large packets, they reach
// each other through the third one. Jobs of each reach the minions of all, with the answers; keys
// can be changed everywhere, and all masters stay ready, also if the line is the one to the leader.
// Operators are told which line it is.
func TestCutLine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "")
	var ids []string
	for _, m := range c.Masters {
		one := e2e.NewMinion(t, c.Dir, e2e.MinionOptions{ID: "at-" + m.ID, Release: "3008.3",
			Master: c.net.Host(m.Number)})
		one.Run(t)
		c.Minions = append(c.Minions, one)
		ids = append(ids, one.ID)
	}
	slices.Sort(ids)
	e2e.Eventually(t, healed, "all minions answer", func() error {
		succeeds(t, c.Masters[0].Key(t, "-A", "-y"))
		return answers(t, c.Masters[0], ids)
	})

	leader := c.Leader(t, c.Masters[0])
	followers := c.Others(leader)
	for _, line := range []struct {
		what  string
		a, b  *e2e.Master
		fault func(t testing.TB, n network, a, b int)
	}{
		{"between followers", followers[0], followers[1], cut},
		{"to the leader", followers[0], leader, cut},
		{"large packets to the leader", followers[0], leader, narrow},
	} {
		t.Run(line.what, func(t *testing.T) {
			a, b := line.a, line.b
			third := c.others(a, b)[0]
			line.fault(t, c.net, a.Number, b.Number)
			t.Cleanup(func() { c.net.heal(t) })
			e2e.Eventually(t, healed, "the cut line is named", func() error {
				r := third.Runner(t, "cluster.health")
				for _, pair := range [][2]string{{a.ID, b.ID}, {b.ID, a.ID}} {
					want := fmt.Sprintf("%s: the line to %s is cut, and %s relays", pair[0], pair[1], third.ID)
					if r.Code != 1 || !strings.Contains(r.Stdout, want) {
						return fmt.Errorf("without %q and exit code 1: %v", want, r)
					}
				}
				return nil
			})
			e2e.Eventually(t, healed, "all masters are ready", func() error {
				for _, m := range c.Masters {
					if err := m.Probe("/readyz"); err != nil {
						return fmt.Errorf("%s: %w", m.ID, err)
					}
				}
				return nil
			})
			for _, m := range c.Masters {
				if err := answers(t, m, ids); err != nil {
					t.Error(err)
				}
				id := fmt.Sprintf("new-%d-%s", m.Number, strings.ReplaceAll(line.what, " ", "-"))
				accepted(t, m, id)
				succeeds(t, m.Key(t, "-d", id, "-y"))
			}

			c.net.heal(t)
			e2e.Eventually(t, healed, "the line is used again", func() error {
				if r := third.Runner(t, "cluster.health"); r.Code != 0 {
					return fmt.Errorf("%v", r)
				}
				return nil
			})
			oneHistory(t, c.Masters...)
			for _, m := range []*e2e.Master{a, b} {
				if err := answers(t, m, ids); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// answers asks these minions through one master.
func answers(t *testing.T, m *e2e.Master, ids []string) error {
	t.Helper()
	var got map[string]any
	r := m.Salt(t, "--static", "--out=json", "-t", "20", "-L", strings.Join(ids, ","),
		"test.ping")
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
		return fmt.Errorf("%s: %w\n%v", m.ID, err, r)
	}
	for _, id := range ids {
		if got[id] != true {
			return fmt.Errorf("%s: %s answers %v\n%v", m.ID, id, got[id], r)
		}
	}
	return nil
}

// TestLeaderThatLosesLargePackets: between the leader and all others large packets get lost, and
// small ones arrive, Raft's heartbeats among them. Another master leads within seconds, so that
// keys can be changed, and the former leader says that it is not ready. When the lines are mended
// it follows.
func TestLeaderThatLosesLargePackets(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "")
	leader := c.Leader(t, c.Masters[0])
	rest := c.others(leader)
	for _, m := range rest {
		c.net.narrow(t, leader.Number, m.Number)
	}
	began := time.Now()
	e2e.Eventually(t, healed, "another master leads", func() error {
		v, err := membersOf(t, rest[0])
		if err == nil && (v.Leader == "" || v.Leader == leader.ID) {
			err = fmt.Errorf("leader is %q", v.Leader)
		}
		return err
	})
	t.Logf("another master leads after %v", time.Since(began))
	accepted(t, rest[1], "new")
	e2e.Eventually(t, healed, "the former leader is not ready", func() error {
		if leader.Probe("/readyz") == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	c.net.heal(t)
	oneHistory(t, c.Masters...)
	e2e.Eventually(t, healed, "all is well", func() error {
		if r := rest[0].Runner(t, "cluster.health"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}
