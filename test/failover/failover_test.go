package failover

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m, 0) }

const (
	// budget is the real time allowed from kill -9 of a master until the others agree on a change,
	// and until all minions have answered one of them.
	budget = 5 * time.Second
	// The waits of Salt's minions are not ours: these minions look for another master at once.
	quick = "recon_default: 200\nrecon_max: 1000\nrandom_reauth_delay: 1\nmaster_alive_interval: 3600\n"
)

// TestLossOfAMaster: right after the kill one survivor accepts a key, which needs a leader. Another
// one pings all minions, so those of the dead master must have found a living one. The command that
// accepts takes 5 s longer if the other survivor already has the key: it waits for the dead master,
// which might only be cut off and act on the old keys.
func TestLossOfAMaster(t *testing.T) {
	e2e.HAProxyProgram(t)
	e2e.Venvs(t)
	c := e2e.NewCluster(t, e2e.ClusterOptions{})
	c.Start(t)
	c.AddMinions(t, "minion", quick, e2e.Releases...)
	accept(t, c.Masters[0], c.IDs())
	e2e.Eventually(t, 60*time.Second, "all minions answer", func() error {
		if got, r := c.Masters[0].Ping(t); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	answering := c.IDs()
	for _, lost := range []struct {
		name   string
		choose func() *e2e.Master
	}{
		{"leader", func() *e2e.Master { return c.Leader(t, c.Masters[0]) }},
		{"follower", func() *e2e.Master { return c.Others(c.Leader(t, c.Masters[0]))[0] }},
	} {
		late := c.AddMinions(t, "late-"+lost.name, quick, "3008.3")[0].ID
		pending(t, c.Masters[0], []string{late})
		m := lost.choose()
		rest := c.Others(m)
		m.Kill(t)
		begin := time.Now()
		type end struct {
			took time.Duration
			ping e2e.Pinged
		}
		pinged := make(chan end, 1)
		go func() {
			p := e2e.PingFrom(rest[1:], "minion-*")[0]
			pinged <- end{time.Since(begin), p}
		}()
		ordered := make(chan e2e.Result, 1)
		go func() { ordered <- rest[0].Key(t, "-y", "-a", late) }()
		e2e.Eventually(t, 60*time.Second, "the other one has the key", func() error {
			keys, err := rest[1].Keys(t)
			if err == nil && !slices.Contains(keys["minions"], late) {
				err = fmt.Errorf("accepted are %v", keys["minions"])
			}
			return err
		})
		if took := time.Since(begin); took > budget {
			t.Errorf("the %s was killed; a key was accepted after %v, at most %v are allowed",
				lost.name, took, budget)
		} else {
			t.Logf("the %s was killed; a key was accepted after %v", lost.name, took)
		}
		if p := <-pinged; p.ping.Err != nil || !slices.Equal(p.ping.IDs, answering) ||
			p.took > budget {
			t.Errorf("the %s was killed; all answered after %v, at most %v are allowed\n%v",
				lost.name, p.took, budget, p.ping)
		} else {
			t.Logf("the %s was killed; all minions answered after %v", lost.name, p.took)
		}
		if r := <-ordered; r.Code != 0 {
			t.Error(r)
		}
		m.Run(t)
		c.WaitReady(t, 60*time.Second, c.Masters...)
	}
}

// pending waits until exactly these keys wait for an operator.
func pending(t *testing.T, m *e2e.Master, ids []string) {
	t.Helper()
	e2e.Eventually(t, 60*time.Second, fmt.Sprintf("keys of %v are pending", ids), func() error {
		keys, err := m.Keys(t)
		if err == nil && !slices.Equal(keys["minions_pre"], ids) {
			err = fmt.Errorf("pending are %v", keys["minions_pre"])
		}
		return err
	})
}

func accept(t *testing.T, m *e2e.Master, ids []string) {
	t.Helper()
	pending(t, m, ids)
	if r := m.Key(t, "-A", "-y"); r.Code != 0 {
		t.Fatal(r)
	}
}
