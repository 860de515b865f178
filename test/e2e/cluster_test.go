package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Limits: Salt's own gathering (timeout and gather_job_timeout of a default configuration), and
// what minions with short reconnect waits allow.
const (
	gatherLimit = 15 * time.Second
	fastLimit   = 10 * time.Second
	// For minions of tests that are not about how a minion with the default configuration
	// reconnects. After a reconnect, such minions of 3007 and 3008 check their connection each
	// second, in a separate process.
	quick = "recon_default: 200\nrecon_max: 1000\nrandom_reauth_delay: 1\nmaster_alive_interval: 3600\n"
	// Idle limit of the balancer in these tests, above the masters' PING interval.
	idleLimit = 15 * time.Second
)

var (
	slack     = Within(2 * time.Second) // what starting the command may add
	stopLimit = Within(5 * time.Second)
)

// step is a case on a running cluster.
type step struct {
	name string
	run  func(*testing.T, *Cluster)
}

// inTurn runs cases in order. Each leaves the cluster whole for the next.
func inTurn(t *testing.T, c *Cluster, steps []step) {
	t.Helper()
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, c) }) {
			break // the cluster is no longer whole
		}
	}
}

// TestCluster does the main job on one running cluster: three masters behind HAProxy and six
// minions, two of each release, half of them with short reconnect waits. It runs before the
// parallel tests, because whether a minion answers within Salt's gathering is a matter of seconds
// of real time.
func TestCluster(t *testing.T) {
	HAProxyProgram(t)
	Venvs(t)
	c := NewCluster(t, ClusterOptions{Balancer: BalancerOptions{Idle: idleLimit}})
	c.Start(t)
	c.AddMinions(t, "minion", "", Releases...)
	c.AddMinions(t, "fast", "recon_default: 1000\nrecon_max: 2000\nrecon_randomize: True\n",
		Releases...)
	inTurn(t, c, []step{
		{"AcceptOnce", testAcceptOnce},
		{"PingFromEveryMaster", testPingFromEvery},
		{"NoErrorInAMinionsLog", testMinionLogs},
		{"MembersAndRing", testMembersAndRing},
		{"ReturnsAreFoundEverywhere", testReturnsEverywhere},
		{"KillLeader", testLoss(leader, (*Process).Kill, restart)},
		{"KillFollower", testLoss(follower, (*Process).Kill, restart)},
		{"FreezeLeader", testLoss(leader, (*Process).Freeze, thaw)},
		{"FreezeFollower", testLoss(follower, (*Process).Freeze, thaw)},
		{"OrderlyStop", testOrderlyStop},
	})
}

// TestAllMastersEnd: all masters end, in good order or not, and some or all come back.
//
// A minion of 3007.15 that loses its master while it returns a job may hang for good, with Salt's
// own master as well. It never closes a ZeroMQ context that it made, and when Python collects the
// context, the minion waits for the context's end. Without its socket monitor it leaves connections
// to ZeroMQ, as 3006 does. docs/operations.md tells administrators.
func TestAllMastersEnd(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	Venvs(t)
	c := NewCluster(t, ClusterOptions{Balancer: BalancerOptions{Idle: idleLimit}})
	c.Start(t)
	c.AddMinions(t, "minion", "", "3006.28", "3008.3")
	c.AddMinions(t, "minion", "zmq_monitor: False\n", "3007.15")
	acceptAll(t, c, c.Masters[0])
	inTurn(t, c, []step{
		{"PingFromEveryMaster", testPingFromEvery},
		{"IdleMinionAnswersAtOnce", testIdle},
		{"WrongSecretNeverJoins", testWrongSecret},
		{"WholeClusterStopAndStart", testStopAndStart},
		{"SingleSurvivor", testSingleSurvivor},
		{"FounderWiped", testFounderWiped},
		{"SurvivorIsDrained", testSurvivorIsDrained},
	})
}

// ids are the minions' ids with a prefix.
func ids(c *Cluster, prefix string) []string {
	return slices.DeleteFunc(c.IDs(), func(id string) bool {
		return !strings.HasPrefix(id,
			prefix)
	})
}

func testAcceptOnce(t *testing.T, c *Cluster) {
	for _, m := range c.Masters {
		Eventually(t, 90*time.Second, "all keys are pending on "+m.ID,
			func() error { return hasKeys(t, m, "minions_pre", c.IDs()) })
	}
	r := c.Masters[1].Key(t, "-A", "-y")
	if r.Code != 0 {
		t.Fatalf("%v", r)
	}
	// The command has returned: every master must know at once.
	for _, m := range c.Masters {
		if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		if err := hasKeys(t, m, "minions_pre", nil); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
	}
}

func hasKeys(t *testing.T, m *Master, list string, want []string) error {
	t.Helper()
	keys, err := m.Keys(t)
	if err != nil {
		return err
	}
	if got := keys[list]; !slices.Equal(got, want) {
		return fmt.Errorf("%s are %v, want %v", list, got, want)
	}
	return nil
}

func testPingFromEvery(t *testing.T, c *Cluster) {
	Eventually(t, 60*time.Second, "all minions answer", func() error {
		if got, r := c.Masters[0].Ping(t); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	pingAll(t, c)
}

// pingAll expects every minion to answer every running master within Salt's default timeout.
func pingAll(t *testing.T, c *Cluster) {
	t.Helper()
	for _, m := range c.Running() {
		got, r := m.Ping(t)
		if !slices.Equal(got, c.IDs()) || r.Code != 0 || r.Took > 5*time.Second+slack {
			t.Errorf("from %s, want %v\n%v", m.ID, c.IDs(), r)
		}
	}
}

// testMinionLogs: an accepted minion has no cause for complaint. `_pillar`, `_file_list`,
// `_master_opts`, `_mine` and events are all answered.
func testMinionLogs(t *testing.T, c *Cluster) {
	for _, m := range c.Minions {
		for _, line := range m.Errors(t, 0) {
			// until the minion was accepted
			if !strings.Contains(line, "has cached the public key for this node") {
				t.Errorf("%s: %s", m.ID, line)
			}
		}
	}
}

func testMembersAndRing(t *testing.T, c *Cluster) {
	want := []string{"master1", "master2", "master3"}
	leaders := map[string]bool{}
	for _, m := range c.Masters {
		Eventually(t, 30*time.Second, m.ID+" lists three voters", func() error {
			v, err := m.Members(t)
			if err != nil {
				return err
			}
			if v.Node != m.ID || !slices.Equal(v.Voters, want) || len(v.Learners) != 0 {
				return fmt.Errorf("%+v", v)
			}
			leaders[v.Leader] = true
			return nil
		})
		var ring struct {
			Clustered bool               `json:"is_clustered"`
			Count     int                `json:"node_count"`
			Nodes     []string           `json:"nodes"`
			Replicas  int                `json:"replicas"`
			Shares    map[string]float64 `json:"shares"`
		}
		if err := m.RunnerJSON(t, &ring, "cluster.ring_info"); err != nil {
			t.Fatal(err)
		}
		if !ring.Clustered || ring.Count != 3 || !slices.Equal(ring.Nodes, want) ||
			ring.Replicas != 3 || len(ring.Shares) != 3 {
			t.Errorf("%s: ring_info is %+v", m.ID, ring)
		}
	}
	if len(leaders) != 1 || leaders[""] {
		t.Errorf("leaders are %v", leaders)
	}
}

// job publishes a job without waiting and returns its jid.
func job(t *testing.T, m *Master, args ...string) string {
	t.Helper()
	r := m.Salt(t, append([]string{"--async"}, args...)...)
	_, jid, ok := strings.Cut(strings.TrimSpace(r.Stdout), "Executed command with job ID: ")
	if r.Code != 0 || !ok {
		t.Fatalf("%v", r)
	}
	return jid
}

// hasReturns returns nil when lookup_jid on a master shows want for every minion.
func hasReturns(t *testing.T, m *Master, jid string, want any, minions []string) error {
	t.Helper()
	returns := map[string]any{}
	if err := m.RunnerJSON(t, &returns, "jobs.lookup_jid", jid); err != nil {
		return err
	}
	for _, id := range minions {
		if returns[id] != want {
			return fmt.Errorf("%s has %v of %s for %s", m.ID, returns[id], id, jid)
		}
	}
	return nil
}

func testReturnsEverywhere(t *testing.T, c *Cluster) {
	for _, from := range c.Masters {
		jid := job(t, from, "*", "test.echo", "from "+from.ID)
		for _, m := range c.Masters {
			Eventually(t, 20*time.Second, "all returns",
				func() error { return hasReturns(t, m, jid, "from "+from.ID, c.IDs()) })
		}
	}
}

func leader(t *testing.T, c *Cluster) *Master { return c.Leader(t, c.Masters[0]) }

func follower(t *testing.T, c *Cluster) *Master { return c.Others(leader(t, c))[0] }

// restart starts a killed master again. The test that made the cluster still owns it.
func restart(t *testing.T, m *Master) { m.Run(t) }

func thaw(t *testing.T, m *Master) { m.Thaw(t) }

// testLoss takes a master away and pings from the others at once. Every minion answers within
// Salt's default gathering, and within ten seconds if its reconnect waits are short. Every survivor
// finds what was returned before and during the loss. No minion signs in again. Then the master
// comes back.
func testLoss(choose func(*testing.T, *Cluster) *Master, take func(*Process, testing.TB),
	back func(*testing.T, *Master)) func(*testing.T, *Cluster) {
	return func(t *testing.T, c *Cluster) {
		lost := choose(t, c)
		others := c.Others(lost)
		before := job(t, lost, "*", "test.echo", "before")
		Eventually(t, 20*time.Second, "returns before",
			func() error { return hasReturns(t, others[0], before, "before", c.IDs()) })
		offsets := logSizes(c)

		start := time.Now()
		take(&lost.Process, t)
		done := make(chan []Pinged, 1)
		go func() { done <- PingFrom(others[1:], "fast-*") }()
		all := PingFrom(others[:1], "*")[0]
		fast := (<-done)[0]
		t.Logf("without %s: all answered after %v, those with short waits after %v", lost.ID,
			all.Took.Round(time.Millisecond), fast.Took.Round(time.Millisecond))
		if all.Err != nil || !slices.Equal(all.IDs, c.IDs()) || all.Took > gatherLimit+slack {
			t.Errorf("%s lost, ping from %s: want all of %v within %v\n%v %v", lost.ID, all.From.ID,
				c.IDs(), gatherLimit, all.Result, all.Err)
		}
		if want := ids(c, "fast-"); fast.Err != nil || !slices.Equal(fast.IDs, want) ||
			fast.Took > fastLimit+slack {
			t.Errorf("%s lost, ping from %s: want all of %v within %v\n%v %v", lost.ID,
				fast.From.ID, want, fastLimit, fast.Result, fast.Err)
		}
		after := job(t, others[1], "*", "test.echo", "after")
		for _, m := range others {
			if err := hasReturns(t, m, before, "before", c.IDs()); err != nil {
				t.Errorf("a return that was there before is gone: %v", err)
			}
			Eventually(t, gatherLimit+slack, "returns after",
				func() error { return hasReturns(t, m, after, "after", c.IDs()) })
		}

		back(t, lost)
		c.WaitReady(t, 60*time.Second, c.Masters...)
		t.Logf("%s was away for %v", lost.ID, time.Since(start).Round(time.Second))
		Eventually(t, 30*time.Second, "all returns on the master that came back",
			func() error { return hasReturns(t, lost, after, "after", c.IDs()) })
		pingAll(t, c)
		noSignIns(t, c, offsets)
	}
}

func logSizes(c *Cluster) map[*Minion]int64 {
	sizes := map[*Minion]int64{}
	for _, m := range c.Minions {
		sizes[m] = m.LogSize()
	}
	return sizes
}

// noSignIns expects no `_auth` of any minion since its log had that size. Exception: minions of
// 3007 (and mostly 3008) drop their session and sign in again by themselves when their publish
// connection breaks, with any master.
func noSignIns(t *testing.T, c *Cluster, since map[*Minion]int64) {
	t.Helper()
	for _, m := range c.Minions {
		if n, lost := m.SignIns(t, since[m]), m.Losses(t, since[m]); n > lost {
			t.Errorf("%s signed in again %d times, and lost its publish session %d times", m.ID,
				n, lost)
		}
	}
}

func testOrderlyStop(t *testing.T, c *Cluster) {
	for _, choose := range []func(*testing.T, *Cluster) *Master{follower, leader} {
		m := choose(t, c)
		offsets := logSizes(c)
		code, took := m.Stop(t, 30*time.Second)
		if code != 0 || took > stopLimit {
			t.Errorf("%s: SIGTERM ended with %d after %v, want 0 within %v", m.ID, code, took,
				stopLimit)
		}
		if _, err := os.Stat(filepath.Join(m.Dir, "master.pid")); err == nil {
			t.Errorf("%s: its pidfile is still there", m.ID)
		}
		got, r := c.Others(m)[0].Ping(t)
		if !slices.Equal(got, c.IDs()) || r.Took > gatherLimit+slack {
			t.Errorf("after %s ended, want all of %v\n%v", m.ID, c.IDs(), r)
		}
		m.Run(t)
		c.WaitReady(t, 60*time.Second, c.Masters...)
		pingAll(t, c)
		noSignIns(t, c, offsets)
	}
}

// testIdle: the masters' PINGs keep a publish session open through a balancer that cuts idle ones.
func testIdle(t *testing.T, c *Cluster) {
	const still = 2 * idleLimit
	offsets := logSizes(c)
	Throughout(t, still, "masters stay ready while no job is sent", func() error {
		for _, m := range c.Masters {
			if err := m.Ready(); err != nil {
				return fmt.Errorf("%s: %w", m.ID, err)
			}
		}
		return nil
	})
	for _, m := range c.Minions {
		if n := m.Losses(t, offsets[m]); n > 0 {
			t.Errorf("%s lost its publish session %d times", m.ID, n)
		}
	}
	for _, m := range c.Masters {
		got, r := m.Ping(t)
		if !slices.Equal(got, c.IDs()) || r.Took > Within(5*time.Second) {
			t.Errorf("after %v without a job, from %s, want all of %v at once\n%v", still, m.ID,
				c.IDs(), r)
		}
	}
}

func testWrongSecret(t *testing.T, c *Cluster) {
	stranger := c.Stranger(t, func(config string) string {
		return strings.Replace(config, c.Secret, "another-secret-9876543210", 1)
	})
	stranger.Run(t)
	asked := c.Masters[0]
	Eventually(t, 60*time.Second, "the stranger is told why", func() error {
		if !strings.Contains(tail(stranger.Log, 1<<20), "it has another cluster_secret or cluster_id") {
			return fmt.Errorf("its log doesn't say so")
		}
		return nil
	})
	Throughout(t, 5*time.Second, "the stranger stays outside", func() error {
		if stranger.Running() && stranger.Probe("/readyz") == nil {
			return fmt.Errorf("it is ready")
		}
		if dial(stranger.Addr, PublishPort) == nil || dial(stranger.Addr, RequestPort) == nil {
			return fmt.Errorf("it serves minions")
		}
		return nil
	})
	v, err := asked.Members(t)
	if err != nil || !slices.Equal(v.Voters, []string{"master1", "master2", "master3"}) ||
		len(v.Learners) != 0 {
		t.Errorf("members are %+v, %v", v, err)
	}
	refused := slices.ContainsFunc(c.Masters, func(m *Master) bool {
		return strings.Contains(tail(m.Log, 1<<20), stranger.Addr)
	})
	if !refused {
		t.Error("no master's log names the stranger's address")
	}
	if b, err := os.ReadFile(stranger.Log); err != nil || strings.Contains(string(b), c.Secret) {
		t.Errorf("the stranger's log: %v", err)
	}
	stranger.End()
	pingAll(t, c)
}

func testStopAndStart(t *testing.T, c *Cluster) {
	jid := job(t, c.Masters[0], "*", "test.echo", "kept")
	Eventually(t, 20*time.Second, "all returns",
		func() error { return hasReturns(t, c.Masters[2], jid, "kept", c.IDs()) })
	offsets := logSizes(c)
	for _, m := range c.Masters {
		if code, took := m.Stop(t, 30*time.Second); code != 0 || took > stopLimit {
			t.Errorf("%s: SIGTERM ended with %d after %v", m.ID, code, took)
		}
	}
	c.StartMasters(t)
	for _, m := range c.Masters {
		if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		Eventually(t, 20*time.Second, "the job is there",
			func() error { return hasReturns(t, m, jid, "kept", c.IDs()) })
	}
	testMembersAndRing(t, c)
	Eventually(t, 30*time.Second, "all minions answer", func() error {
		if got, r := c.Masters[0].Ping(t); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	pingAll(t, c)
	noSignIns(t, c, offsets)
}

// testSingleSurvivor starts one of three stopped masters. It answers and pings the minions that it
// knows, and refuses to change keys, with the reason.
func testSingleSurvivor(t *testing.T, c *Cluster) {
	for _, m := range c.Masters {
		m.Kill(t)
	}
	alone := c.Masters[2]
	alone.Run(t)
	Eventually(t, 60*time.Second, "the survivor serves",
		func() error { return alone.Probe("/livez") })
	Eventually(t, 60*time.Second, "all minions answer the survivor", func() error {
		if got, r := alone.Ping(t); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if alone.Probe("/readyz") == nil {
		t.Error("one of three calls itself ready")
	}
	got, r := alone.Ping(t)
	if !slices.Equal(got, c.IDs()) || r.Took > 5*time.Second+slack {
		t.Errorf("want all of %v at once\n%v", c.IDs(), r)
	}
	jid := job(t, alone, "*", "test.echo", "alone")
	Eventually(t, 20*time.Second, "returns on the survivor",
		func() error { return hasReturns(t, alone, jid, "alone", c.IDs()) })

	r = alone.Key(t, "-d", c.IDs()[0], "-y")
	if r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "quorum") &&
		!strings.Contains(r.Stdout+r.Stderr, "majority") {
		t.Errorf("a key was to be refused deletion, with the reason\n%v", r)
	}

	for _, m := range c.Others(alone) {
		m.Run(t)
	}
	c.WaitReady(t, 60*time.Second, c.Masters...)
	for _, m := range c.Masters {
		if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		Eventually(t, 30*time.Second, "the survivor's job is everywhere",
			func() error { return hasReturns(t, m, jid, "alone", c.IDs()) })
	}
	pingAll(t, c)
}

// testFounderWiped: the founder (the lowest address) loses its disk and is started again. It joins
// the existing cluster and does not found another.
func testFounderWiped(t *testing.T, c *Cluster) {
	founder := c.Masters[0]
	jid := job(t, c.Masters[1], "*", "test.echo", "old")
	Eventually(t, 20*time.Second, "all returns",
		func() error { return hasReturns(t, c.Masters[1], jid, "old", c.IDs()) })
	founder.Kill(t)
	founder.Wipe(t)
	offsets := logSizes(c)
	founder.Run(t)
	c.WaitReady(t, 90*time.Second, c.Masters...)
	testMembersAndRing(t, c)
	for _, m := range c.Masters {
		if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		Eventually(t, 30*time.Second, "the old job",
			func() error { return hasReturns(t, m, jid, "old", c.IDs()) })
	}
	pingAll(t, c)
	noSignIns(t, c, offsets)
}

// testSurvivorIsDrained: the minions that came to the survivor while no master was ready leave it
// when it is drained.
func testSurvivorIsDrained(t *testing.T, c *Cluster) {
	by, survivor := c.Masters[0], c.Masters[2]
	sessions := func() int {
		n, err := c.Balancer.Sessions("publish_masters", survivor.ID+":alive")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := sessions(); n < len(c.Minions) {
		t.Fatalf("the survivor has %d minions of that time, want all %d", n, len(c.Minions))
	}
	order(t, by, "cluster.drain", survivor.ID)
	Eventually(t, 10*time.Second, "the minions leave the survivor", func() error {
		if n := sessions(); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	Eventually(t, 30*time.Second, "all minions answer",
		func() error { return answersAll(t, c, by) })
	order(t, by, "cluster.undrain", survivor.ID)
	c.WaitReady(t, 60*time.Second, c.Masters...)
	pingAll(t, c)
}
