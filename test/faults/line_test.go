package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"clustermaster/test/e2e"
)

// TestCutLine: while only the line between two masters is cut, they reach each other through the
// third one. Jobs of each reach the minions of all, with the answers; keys can be changed
// everywhere, and all masters stay ready, also if the line is the one to the leader. Operators are
// told which line it is.
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
	for what, pair := range map[string][2]*e2e.Master{
		"between followers": {followers[0], followers[1]},
		"to the leader":     {followers[0], leader},
	} {
		t.Run(what, func(t *testing.T) {
			a, b := pair[0], pair[1]
			third := c.others(a, b)[0]
			cut(t, c.net, a.Number, b.Number)
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
				id := fmt.Sprintf("new-%d-%s", m.Number, strings.ReplaceAll(what, " ", "-"))
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
