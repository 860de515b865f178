package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMinionOfSeveralMasters has minions without a balancer: each is signed in to every master at
// once (Salt's hot-hot list). Every publication reaches such a minion once per master; it must run
// it once.
func TestMinionOfSeveralMasters(t *testing.T) {
	t.Parallel()
	Venvs(t)
	c := NewCluster(t, ClusterOptions{Extra: "auto_accept: True\n"})
	c.StartMasters(t)
	all := "[" + strings.Join(c.Addrs(), ", ") + "]"
	for _, release := range Releases {
		m := NewMinion(t, c.Dir, MinionOptions{ID: "hot-" + strings.ReplaceAll(release, ".", "-"),
			Release: release, Master: all, Extra: quick})
		m.Run(t)
		c.Minions = append(c.Minions, m)
	}
	for _, m := range c.Minions {
		Eventually(t, 90*time.Second, m.ID+" is signed in to every master", func() error {
			switch {
			case m.LogSize() == 0:
				return errors.New("no log yet")
			case m.SignIns(t, 0) < len(c.Masters):
				return fmt.Errorf("%d sign-ins", m.SignIns(t, 0))
			}
			return nil
		})
	}
	for _, m := range c.Masters {
		Eventually(t, 60*time.Second, "all minions answer "+m.ID,
			func() error { return allAnswer(t, c, m) })
	}
	for _, m := range c.Masters {
		if lists, err := m.Keys(t); err != nil || !slices.Equal(lists["minions"], c.IDs()) ||
			len(lists["minions_denied"]) > 0 {
			t.Errorf("keys on %s: %v %v", m.ID, lists, err)
		}
	}
	k := &marks{path: filepath.Join(c.Dir, "marks")}
	t.Run("JobsRunOnce", func(t *testing.T) {
		k.order(t, c, c.Masters[0])
		k.order(t, c, c.Masters...)
		k.check(t, c)
	})
	t.Run("Mine", func(t *testing.T) { testMineCommands(t, c) })
	t.Run("Event", func(t *testing.T) { testEventSend(t, c) })
	t.Run("AMasterDies", func(t *testing.T) { testHotLoss(t, c, k) })
}

func allAnswer(t *testing.T, c *Cluster, m *Master) error {
	t.Helper()
	if got, r := m.Ping(t); !slices.Equal(got, c.IDs()) {
		return fmt.Errorf("%v", r)
	}
	return nil
}

// marks are the jobs that leave a line with the minion's id in one file; ordered counts them.
type marks struct {
	path    string
	ordered int
}

// order has every minion leave its mark: one job per master, all at the same time.
func (k *marks) order(t *testing.T, c *Cluster, masters ...*Master) {
	t.Helper()
	failed := make([]error, len(masters))
	var wg sync.WaitGroup
	for i, m := range masters {
		wg.Go(func() {
			r, err := run(m.test, m.programs.Salt, "-c", m.ConfDir, "--out=json", "--static",
				"--timeout=30", "*",
				"cmd.retcode", `echo {{ grains["id"] }} >> `+k.path, "template=jinja")
			got := map[string]any{}
			if err == nil {
				err = json.Unmarshal([]byte(r.Stdout), &got)
			}
			if failed[i] = err; err == nil && len(got) != len(c.Minions) {
				failed[i] = fmt.Errorf("%v", r)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	k.ordered += len(masters)
}

// check fails if a minion did not run each job exactly once. All answers have arrived before, so
// only a second run could still come.
func (k *marks) check(t *testing.T, c *Cluster) {
	t.Helper()
	b, err := os.ReadFile(k.path)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, id := range strings.Fields(string(b)) {
		times[id]++
	}
	for _, m := range c.Minions {
		if times[m.ID] != k.ordered {
			t.Errorf("%s ran %d of %d jobs", m.ID, times[m.ID], k.ordered)
		}
	}
}

// testHotLoss kills a master. The minions' sessions with the others do not notice, and the minions
// find the master again when it comes back.
func testHotLoss(t *testing.T, c *Cluster, k *marks) {
	dead := c.Masters[1]
	dead.Kill(t)
	k.order(t, c, c.Others(dead)...)
	dead.Run(t)
	Eventually(t, 60*time.Second, dead.ID+" is ready", dead.Ready)
	Eventually(t, 90*time.Second, "all minions answer "+dead.ID,
		func() error { return allAnswer(t, c, dead) })
	k.order(t, c, c.Masters...)
	k.check(t, c)
}
