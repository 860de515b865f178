package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// long skips a test that belongs to `make test-long`.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("CLUSTERMASTER_LONG") == "" {
		t.Skip("takes minutes; run make test-long")
	}
}

// TestLossesAtRandom kills and freezes masters at random while jobs go on. At the end every master
// finds whatever a command reported as done, and nothing has split. CLUSTERMASTER_SEED repeats a
// run.
func TestLossesAtRandom(t *testing.T) {
	long(t)
	HAProxyProgram(t)
	Venvs(t)
	seed := rand.Uint64()
	if s := os.Getenv("CLUSTERMASTER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("CLUSTERMASTER_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))

	c := NewCluster(t, ClusterOptions{})
	c.Start(t)
	c.AddMinions(t, "fast", "recon_default: 1000\nrecon_max: 2000\n", Releases...)
	acceptAll(t, c, c.Masters[0])
	testPingFromEvery(t, c)

	jobs := map[string]string{}
	publish := func(from *Master) {
		text := fmt.Sprintf("job %d", len(jobs))
		jid := job(t, from, "*", "test.echo", text)
		jobs[jid] = text
		Eventually(t, 2*gatherLimit, "all returns of "+text,
			func() error { return hasReturns(t, from, jid, text, c.IDs()) })
	}
	for round := range 12 {
		lost := c.Masters[rng.IntN(len(c.Masters))]
		others := c.Others(lost)
		publish(lost)
		frozen := rng.IntN(2) == 0
		t.Logf("round %d: %s, frozen %t", round, lost.ID, frozen)
		if frozen {
			lost.Freeze(t)
		} else {
			lost.Kill(t)
		}
		for _, m := range others {
			publish(m)
		}
		if frozen {
			lost.Thaw(t)
		} else {
			lost.Run(t)
		}
		c.WaitReady(t, 90*time.Second, c.Masters...)
	}
	testMembersAndRing(t, c)
	for jid, text := range jobs {
		for _, m := range c.Masters {
			if err := hasReturns(t, m, jid, text, c.IDs()); err != nil {
				t.Errorf("lost: %v", err)
			}
		}
	}
}

// TestPlainBalancer: the cluster survives the death of a master also with Salt's documented
// balancer configuration, whose check is a TCP connect.
func TestPlainBalancer(t *testing.T) {
	long(t)
	HAProxyProgram(t)
	Venvs(t)
	c := NewCluster(t, ClusterOptions{Balancer: BalancerOptions{File: "lb/haproxy-salt.cfg"}})
	c.Start(t)
	c.AddMinions(t, "fast", "recon_default: 1000\nrecon_max: 2000\n", Releases...)
	acceptAll(t, c, c.Masters[2])
	testPingFromEvery(t, c)
	for _, choose := range []func(*testing.T, *Cluster) *Master{leader, follower} {
		lost := choose(t, c)
		lost.Kill(t)
		got, r := c.Others(lost)[0].Ping(t)
		if !slices.Equal(got, c.IDs()) || r.Took > gatherLimit+slack {
			t.Errorf("without %s, want all of %v\n%v", lost.ID, c.IDs(), r)
		}
		lost.Run(t)
		c.WaitReady(t, 60*time.Second, c.Masters...)
		pingAll(t, c)
	}
}
