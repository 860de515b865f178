package faults

import (
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestStopWhenPeersAreSilent: SIGTERM ends a master in good order whatever its peers do: when they
// have become silent, so that a leader can't hand over and requests get no answer; when it was cut
// off from them long ago; and when it waits for them to admit it.
func TestStopWhenPeersAreSilent(t *testing.T) {
	c := newCluster(t, 3, "")
	for name, choose := range map[string]func() *e2e.Master{
		"leader":   func() *e2e.Master { return c.Leader(t, c.Masters[0]) },
		"follower": func() *e2e.Master { return c.Others(c.Leader(t, c.Masters[0]))[0] },
	} {
		t.Run(name+" of frozen peers", func(t *testing.T) {
			m := choose()
			silent := c.Others(m)
			for _, o := range silent {
				o.Freeze(t)
			}
			ends(t, m)
			for _, o := range silent {
				o.Thaw(t)
			}
			m.Run(t)
			oneHistory(t, c.Masters...)
		})
	}
	t.Run("leader that was cut off", func(t *testing.T) {
		lone := c.Leader(t, c.Masters[0])
		isolate(t, c.net, c.Masters, lone)
		logged(t, lone, 0, "no longer the leader")
		ends(t, lone)
		c.net.heal(t)
		lone.Run(t)
		oneHistory(t, c.Masters...)
	})
	t.Run("joiner of nobody", func(t *testing.T) {
		joiner := c.joiner(t, peers(c.net.Peer(1), c.net.Peer(2), c.net.Peer(3)))
		isolate(t, c.net, c.Masters, joiner)
		joiner.Run(t)
		logged(t, joiner, 0, "not a member of the cluster yet")
		ends(t, joiner)
	})
}

// ends sends SIGTERM and expects an end in good order: exit code 0, and nothing cut off.
func ends(t *testing.T, m *e2e.Master) {
	t.Helper()
	from := logSize(m)
	code, took := m.Stop(t, 30*time.Second)
	if code != 0 {
		t.Errorf("%s ended with %d", m.ID, code)
	}
	if line := logLine(t, m, from, "stop took too long"); line != "" {
		t.Errorf("%s had to be cut off: %s", m.ID, strings.TrimSpace(line))
	}
	t.Logf("%s ended after %v", m.ID, took)
}
