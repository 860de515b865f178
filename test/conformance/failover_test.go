package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/tools/simminion"
)

// testFailover is line 66: a minion with two masters of one cluster moves to the second while the
// first is away, and back.
func (s *suite) testFailover(t *testing.T) {
	e2e.Venvs(t)
	masters := s.cluster(t)
	releases := e2e.Releases[len(e2e.Releases)-1:]
	if long() {
		releases = e2e.Releases
	}
	var firsts []*relay
	var minions []string
	for n, release := range releases {
		first := newRelay(t, s.three.Base.Master(110+n), masters[0].Addr)
		m := e2e.NewMinion(t, e2e.Folder(t),
			e2e.MinionOptions{ID: id("failover", release), Release: release,
				Master: fmt.Sprintf("[%s, %s]", first.addr, masters[1].Addr),
				// each look is a job of its own, which a busy machine must get done in time
				Extra: quick +
					"master_type: failover\nmaster_alive_interval: 5\nmaster_failback: True\nmaster_failback_interval: 5\nretry_dns: 0\n"})
		m.Run(t)
		firsts, minions = append(firsts, first), append(minions, m.ID)
	}
	at := func(what string, first bool) {
		e2e.Eventually(t, 90*time.Second, what, func() error {
			for i, r := range firsts {
				if (r.open(e2e.PublishPort) > 0) != first {
					return fmt.Errorf("%s is at the other one", minions[i])
				}
			}
			// its publications reach the minions wherever they are
			return pinged(t, masters[2], minions)
		})
	}
	at("at the first", true)
	for _, r := range firsts {
		r.cut(0, true)
	}
	at("at the second", false)
	for _, r := range firsts {
		r.up(t)
	}
	at("back at the first", true)
}

// testCrowd is line 67, with simulated minions: 200 start at once, with the first keys of their
// lives.
func (s *suite) testCrowd(t *testing.T) {
	const crowd = 200
	m := s.cluster(t)[0]
	var keys []*simminion.Key
	for n := range 3 {
		k, err := simminion.KeyOf(keyNumber(t, n))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	for _, round := range []string{"first start", "all start again"} {
		fleet, err := simminion.NewFleet(simminion.Config{Master: hostPort(m.Addr, e2e.RequestPort),
			AcceptanceWait: time.Second}, "crowd-", crowd, keys, 0)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		ended := make(chan error, 1)
		go func() { ended <- fleet.Run(ctx) }()
		if err := fleet.WaitReady(ctx); err != nil {
			t.Errorf("%s: %v", round, err)
		}
		if n := fleet.Counts().SignIns; n != crowd {
			t.Errorf("%s: %d sign-ins of %d minions", round, n, crowd)
		}
		cancel()
		<-ended
	}
}
