package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A real salt-master behind HAProxy with Salt's plain configuration answers a
// minion of each release, which proves the kit; then our master is started on the
// same configuration and keys, and the minions, untouched, answer it as well.
func TestOurMasterTakesOverFromSalts(t *testing.T) {
	HAProxyProgram(t)
	c := NewCluster(t, ClusterOptions{
		Masters: 1, Plain: true, Programs: Theirs(t, "3008.3"), Balancer: BalancerOptions{File: "lb/haproxy-salt.cfg"},
	})
	c.Start(t)
	m := c.Masters[0]
	c.AddMinions(t, "minion", "", Releases...)
	acceptAll(t, c, m)
	answers := func(who string) {
		t.Helper()
		Eventually(t, 4*time.Minute, "all minions answer "+who, func() error {
			if got, r := m.Ping(t, "-t", "5"); !slices.Equal(got, c.IDs()) {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
		for _, minion := range c.Minions {
			r := m.Salt(t, minion.ID, "grains.get", "e2e", "--out=txt")
			if want := minion.ID + ": " + minion.Release; r.Code != 0 || strings.TrimSpace(r.Stdout) != want {
				t.Errorf("want %s, got\n%v", want, r)
			}
		}
	}
	answers("Salt's master")
	for _, minion := range c.Minions {
		if n := minion.SignIns(t, 0); n < 1 {
			t.Errorf("%s: no sign-in in its log", minion.ID)
		}
	}
	key, err := os.ReadFile(filepath.Join(m.Dir, "pki", "master.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if code, took := m.Stop(t, 20*time.Second); code != 0 {
		t.Errorf("salt-master ended with %d after %v", code, took)
	}

	m.Use(Ours(t))
	m.Run(t)
	Eventually(t, 30*time.Second, "our master serves", m.Ready)
	if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
		t.Error(err)
	}
	answers("our master")
	if now, err := os.ReadFile(filepath.Join(m.Dir, "pki", "master.pem")); err != nil || !bytes.Equal(now, key) {
		t.Errorf("master.pem has changed: %v", err)
	}
	if code, took := m.Stop(t, 20*time.Second); code != 0 || took > stopLimit {
		t.Errorf("our master ended with %d after %v", code, took)
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
