package cluster

import (
	"log/slog"
	"testing"

	"clustermaster/cluster/fsm"
)

func TestNextPhase(t *testing.T) {
	t.Parallel()
	listed := facts{listed: true, joined: true}
	with := func(f facts, change func(*facts)) facts { change(&f); return f }
	caughtUp := with(listed, func(f *facts) { f.caughtUp = true })
	for _, tt := range []struct {
		name string
		from Phase
		with facts
		want Phase
	}{
		{"nobody has let it in", New, facts{}, New},
		{"it begins to found", New, facts{founding: true}, Founding},
		{"what it founded lists it", Founding, with(listed, func(f *facts) { f.founding = true }),
			Founding},
		{"the import is not done, though it knows all", Founding,
			with(caughtUp, func(f *facts) { f.founding = true }), Founding},
		{"the import is done", Founding, listed, Syncing},
		{"a member let it in", New, facts{admitted: true}, Admitted},
		{"the admission came to nothing", Admitted, facts{}, New},
		{"the state has come", Admitted, listed, Syncing},
		{"it restarts with a state", New, listed, Syncing},
		{"it catches up", Syncing, listed, Syncing},
		{"it has caught up", Syncing, caughtUp, Joined},
		{"it goes on without a leader", Joined, listed, Joined},
		{"founding is taken up again while it serves", Joined,
			with(listed, func(f *facts) { f.founding = true }), Joined},
		{"the state no longer lists it", Joined, facts{joined: true}, Removed},
		{"nor did it before it served", Syncing, facts{joined: true}, Removed},
		{"a member says that it was removed", Joined,
			with(listed, func(f *facts) { f.barred = true }), Removed},
		{"it stays removed, caught up or not", Removed,
			with(caughtUp, func(f *facts) { f.barred = true }), Removed},
		{"an old disk says so before the state", New, facts{barred: true}, Removed},
		{"a removed founder does not found", Founding, facts{founding: true, barred: true},
			Removed},
		{"the members refuse its key", Joined, with(listed, func(f *facts) { f.disowned = true }),
			Removed},
		{"a member answers again", Removed, listed, Syncing},
		{"it was let in again", Removed, caughtUp, Joined},
		{"it was let in again and waits for the state", Removed, facts{admitted: true}, Admitted},
	} {
		if got := next(tt.from, tt.with); got != tt.want {
			t.Errorf("%s: from %v to %v, want %v", tt.name, tt.from, got, tt.want)
		}
	}
}

// Whatever is known, a master serves only as a listed member that nobody keeps out, and no phase is
// left and entered in turn while nothing changes.
func TestPhasesAreSafeAndStable(t *testing.T) {
	t.Parallel()
	for bits := range 1 << 7 {
		on := func(i int) bool { return bits&(1<<i) != 0 }
		f := facts{on(0), on(1), on(2), on(3), on(4), on(5), on(6)}
		for from := New; from <= Removed; from++ {
			to := next(from, f)
			if to == Joined && (!f.listed || f.barred || f.disowned) {
				t.Errorf("%v becomes %v with %+v", from, to, f)
			}
			if again := next(to, f); again != to {
				t.Errorf("%v becomes %v and then %v with %+v", from, to, again, f)
			}
		}
	}
}

// One that slept through its removal and was admitted again reads of the removal afterwards, from a
// state that is older than the admission.
func TestOldRemovalMeansNothing(t *testing.T) {
	t.Parallel()
	founder := fsm.Member{ID: "m1", Incarnation: "1", Node: "m1/1", Addr: "127.0.0.1:1",
		SPKI: [32]byte{1}}
	self := fsm.Member{ID: "m2", Incarnation: "2", Node: "m2/2", Addr: "127.0.0.1:2",
		SPKI: [32]byte{2}}
	n := &Node{cfg: Config{DataDir: t.TempDir()}, self: self, state: fsm.New(), pins: NewPins(),
		log: slog.New(slog.DiscardHandler)}
	n.pins.open(n.state, self)
	apply(t, n.state, &fsm.Found{Cluster: fsm.Cluster{UUID: "u", Partitions: 1}, Member: founder,
		AES: "a", Session: []byte("s")})
	apply(t, n.state, &fsm.PutMember{Member: self})
	apply(t, n.state, &fsm.RemoveMember{Node: self.Node})
	n.pins.learn([]fsm.Member{founder, self}, 4)
	if n.noteRemoved(""); n.barred() {
		t.Error("a removal at index 3 counts after the admission at index 4")
	}
	apply(t, n.state, &fsm.PutMember{Member: self})
	if n.noteRemoved(""); n.barred() {
		t.Error("it is a member, and barred")
	}
	apply(t, n.state, &fsm.RemoveMember{Node: self.Node})
	if n.noteRemoved(""); !n.barred() {
		t.Error("a removal after the admission means nothing")
	}
	if err := n.forgetRemoved(); err != nil || n.barred() {
		t.Errorf("barred %v, %v", n.barred(), err)
	}
	if n.noteRemoved("127.0.0.1:2"); !n.barred() {
		t.Error("what a member says means nothing")
	}
}

// apply gives a state its next commands.
func apply(t *testing.T, s *fsm.State, commands ...fsm.Command) {
	t.Helper()
	for _, c := range commands {
		if r, _ := s.Apply(s.AppliedIndex()+1, c); r.Refused != "" {
			t.Fatal(r.Refused)
		}
	}
}
