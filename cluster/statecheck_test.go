package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
)

// A member whose state is not what the log says is found by the others, and finds that it is the
// odd one out.
func TestStatesThatDifferAreFound(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int,
		cfg *cluster.Config) {
		cfg.CheckEvery = 200 * time.Millisecond
	})
	c.WaitVoters(3)
	compared := func(n *clustertest.Node) error {
		for _, m := range n.Members() {
			if !m.Self && m.Compared == 0 {
				return fmt.Errorf("%s was not compared yet", m.ID)
			}
		}
		return nil
	}
	for _, n := range c.Nodes {
		c.Wait(n.ID+" has compared its state with the others'", func() error { return compared(n) })
		if ids, _ := n.StatesDiffer(); len(ids) > 0 {
			t.Fatalf("%s says that those of %v differ", n.ID, ids)
		}
	}
	bad := c.Nodes[1]
	token := &fsm.PutToken{Token: fsm.Token{Hash: [32]byte{1}, Owner: "file:x",
		Expire: time.Now().Add(time.Hour).UTC()}, Max: 9, MaxPerOwner: 9, At: time.Now().UTC()}
	if r, _ := bad.State().Apply(bad.State().AppliedIndex(), token); !r.Changed {
		t.Fatalf("nothing was changed: %+v", r)
	}
	for _, n := range c.Nodes {
		want, wantOdd := []string{bad.ID}, false
		if n == bad {
			want, wantOdd = []string{c.Nodes[0].ID, c.Nodes[2].ID}, true
		}
		c.Wait(n.ID+" sees whose state differs", func() error {
			if ids, odd := n.StatesDiffer(); !slices.Equal(ids, want) || odd != wantOdd {
				return fmt.Errorf("got %v, odd %v", ids, odd)
			}
			return nil
		})
		c.Wait(n.ID+" logs it", says(n, "the replicated state of a member differs"))
	}
}

// What a member tells of its backups and troubles reaches the others.
func TestAlarmsAreToldToTheOthers(t *testing.T) {
	t.Parallel()
	made := time.Now().Add(-time.Hour).Truncate(time.Second)
	c := clustertest.New(t, 2, func(i int, cfg *cluster.Config) {
		if i == 1 {
			cfg.LastBackup = func(time.Time) time.Time { return made }
			cfg.Alarms = func() []string {
				return append(make([]string, 30),
					strings.Repeat("x", 9999))
			}
		}
	})
	c.WaitVoters(2)
	n := c.Nodes[0]
	c.Wait("the first knows of the second's backup", func() error {
		for _, m := range n.Members() {
			if !m.Self && len(m.Alarms) == 16 && n.LastBackup().Equal(made) {
				return nil
			}
		}
		return fmt.Errorf("backup at %v", n.LastBackup())
	})
}
