package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/serve/daemon"
	"clustermaster/test/e2e"
)

// TestLostVoterOptions kills one of three masters, starts it again, and kills the other two, with
// several sets of options. Each look must show a difference between two sets.
func TestLostVoterOptions(t *testing.T) {
	t.Parallel()
	const plain = "cluster_min_voters: 1\ncluster_voter_timeout: 2\n"
	const set = plain + "cluster_auto_replace_voters: True\n"
	runs := map[string]map[string]string{}
	var mu sync.Mutex // guards runs
	t.Run("sets", func(t *testing.T) {
		for name, v := range map[string]struct{ options, shows string }{
			"default": {plain, "votes again"},
			"replace": {set + "ring_dead_after: 10\ncluster_isolated_serve_seconds: 2\ncluster_clock_limit: 5\n",
				"demoted, left the ring, stops serving, clock reported"},
			"again":  {set + "cluster_demote_cooldown: 0\n", "demoted, votes again"},
			"seldom": {set + "cluster_voter_health_check_interval: 3600\n", "votes again"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				saw := lostVoter(t, v.options, v.shows)
				mu.Lock()
				defer mu.Unlock()
				runs[name] = saw
			})
		}
	})
	for _, l := range []struct{ option, look, with, without string }{
		{"cluster_auto_replace_voters", "demoted", "replace", "default"},
		{"cluster_voter_health_check_interval", "demoted", "replace", "seldom"},
		{"cluster_demote_cooldown", "votes again", "again", "replace"},
		{"ring_dead_after", "left the ring", "replace", "default"},
		{"cluster_isolated_serve_seconds", "stops serving", "replace", "default"},
		{"cluster_clock_limit", "clock reported", "replace", "default"},
	} {
		if with, without := runs[l.with][l.look], runs[l.without][l.look]; with != "true" || without != "false" {
			t.Errorf("%s: %s is %q with it, and %q without", l.option, l.look, with, without)
		}
	}
}

// lostVoter plays the losses and returns what was seen. It waits longer for what the options should
// show.
func lostVoter(t *testing.T, options, shows string) map[string]string {
	c := e2e.NewCluster(t, e2e.ClusterOptions{Extra: options})
	// the third one's clock is ten seconds ahead
	clock := filepath.Join(c.Dir, "clock")
	if err := os.WriteFile(clock, []byte("10s"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Masters[2].Use(e2e.Ours(t).WithVariable(t, daemon.ClockEnv, clock))
	c.StartMasters(t)

	first := &subject{Master: c.Masters[0]}
	saw := map[string]string{}
	look := func(name string, ended func() bool) {
		limit := 8 * time.Second
		if strings.Contains(shows, name) {
			limit = time.Minute
		}
		saw[name] = fmt.Sprint(endsWithin(limit, ended))
	}
	look("clock reported", func() bool {
		return strings.Contains(first.Runner(t, "cluster.health").Stdout, "clock")
	})

	// Kill neither the leader nor the first master, which answers the looks.
	leader := c.Leader(t, first.Master)
	lost := c.Masters[1]
	if lost == leader {
		lost = c.Masters[2]
	}
	votes := func() bool {
		v, err := first.Members(t)
		return err == nil && slices.Contains(v.Voters, lost.ID)
	}
	lost.Kill(t)
	look("demoted", func() bool { return !votes() })
	look("left the ring", func() bool { // by default not even 16 s after its end
		var ring struct {
			Nodes []string `json:"nodes"`
		}
		err := first.RunnerJSON(t, &ring, "cluster.ring_info")
		return err == nil && !slices.Contains(ring.Nodes, lost.ID)
	})
	lost.Run(t)
	c.WaitReady(t, time.Minute, lost)
	look("votes again", votes) // by default 60 s after it was demoted

	for _, m := range c.Others(first.Master) {
		m.Kill(t)
	}
	look("stops serving", func() bool { return first.open(e2e.RequestPort) != nil })
	t.Log(saw)
	return saw
}
