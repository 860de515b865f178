package fsm_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"clustermaster/cluster/fsm"
)

func head(tree uint8, seq uint64, source string) *fsm.SetRootsHead {
	return &fsm.SetRootsHead{Head: fsm.RootsHead{Tree: tree, Seq: seq,
		Manifest: [32]byte{byte(seq), tree}, Size: 10, Source: source, At: at}}
}

func TestSetRootsHead(t *testing.T) {
	t.Parallel()
	empty := fsm.New()
	if r, _ := empty.Apply(1, head(fsm.TreeFile, 1, "m1")); r.Refused != fsm.RefusedNotFounded {
		t.Errorf("before founding: got %+v", r)
	}
	s := founded(t)
	if _, ok := s.RootsHead(fsm.TreeFile); ok {
		t.Error("a head before the first one")
	}
	steps := []struct {
		name    string
		cmd     *fsm.SetRootsHead
		refused fsm.Refusal
		changed bool
	}{
		{"not the first", head(fsm.TreeFile, 2, "m1"), fsm.RefusedStale, false},
		{"no such tree", head(3, 1, "m1"), fsm.RefusedInvalid, false},
		{"no manifest", &fsm.SetRootsHead{Head: fsm.RootsHead{Tree: fsm.TreeFile, Seq: 1}},
			fsm.RefusedInvalid, false},
		{"first", head(fsm.TreeFile, 1, "m1"), "", true},
		{"the same again", head(fsm.TreeFile, 1, "m1"), "", false},
		{"another from the same state", head(fsm.TreeFile, 1, "m2"), fsm.RefusedStale, false},
		{"trees are independent", head(fsm.TreePillar, 1, "m2"), "", true},
		{"second", head(fsm.TreeFile, 2, "m2"), "", true},
		{"back", head(fsm.TreeFile, 1, "m1"), fsm.RefusedStale, false},
	}
	for i, st := range steps {
		r, change := s.Apply(uint64(i+2), through(t, st.cmd))
		if r.Refused != st.refused || r.Changed != st.changed || change.Roots != st.changed {
			t.Errorf("%s: got %+v %+v", st.name, r, change)
		}
	}
	if h, ok := s.RootsHead(fsm.TreeFile); !ok || h != head(fsm.TreeFile, 2, "m2").Head {
		t.Errorf("got head %+v", h)
	}
	if all := s.RootsHeads(); len(all) != 2 || all[0].Tree != fsm.TreeFile ||
		all[1].Source != "m2" {
		t.Errorf("got heads %+v", all)
	}
}

// TestRootsHeadsInSnapshots mixes heads into random commands, as TestEqualCommandsGiveEqualBytes
// does with the others.
func TestRootsHeadsInSnapshots(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		a, b := founded(t), fsm.New()
		cut := r.IntN(100)
		for i := range 100 {
			cmd := randomCommand(r)
			if r.IntN(2) == 0 {
				cmd = head(uint8(r.IntN(3)), uint64(r.IntN(8)), []string{"m1", "m2"}[r.IntN(2)])
			}
			a.Apply(uint64(i+2), through(t, cmd))
			if i > cut {
				b.Apply(uint64(i+2), cmd)
			}
			if i == cut {
				sn := a.Snapshot()
				if err := b.Restore(bytes.NewReader(snapshot(t, a))); err != nil {
					t.Fatal(err)
				}
				a.Apply(uint64(i+2), head(fsm.TreeFile, 1, "later"))
				b.Apply(uint64(i+2), head(fsm.TreeFile, 1, "later"))
				var again bytes.Buffer
				if _, err := sn.WriteTo(&again); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !bytes.Equal(snapshot(t, a), snapshot(t, b)) {
			t.Fatalf("seed %d: snapshots differ", seed)
		}
	}
}
