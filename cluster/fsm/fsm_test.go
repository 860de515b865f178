package fsm_test

import (
	"errors"
	"fmt"
	"testing"

	"clustermaster/cluster/fsm"
)

func TestOfferKey(t *testing.T) {
	t.Parallel()
	const a, b = "PUB-A", "PUB-B"
	type stored struct {
		state fsm.KeyState
		pub   string
	}
	tests := []struct {
		name    string
		have    stored
		offer   fsm.OfferKey
		act     string
		want    stored
		denied  int
		changed bool
	}{
		{name: "open: new key accepted", offer: fsm.OfferKey{Pub: a, Open: true}, act: "accept",
			want: stored{fsm.KeyAccepted, a}, changed: true},
		{name: "open: other key replaces", have: stored{fsm.KeyAccepted, b},
			offer: fsm.OfferKey{Pub: a, Open: true}, act: "accept",
			want: stored{fsm.KeyAccepted, a}, changed: true},
		{name: "open: rejected is accepted", have: stored{fsm.KeyRejected, b},
			offer: fsm.OfferKey{Pub: a, Open: true}, act: "accept",
			want: stored{fsm.KeyAccepted, a}, changed: true},
		{name: "open: same key writes nothing", have: stored{fsm.KeyAccepted, a},
			offer: fsm.OfferKey{Pub: a, Open: true}, act: "accept",
			want: stored{fsm.KeyAccepted, a}},
		{name: "open: empty key", offer: fsm.OfferKey{Open: true}, act: "error"},
		{name: "rejected", have: stored{fsm.KeyRejected, a}, offer: fsm.OfferKey{Pub: a},
			act: "reject", want: stored{fsm.KeyRejected, a}},
		{name: "rejected, autosign does not help", have: stored{fsm.KeyRejected, a},
			offer: fsm.OfferKey{Pub: a, Auto: fsm.AutoAccept}, act: "reject",
			want: stored{fsm.KeyRejected, a}},
		{name: "accepted, same", have: stored{fsm.KeyAccepted, a}, offer: fsm.OfferKey{Pub: a},
			act: "accept", want: stored{fsm.KeyAccepted, a}},
		{name: "accepted, same, autoreject is too late", have: stored{fsm.KeyAccepted, a},
			offer: fsm.OfferKey{Pub: a, Auto: fsm.AutoReject}, act: "accept",
			want: stored{fsm.KeyAccepted, a}},
		{name: "accepted, differs", have: stored{fsm.KeyAccepted, a},
			offer: fsm.OfferKey{Pub: b, Auto: fsm.AutoAccept}, act: "denied",
			want: stored{fsm.KeyAccepted, a}, denied: 1, changed: true},
		{name: "none, autoreject", offer: fsm.OfferKey{Pub: a, Auto: fsm.AutoReject}, act: "reject",
			want: stored{fsm.KeyRejected, a}, changed: true},
		{name: "none", offer: fsm.OfferKey{Pub: a}, act: "pend", want: stored{fsm.KeyPending, a},
			changed: true},
		{name: "none, not a key", offer: fsm.OfferKey{Pub: ""}, act: "pend",
			want: stored{fsm.KeyPending, ""}, changed: true},
		{name: "none, autosign", offer: fsm.OfferKey{Pub: a, Auto: fsm.AutoAccept}, act: "accept",
			want: stored{fsm.KeyAccepted, a}, changed: true},
		{name: "pending, autoreject moves the stored key", have: stored{fsm.KeyPending, a},
			offer: fsm.OfferKey{Pub: b, Auto: fsm.AutoReject}, act: "reject",
			want: stored{fsm.KeyRejected, a}, changed: true},
		{name: "pending, differs", have: stored{fsm.KeyPending, a}, offer: fsm.OfferKey{Pub: b},
			act: "denied", want: stored{fsm.KeyPending, a}, denied: 1, changed: true},
		{name: "pending, same", have: stored{fsm.KeyPending, a}, offer: fsm.OfferKey{Pub: a},
			act: "pend", want: stored{fsm.KeyPending, a}},
		{name: "pending, autosign, differs", have: stored{fsm.KeyPending, a},
			offer: fsm.OfferKey{Pub: b, Auto: fsm.AutoAccept}, act: "denied",
			want: stored{fsm.KeyPending, a}, denied: 1, changed: true},
		{name: "pending, autosign, same", have: stored{fsm.KeyPending, a},
			offer: fsm.OfferKey{Pub: a, Auto: fsm.AutoAccept}, act: "accept",
			want: stored{fsm.KeyAccepted, a}, changed: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := founded(t)
			if tt.have.state != fsm.KeyUnknown {
				s.Apply(2,
					&fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: tt.have.state,
						Pub: tt.have.pub}}, At: at})
			}
			tt.offer.ID, tt.offer.At = "web1", at
			got, change := s.Apply(3, &tt.offer)
			if got.Act != tt.act || got.Changed != tt.changed {
				t.Errorf("got act %q changed %v, want %q %v", got.Act, got.Changed, tt.act,
					tt.changed)
			}
			if (len(change.Keys) > 0) != tt.changed {
				t.Errorf("got change %+v", change)
			}
			k, _ := s.Key("web1")
			if k.State != tt.want.state || k.Pub != tt.want.pub {
				t.Errorf("stored: got %d %q, want %d %q", k.State, k.Pub, tt.want.state,
					tt.want.pub)
			}
			if n := len(s.Denied("web1")); n != tt.denied {
				t.Errorf("denied: got %d, want %d", n, tt.denied)
			}
			again, _ := s.Apply(4, &tt.offer)
			if again.Changed {
				t.Errorf("a retry wrote: %+v", again)
			}
		})
	}
}

func TestOfferKeyBounds(t *testing.T) {
	t.Parallel()
	s := founded(t)
	offer := func(id, pub, source string, auto fsm.Auto) string {
		r, _ := s.Apply(9, &fsm.OfferKey{ID: id, Pub: pub, Source: source, Auto: auto,
			MaxPending: 4, MaxPerSource: 2, At: at})
		return r.Act
	}
	steps := []struct {
		id, source, want string
		auto             fsm.Auto
	}{
		{"a", "s1", "pend", 0}, {"b", "s1", "reject", fsm.AutoReject}, {"c", "s1", "full", 0},
		{"c", "s1", "full", fsm.AutoReject},
		{"d", "s2", "pend", 0}, {"e", "s2", "pend", 0}, {"f", "s3", "full", 0},
		{"g", "s3", "accept", fsm.AutoAccept}, // accepted keys are not counted
		{"a", "s1", "pend", 0},                // a retry is no new key
	}
	for _, st := range steps {
		if got := offer(st.id, "PUB", st.source, st.auto); got != st.want {
			t.Errorf("offer %s from %s: got %q, want %q", st.id, st.source, got, st.want)
		}
	}
	s.Apply(10, &fsm.ChangeKeys{Action: fsm.AcceptKeys, IDs: []string{"a"},
		From: fsm.StateSet(fsm.KeyPending), At: at})
	if got := offer("f", "PUB", "s3", 0); got != "pend" {
		t.Errorf("after one was accepted: got %q, want room for another", got)
	}
	for i := range 30 {
		if got := offer("a", fmt.Sprintf("OTHER%d", i), "s1", 0); got != "denied" {
			t.Fatalf("got %q", got)
		}
	}
	if n := len(s.Denied("a")); n > 8 || n < 4 {
		t.Errorf("denied keys kept: %d", n)
	}
}

func TestChangeKeys(t *testing.T) {
	t.Parallel()
	pending, accepted, denied := fsm.StateSet(fsm.KeyPending), fsm.StateSet(fsm.KeyAccepted),
		fsm.StateSet(fsm.KeyDenied)
	all := pending | accepted | denied | fsm.StateSet(fsm.KeyRejected)
	s := founded(t)
	s.Apply(2, &fsm.ImportKeys{At: at, Keys: []fsm.Key{
		{ID: "acc", State: fsm.KeyAccepted, Pub: "1"}, {ID: "acc", State: fsm.KeyDenied, Pub: "2"},
		{ID: "pre", State: fsm.KeyPending, Pub: "3"},
		{ID: "rej", State: fsm.KeyRejected, Pub: "4"}, {ID: "den", State: fsm.KeyDenied, Pub: "5"},
		{ID: "den", State: fsm.KeyDenied, Pub: "6"},
	}})
	ids := []string{"acc", "pre", "rej", "den", "none"}
	steps := []struct {
		name string
		cmd  fsm.ChangeKeys
		want string
	}{
		{"accept pending only", fsm.ChangeKeys{Action: fsm.AcceptKeys, From: pending},
			"[pre 2>1 3]"},
		{"a repeat changes nothing", fsm.ChangeKeys{Action: fsm.AcceptKeys, From: pending}, "[]"},
		{"accept denied takes the last offered",
			fsm.ChangeKeys{Action: fsm.AcceptKeys, From: pending | denied},
			"[acc 4>1 2] [den 4>1 6]"},
		{"reject accepted", fsm.ChangeKeys{Action: fsm.RejectKeys, From: pending | accepted},
			"[acc 1>3 2] [pre 1>3 3] [den 1>3 6]"},
		{"delete all", fsm.ChangeKeys{Action: fsm.DeleteKeys, From: all},
			"[acc 3>0 2] [pre 3>0 3] [rej 3>0 4] [den 3>0 6]"},
	}
	for i, st := range steps {
		st.cmd.IDs, st.cmd.At = ids, at
		r, _ := s.Apply(uint64(3+i), &st.cmd)
		got := ""
		for _, k := range r.Keys {
			if got != "" {
				got += " "
			}
			got += fmt.Sprintf("[%s %d>%d %s]", k.Key.ID, k.From, k.Key.State, k.Key.Pub)
		}
		if got == "" {
			got = "[]"
		}
		if got != st.want {
			t.Errorf("%s: got %s, want %s", st.name, got, st.want)
		}
	}
	if n, _ := s.Keys(); len(n) != 0 || len(s.DeniedIDs()) != 0 {
		t.Errorf("left over: %v %v", n, s.DeniedIDs())
	}
	var many []string
	var in []fsm.Key
	for i := range 10_000 {
		many = append(many, fmt.Sprintf("minion%05d", i))
		in = append(in, fsm.Key{ID: many[i], State: fsm.KeyPending, Pub: "P"})
	}
	s.Apply(20, &fsm.ImportKeys{Keys: in, At: at})
	if r, _ := s.Apply(21, &fsm.ChangeKeys{Action: fsm.AcceptKeys, IDs: many, From: pending,
		At: at}); len(r.Keys) != len(many) {
		t.Errorf("accepted %d of %d at once", len(r.Keys), len(many))
	}
	if k, ok := s.Key("minion00001"); !ok || k.Index != 21 {
		t.Errorf("got %+v, want the index of the acceptance", k)
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	s := founded(t)
	apply := func(c fsm.Command) fsm.Refusal {
		r, _ := s.Apply(s.AppliedIndex()+1, c)
		return r.Refused
	}
	again := member(2)
	again.Incarnation, again.SPKI = "wiped", [32]byte{99}
	again.Node = fsm.NodeName(again.ID, again.Incarnation)
	sameAddr, sameKey := member(5), member(6)
	sameAddr.Addr, sameKey.SPKI = member(1).Addr, member(1).SPKI
	steps := []struct {
		name string
		cmd  fsm.Command
		want fsm.Refusal
	}{
		{"second", &fsm.PutMember{Member: member(2), At: at}, ""},
		{"a repeat", &fsm.PutMember{Member: member(2), At: at}, ""},
		{"another incarnation", &fsm.PutMember{Member: again, At: at}, fsm.RefusedIDTaken},
		{"an address twice", &fsm.PutMember{Member: sameAddr, At: at}, fsm.RefusedAddrTaken},
		{"a node key twice", &fsm.PutMember{Member: sameKey, At: at}, fsm.RefusedKeyTaken},
		{"ring with a stranger", &fsm.SetRing{Epoch: 2, Members: []string{"x/y"}},
			fsm.RefusedNotMember},
		{"ring", &fsm.SetRing{Epoch: 2, Members: []string{member(2).Node, member(1).Node}}, ""},
		{"ring from an old epoch", &fsm.SetRing{Epoch: 2, Members: []string{member(1).Node}},
			fsm.RefusedStale},
		{"replaced", &fsm.PutMember{Member: again, Replace: member(2).Node, At: at}, ""},
		{"removed", &fsm.RemoveMember{Node: again.Node, Bar: true, At: at}, ""},
		{"barred", &fsm.PutMember{Member: again, At: at}, fsm.RefusedBarred},
		{"allowed", &fsm.AllowMember{ID: "m2"}, ""},
		{"back", &fsm.PutMember{Member: again, At: at}, ""},
		{"second founding", found(), fsm.RefusedFounded},
	}
	for _, st := range steps {
		if got := apply(st.cmd); got != st.want {
			t.Errorf("%s: got %q, want %q", st.name, got, st.want)
		}
	}
	if m, ok := s.MemberBySPKI([32]byte{99}); !ok || m.ID != "m2" {
		t.Errorf("by node key: got %+v %v", m, ok)
	}
	if _, ok := s.MemberBySPKI(member(2).SPKI); ok {
		t.Error("the replaced node key is still known")
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	s := founded(t)
	if r, _ := s.Apply(2, &fsm.ActivateAES{Epoch: 2, At: at}); r.Refused != fsm.RefusedStale {
		t.Errorf("activate without stage: %+v", r)
	}
	for i := range 6 {
		r, _ := s.Apply(3, &fsm.StageAES{Key: fmt.Sprintf("aes-%d", i+2), At: at})
		if a := s.AES(); a.Active.Number == r.Epoch || a.Staged.Number != r.Epoch {
			t.Fatalf("staged: %+v", a)
		}
		if r, _ := s.Apply(4, &fsm.ActivateAES{Epoch: r.Epoch, At: at}); r.Refused != "" {
			t.Fatal(r)
		}
		if r, _ := s.Apply(5, &fsm.ActivateAES{Epoch: r.Epoch, At: at}); r.Refused != "" ||
			r.Changed {
			t.Fatalf("a repeat: %+v", r)
		}
	}
	a := s.AES()
	if a.Active.Number != 7 || string(a.Active.Secret) != "aes-7" || len(a.Old) != 3 ||
		a.Old[0].Number != 6 || a.Staged.Number != 0 {
		t.Errorf("got %+v", a)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		entry []byte
		want  error
	}{
		{"empty", nil, fsm.ErrCorrupt},
		{"newer version", []byte{99, 1, 0x80}, fsm.ErrUnknown},
		{"unknown op", []byte{1, 0x7f, 0x80}, fsm.ErrUnknown},
		{"unknown op above 127", []byte{1, 0xcc, 0xc0, 0x80}, fsm.ErrUnknown},
		{"torn body", []byte{1, 5, 0x81, 0xa2}, fsm.ErrCorrupt},
		{"trailing bytes", []byte{1, 4, 0x80, 0x80}, fsm.ErrCorrupt},
	}
	for _, tt := range tests {
		if _, err := fsm.Decode(tt.entry); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestHotReadsAllocateNothing(t *testing.T) {
	s := founded(t)
	s.Apply(2, &fsm.ImportKeys{Keys: []fsm.Key{{ID: "web1", State: fsm.KeyAccepted, Pub: "P"}},
		At: at})
	spki := member(1).SPKI
	node := member(1).Node
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := s.Key("web1"); !ok {
			t.Fatal("no key")
		}
		if _, ok := s.MemberBySPKI(spki); !ok {
			t.Fatal("no member")
		}
		if _, ok := s.MemberByNode(node); !ok {
			t.Fatal("no member")
		}
		_ = s.KeysVersion()
		_ = s.IsDenied("web1", "x")
	}); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}
