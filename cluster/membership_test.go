package cluster

import "testing"

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
