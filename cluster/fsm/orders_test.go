package fsm_test

import (
	"bytes"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

func apply(t *testing.T, s *fsm.State, c fsm.Command) (fsm.Result, fsm.Change) {
	t.Helper()
	return s.Apply(s.AppliedIndex()+1, through(t, c))
}

// rebuilt is a state restored from the snapshot of another, whose bytes must be equal.
func rebuilt(t *testing.T, s *fsm.State) *fsm.State {
	t.Helper()
	want := snapshot(t, s)
	out := fsm.New()
	if err := out.Restore(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshot(t, out), want) {
		t.Error("a restored snapshot gives other bytes")
	}
	return out
}

func TestMarksOutliveUpdatesAndReplacement(t *testing.T) {
	t.Parallel()
	s := founded(t)
	apply(t, s, &fsm.PutMember{Member: member(2), At: at})
	node := member(2).Node
	for _, m := range []fsm.Mark{fsm.MarkDrain, fsm.MarkLearner} {
		if r, _ := apply(t, s, &fsm.MarkMember{Node: node, Mark: m, At: at}); !r.Changed {
			t.Errorf("mark %d changed nothing", m)
		}
		if r, _ := apply(t, s, &fsm.MarkMember{Node: node, Mark: m,
			At: at.Add(time.Hour)}); r.Changed {
			t.Errorf("a repeat of mark %d changed something", m)
		}
	}
	update := member(2)
	update.Version, update.Pub = "newer", "PEM"
	apply(t, s, &fsm.PutMember{Member: update, At: at})
	m, _ := rebuilt(t, s).MemberByNode(node)
	if !m.Draining || !m.Learner || !m.Demoted.Equal(at) || m.Pub != "PEM" || m.Version != "newer" {
		t.Errorf("after an update: %+v", m)
	}
	again := member(2)
	again.Incarnation, again.SPKI = "wiped", [32]byte{77}
	again.Node = fsm.NodeName(again.ID, again.Incarnation)
	apply(t, s, &fsm.PutMember{Member: again, Replace: node, At: at})
	if m, ok := s.MemberByNode(again.Node); !ok || !m.Draining || !m.Learner || m.Pub != "" {
		t.Errorf("a wiped one: %+v %v", m, ok)
	}
	apply(t, s, &fsm.MarkMember{Node: again.Node, Mark: fsm.MarkUndrain, At: at})
	apply(t, s, &fsm.MarkMember{Node: again.Node, Mark: fsm.MarkVoter, At: at})
	if m, _ := s.MemberBySPKI(again.SPKI); m.Draining || m.Learner || !m.Demoted.IsZero() {
		t.Errorf("marks not taken off: %+v", m)
	}
	for _, c := range []*fsm.MarkMember{{Node: "x/y", Mark: fsm.MarkDrain},
		{Node: again.Node, Mark: 99}} {
		if r, _ := apply(t, s, c); r.Refused == "" {
			t.Errorf("%+v was taken", c)
		}
	}
}

func TestABarKeepsTheSecretThatThePeerKnew(t *testing.T) {
	t.Parallel()
	s := founded(t)
	apply(t, s, &fsm.PutMember{Member: member(2), At: at})
	apply(t, s, &fsm.RemoveMember{Node: member(2).Node, Bar: true, At: at})
	apply(t, s, &fsm.SetJoinKey{JoinKey: []byte("second")})
	apply(t, s, &fsm.SetJoinKey{JoinKey: []byte("third")})
	b, ok := rebuilt(t, s).BarBySPKI(member(2).SPKI)
	if c, _ := s.Cluster(); !ok || string(b.JoinKey) != "k" || string(c.JoinKey) != "third" {
		t.Errorf("bar %+v %v, K %q", b, ok, c.JoinKey)
	}
}

func TestRestoreBringsBackKeysAndSecrets(t *testing.T) {
	t.Parallel()
	s := founded(t)
	apply(t, s, &fsm.ImportKeys{At: at, Keys: []fsm.Key{
		{ID: "web1", State: fsm.KeyAccepted, Pub: "1"},
		{ID: "web2", State: fsm.KeyRejected, Pub: "2"},
		{ID: "web1", State: fsm.KeyDenied, Pub: "3"},
	}})
	apply(t, s, &fsm.OfferKey{ID: "web3", Pub: "4", At: at})
	saved := savedOf(s)
	want, _ := s.Key("web1")

	other := found()
	other.Cluster.UUID, other.Cluster.ClusterKey, other.AES, other.Session = "b", "OTHER", "aes-9",
		[]byte("session-9")
	o := fsm.New()
	o.Apply(1, other)
	apply(t, o,
		&fsm.ImportKeys{At: at, Keys: []fsm.Key{{ID: "stray", State: fsm.KeyAccepted, Pub: "x"}}})
	r, change := apply(t, o, &fsm.Restore{Saved: saved, At: at})
	if !r.Changed || !change.Restored || !change.Secrets {
		t.Errorf("result %+v, change %+v", r, change)
	}
	o = rebuilt(t, o)
	if k, _ := o.Key("web1"); k != want {
		t.Errorf("key %+v, want %+v", k, want)
	}
	if _, ok := o.Key("stray"); ok || len(o.Denied("web1")) != 1 || o.Unvetted() != 1 {
		t.Errorf("stray %v, denied %v, unvetted %d", ok, o.Denied("web1"), o.Unvetted())
	}
	if a := o.AES(); a.Active.Number != 2 || string(a.Active.Secret) != "aes-1" || len(a.Old) != 1 {
		t.Errorf("AES %+v", a)
	}
	c, _ := o.Cluster()
	if c.ClusterKey != "PEM" || c.UUID != "b" || len(o.Members()) != 1 ||
		o.Session().Active.Number != 2 {
		t.Errorf("cluster %+v", c)
	}
	if r, _ := apply(t, o, &fsm.Restore{At: at}); r.Refused != fsm.RefusedInvalid {
		t.Errorf("an empty backup: %+v", r)
	}
}

func TestRecoverLeavesOne(t *testing.T) {
	t.Parallel()
	s := founded(t)
	apply(t, s, &fsm.PutMember{Member: member(2), At: at})
	apply(t, s, &fsm.PutMember{Member: member(3), At: at})
	apply(t, s, &fsm.MarkMember{Node: member(2).Node, Mark: fsm.MarkLearner, At: at})
	r, change := apply(t, s, &fsm.Recover{Node: member(2).Node, UUID: "new", At: at})
	if !r.Changed || len(change.Removed) != 2 || !change.Ring {
		t.Errorf("result %+v, change %+v", r, change)
	}
	s = rebuilt(t, s)
	m := s.Members()
	if c, _ := s.Cluster(); c.UUID != "new" || len(m) != 1 || m[0].ID != "m2" || m[0].Learner ||
		len(s.Ring().Members) != 1 {
		t.Errorf("cluster %+v, members %+v", c, m)
	}
	if r, _ := apply(t, s, &fsm.Recover{Node: member(2).Node, UUID: "new", At: at}); r.Changed ||
		r.Refused != "" {
		t.Errorf("a repeat: %+v", r)
	}
	if r, _ := apply(t, s, &fsm.Recover{Node: "x/y", UUID: "z",
		At: at}); r.Refused != fsm.RefusedNotMember {
		t.Errorf("a stranger: %+v", r)
	}
}
