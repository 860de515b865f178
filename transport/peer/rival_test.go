package peer

import (
	"crypto/ed25519"
	"strings"
	"testing"
)

// newCopy makes a port with the node key of m, as a copied data directory has it.
func newCopy(t *testing.T, m *master, pins Pins) *master {
	t.Helper()
	key, err := newNodeKey(m.key.cert.PrivateKey.(ed25519.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return newPort(t, pins, m.node, func(c *Config) { c.Key = key })
}

// A copy of a member's data directory at another address gets no connection while that member runs,
// and its place once that has ended. The member then comes back in vain.
func TestCopiesAreRefused(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 3)
	asked := &recorder{}
	for _, m := range ms {
		m.ServeJoins(helloOf(m.node[:2]), fixedKey(testK()), asked, nil)
	}
	first, other := ms[2], ms[0]
	eventually(t, "all answer", func() bool {
		return other.Alive(first.node) && first.Alive(other.node) && ms[1].Alive(first.node)
	})
	second := newCopy(t, first, pins).serve()
	second.ServeJoins(helloOf("m3"), fixedKey(testK()), asked, nil)
	second.Watch(other.node)
	eventually(t, "the copy is refused", func() bool { return other.refusedFor("copy") > 2 })
	rival := func(asker *master, to *master) string {
		t.Helper()
		before := asked.asked()
		if _, _, err := asker.askJoin(to, testK(), nil); err != nil || asked.asked() != before+1 {
			t.Fatalf("asked: %v", err)
		}
		return asked.from[before].Rival
	}
	for _, m := range []*master{other, first} { // a copy may know no other master
		if at := rival(second, m); at != first.Addr().String() {
			t.Errorf("%s says that the rival of the copy is at %q", m.node, at)
		}
	}
	young := newPort(t, pins, "m4/04")
	pins.add(young.node, young.key.SPKI(), young.Addr().String())
	young.ServeJoins(helloOf("m4"), fixedKey(testK()), asked, nil)
	if at := rival(second, young.serve()); at != first.Addr().String() {
		t.Errorf("a master that was just started says that the rival of the copy is at %q", at)
	}
	if _, _, err := other.askJoin(second, testK(), nil); err == nil || !strings.Contains(err.Error(), "copied data directory") {
		t.Errorf("a copy answered: %v", err)
	}
	if at := rival(first, other); at != "" {
		t.Errorf("the rival of the first one is at %q", at)
	}
	if second.Alive(other.node) || !other.Alive(first.node) || !first.Alive(other.node) ||
		other.count("clustermaster_peer_downs_total") != 0 {
		t.Error("the copy has taken the place of a running master")
	}

	first.stop()
	eventually(t, "the copy comes in", func() bool { return second.Alive(other.node) })
	pins.add(first.node, first.key.SPKI(), second.Addr().String()) // its record follows
	eventually(t, "it answers", func() bool { return other.Alive(second.node) })
	if at := rival(second, other); at != "" {
		t.Errorf("the rival of the only one is at %q", at)
	}
	third := newCopy(t, first, pins).serve()
	third.Watch(other.node)
	before := other.refusedFor("copy")
	eventually(t, "the first one is refused", func() bool { return other.refusedFor("copy") > before })
}

// A copy that came while the member was away has no connection once that answers again.
func TestCopiesGoWhenTheMemberIsBack(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 2)
	away, other := ms[1], ms[0]
	eventually(t, "it answers", func() bool { return other.Alive(away.node) })
	addr := away.Addr().String()
	away.stop()
	second := newCopy(t, away, pins).serve()
	second.Watch(other.node)
	eventually(t, "the copy is in", func() bool { return second.Alive(other.node) })
	back := newPort(t, pins, away.node, func(c *Config) {
		key, err := newNodeKey(away.key.cert.PrivateKey.(ed25519.PrivateKey))
		if err != nil {
			t.Fatal(err)
		}
		c.Key, c.Listen = key, addr
	}).serve()
	back.Watch(other.node)
	eventually(t, "it is back, and the copy is out", func() bool {
		return other.Alive(back.node) && back.Alive(other.node) && !second.Alive(other.node)
	})
}
