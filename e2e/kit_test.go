package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The kit itself is proven on the real Salt: one salt-master behind HAProxy with
// Salt's plain configuration answers a minion of each release.
func TestKitWithSaltsOwnMaster(t *testing.T) {
	c := NewCluster(t, ClusterOptions{
		Masters: 1, Plain: true, Programs: Theirs(t, "3008.3"), Balancer: BalancerOptions{File: "lb/haproxy-salt.cfg"},
	})
	c.Start(t)
	m := c.Masters[0]
	c.AddMinions(t, "minion", "", Releases...)
	acceptAll(t, c, m)

	Eventually(t, 60*time.Second, "all minions answer", func() error {
		if got, r := m.Ping(t, "-t", "5"); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	for _, minion := range c.Minions {
		if n := minion.SignIns(t, 0); n < 1 {
			t.Errorf("%s: no sign-in in its log", minion.ID)
		}
		r := m.Salt(t, minion.ID, "grains.get", "e2e", "--out=txt")
		if want := minion.ID + ": " + minion.Release; r.Code != 0 || strings.TrimSpace(r.Stdout) != want {
			t.Errorf("want %s, got\n%v", want, r)
		}
	}
	if code, took := m.Stop(t, 20*time.Second); code != 0 {
		t.Errorf("salt-master ended with %d after %v", code, took)
	}
}

// acceptAll waits until all minions' keys are pending on a master and accepts
// them there.
func acceptAll(t *testing.T, c *Cluster, m *Master) {
	t.Helper()
	Eventually(t, 90*time.Second, "all keys are pending on "+m.ID, func() error {
		keys, err := m.Keys(t)
		if err != nil {
			return err
		}
		if got := keys["minions_pre"]; !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("pending are %v", got)
		}
		return nil
	})
	if r := m.Key(t, "-A", "-y"); r.Code != 0 {
		t.Fatalf("%v", r)
	}
}
