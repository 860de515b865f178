package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// ipv6 gives masters and their balancer addresses of a random network of IPv6, on the loopback
// interface.
type ipv6 string

// newIPv6 adds so many addresses; the end of the test removes them.
func newIPv6(t *testing.T, hosts int) ipv6 {
	t.Helper()
	const needs = "needs root and IPv6, for addresses of its own"
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil || os.Geteuid() != 0 {
		t.Skip(needs)
	}
	n := ipv6(fmt.Sprintf("fd%02x:%x:%x:%x", rand.IntN(1<<8), rand.IntN(1<<16), rand.IntN(1<<16),
		1+rand.IntN(1<<16-1)))
	change := func(do string, i int) {
		if r := Command(t, "ip", "-6", "addr", do, n.Host(i)+"/128", "dev", "lo"); r.Code != 0 {
			t.Errorf("%v", r)
		}
	}
	for i := 1; i <= hosts; i++ {
		change("add", i)
		t.Cleanup(func() { change("del", i) })
	}
	return n
}

// Host implements Network.
func (n ipv6) Host(i int) string { return fmt.Sprintf("%s::%x", string(n), i) }

// Peer implements Network.
func (n ipv6) Peer(i int) string { return n.Host(i) }

// Command implements Network.
func (ipv6) Command(_ int, path string, args []string) (string, []string) { return path, args }

// TestIPv6 has masters, balancer and minions that know each other by addresses of IPv6 only.
func TestIPv6(t *testing.T) {
	t.Parallel()
	Venvs(t)
	n := newIPv6(t, 4)
	c := NewCluster(t, ClusterOptions{Network: n, Extra: "auto_accept: True\n"})
	c.Balancer = StartBalancer(t, c.Dir, n.Host(4), c.Addrs(), BalancerOptions{})
	c.StartMasters(t)
	for _, release := range Releases {
		m := NewMinion(t, c.Dir, MinionOptions{ID: "six-" + release, Release: release,
			Master: "'" + n.Host(4) + "'", Extra: quick})
		m.Run(t)
		c.Minions = append(c.Minions, m)
	}
	allAnswers := func(masters []*Master) {
		t.Helper()
		for _, m := range masters {
			Eventually(t, 90*time.Second, "all minions answer "+m.ID,
				func() error { return allAnswer(t, c, m) })
		}
	}
	allAnswers(c.Masters)
	leader := c.Leader(t, c.Masters[0])
	by := c.Others(leader)[0]
	if r := by.Salt(t, "--out=json", "--static", "-S", string(n)+"::/64", "test.ping"); !slices.Equal(
		answered(r), c.IDs()) {
		t.Errorf("minions of the network: %v", r)
	}
	var addresses map[string]string
	if err := by.RunnerJSON(t, &addresses, "manage.present", "show_ip=True"); err != nil ||
		len(addresses) != len(c.Minions) || slices.Contains(slices.Collect(maps.Values(addresses)), "") {
		t.Errorf("where the minions are: %q, %v", addresses, err)
	}
	leader.Kill(t)
	allAnswers(c.Others(leader))
	leader.Run(t)
	c.WaitReady(t, 60*time.Second, leader)
	allAnswers(c.Masters)
}
