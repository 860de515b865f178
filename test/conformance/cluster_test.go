package conformance

import (
	"testing"

	"clustermaster/test/e2e"
	"clustermaster/wire"
)

// cluster is three of our masters that accept every key, started when first needed.
func (s *suite) cluster(t *testing.T) []*subject {
	t.Helper()
	if s.three == nil {
		s.three = e2e.NewCluster(s.t, e2e.ClusterOptions{Masters: 3,
			Extra: "auto_accept: True\nminimum_auth_version: 0\n"})
		s.three.StartMasters(s.t)
	}
	var list []*subject
	for _, m := range s.three.Masters {
		if !m.Running() {
			t.Fatalf("%s has ended", m.ID)
		}
		list = append(list, &subject{Master: m, kind: ours, cfg: "cluster"})
	}
	return list
}

// testCluster is line 55: secrets given out by one master are valid on all, and a minion hears all
// of them.
func (s *suite) testCluster(t *testing.T) {
	masters := s.cluster(t)
	c := masters[0].signIn(t, "ok-55", 3)
	old := masters[1].signIn(t, "ok-55-old", 2)
	for _, m := range masters {
		again := m.signIn(t, "ok-55", 3)
		if again.got.AES != c.got.AES || again.got.Session != c.got.Session ||
			again.got.Master.Text() != c.got.Master.Text() {
			t.Errorf("%s hands out other keys", m.ID)
		}
		c.m, old.m = m, m
		if v := c.request(t, "nosuch"); showValue(v) != "{}" {
			t.Errorf("%s: %v", m.ID, v)
		}
		if v := old.request(t, "nosuch"); showValue(v) != "{}" {
			t.Errorf("%s, version 2: %v", m.ID, v)
		}
		load := c.pillarLoad(t)
		if _, err := wire.OpenPrivate(c.Key, c.got.Master, c.sender(), m.send(t, c.seal(t, load)),
			"pillar", load.String("nonce")); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
	}
	for _, at := range masters {
		s := subscribe(t, at.Addr, "")
		reader := wire.NewPubReader(wire.NewCrypticle(c.got.AES), c.got.Master)
		for _, from := range masters {
			jid := publish(t, from.Master, "-L", "ok-55", "test.ping")
			outer, load := s.job(t, c.got.AES, jid)
			if _, ok := load.Get("serial"); ok {
				t.Errorf("from %s at %s: there is a serial", from.ID, at.ID)
			}
			if got, err := reader.OpenPublication(pack(t, outer)); err != nil ||
				got.String("jid") != jid {
				t.Errorf("from %s at %s: %v, %v", from.ID, at.ID, got, err)
			}
		}
	}
}
