package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
)

// reactorsAndRuns are commands that leave something of each kind behind.
func reactorsAndRuns() []fsm.Command {
	return []fsm.Command{
		&fsm.ChangeReactor{Action: fsm.AddReactor, Tag: "my/*",
			Files: []string{"/srv/a.sls", "salt://b.sls"}, At: at},
		&fsm.ChangeReactor{Action: fsm.DeleteReactor, Tag: "salt/auth", Configured: true, At: at},
		&fsm.ChangeReactor{Action: fsm.ReactorsOff, At: at},
		&fsm.ClaimRun{Entry: fsm.Scheduled{Name: "job", Next: at.Add(time.Minute), Last: at,
			Started: true, At: at}, JID: "1", Node: "m1"},
		&fsm.ClaimRun{Entry: fsm.Scheduled{Name: "job", Turn: 1, After: at, At: at}, JID: "2",
			Node: "m2"},
		&fsm.ClaimRun{Entry: fsm.Scheduled{Name: "old", Splay: at, At: at}},
		&fsm.ClearRuns{JIDs: []string{"1"}, Forget: []string{"old"}, Before: at},
	}
}

func TestReactors(t *testing.T) {
	t.Parallel()
	add := func(tag string, configured bool) *fsm.ChangeReactor {
		return &fsm.ChangeReactor{Action: fsm.AddReactor, Tag: tag, Files: []string{"/f.sls"},
			Configured: configured, At: at}
	}
	del := func(tag string, configured bool) *fsm.ChangeReactor {
		return &fsm.ChangeReactor{Action: fsm.DeleteReactor, Tag: tag, Configured: configured,
			At: at}
	}
	for _, tt := range []struct {
		name    string
		do      []*fsm.ChangeReactor
		changed string // one letter for each command
		want    string
	}{
		{"added once", []*fsm.ChangeReactor{add("a", false), add("a", false), add("b", false)},
			"tft", "[{a [/f.sls]} {b [/f.sls]}] []"},
		{"there by the option", []*fsm.ChangeReactor{add("a", true), del("a", true),
			del("a", true)}, "ftf", "[] [a]"},
		{"deleted by the option and added again",
			[]*fsm.ChangeReactor{del("a", true), add("a", true), add("a", true), del("a", true)},
			"ttft", "[] [a]"},
		{"not there", []*fsm.ChangeReactor{del("a", false)}, "f", "[] []"},
		{"the order of coming stays", []*fsm.ChangeReactor{add("b", false), add("a", false),
			add("c", false), del("a", false)}, "tttt", "[{b [/f.sls]} {c [/f.sls]}] []"},
		{"deleted ones are sorted", []*fsm.ChangeReactor{del("z", true), del("a", true),
			del("m", true)}, "ttt", "[] [a m z]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := founded(t)
			changed := ""
			for _, c := range tt.do {
				r, change := apply(t, s, c)
				changed += fmt.Sprint(r.Changed)[:1]
				if r.Refused != "" || change.Reactors != r.Changed {
					t.Errorf("%+v: %+v %+v", c, r, change)
				}
			}
			for _, state := range []*fsm.State{s, rebuilt(t, s)} {
				got := state.Reactors()
				if text := fmt.Sprint(got.Added, " ", got.Deleted); changed != tt.changed ||
					text != tt.want {
					t.Errorf("got %s %s, want %s %s", changed, text, tt.changed, tt.want)
				}
			}
		})
	}
}

func TestReactorsAreBounded(t *testing.T) {
	t.Parallel()
	s := founded(t)
	for i := range 1000 {
		if r, _ := apply(t, s, &fsm.ChangeReactor{Action: fsm.AddReactor, Tag: fmt.Sprint(i),
			At: at}); !r.Changed {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	for _, tt := range []struct {
		c    fsm.ChangeReactor
		want fsm.Refusal
	}{
		{fsm.ChangeReactor{Action: fsm.AddReactor, Tag: "one more"}, fsm.RefusedFull},
		{fsm.ChangeReactor{Action: fsm.DeleteReactor, Tag: "one more", Configured: true},
			fsm.RefusedFull},
		{fsm.ChangeReactor{Action: fsm.AddReactor, Tag: strings.Repeat("x", 1025)},
			fsm.RefusedInvalid},
		{fsm.ChangeReactor{Action: fsm.AddReactor, Tag: "x", Files: make([]string, 101)},
			fsm.RefusedInvalid},
		{fsm.ChangeReactor{Action: fsm.AddReactor, Tag: "x",
			Files: []string{strings.Repeat("x", 4097)}}, fsm.RefusedInvalid},
		{fsm.ChangeReactor{Action: fsm.AddReactor}, fsm.RefusedInvalid},
		{fsm.ChangeReactor{Tag: "x"}, fsm.RefusedInvalid},
	} {
		before := snapshot(t, s)
		if r, _ := s.Apply(s.AppliedIndex(), &tt.c); r.Refused != tt.want || r.Changed ||
			!bytes.Equal(snapshot(t, s), before) {
			t.Errorf("%d %.10q: %+v, want %s", tt.c.Action, tt.c.Tag, r, tt.want)
		}
	}
}

// Either everybody is on or off; a request for the present state changes nothing.
func TestReactorsOff(t *testing.T) {
	t.Parallel()
	s := founded(t)
	for _, tt := range []struct {
		action       fsm.ReactorAction
		changed, off bool
	}{{fsm.ReactorsOn, false, false}, {fsm.ReactorsOff, true, true}, {fsm.ReactorsOff, false,
		true}, {fsm.ReactorsOn, true, false}} {
		if r, _ := apply(t, s, &fsm.ChangeReactor{Action: tt.action,
			At: at}); r.Changed != tt.changed {
			t.Errorf("%+v: %+v", tt, r)
		}
		if rebuilt(t, s).Reactors().Off != tt.off {
			t.Errorf("%+v: off is not", tt)
		}
	}
}

// Of all claims from one turn one succeeds, and the runs of the others' are not noted.
func TestClaimRun(t *testing.T) {
	t.Parallel()
	s := founded(t)
	claim := func(turn uint64, jid, node string) *fsm.ClaimRun {
		return &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "job", Turn: turn,
			Next: at.Add(time.Duration(turn) * time.Minute), Last: at, Started: true, At: at},
			JID: jid, Node: node}
	}
	for i, tt := range []struct {
		c       *fsm.ClaimRun
		refused fsm.Refusal
		turn    uint64
	}{
		{claim(1, "early", "m1"), fsm.RefusedStale, 0},
		{claim(0, "1", "m1"), "", 1},
		{claim(0, "2", "m2"), fsm.RefusedStale, 1},
		{claim(1, "", ""), "", 2},
		{claim(2, "3", "m2"), "", 3},
		{claim(2, "4", "m1"), fsm.RefusedStale, 3},
	} {
		if r, _ := apply(t, s, tt.c); r.Refused != tt.refused || r.Epoch != tt.turn ||
			r.Changed != (tt.refused == "") {
			t.Errorf("claim %d: %+v, want %q and turn %d", i, r, tt.refused, tt.turn)
		}
	}
	e, ok := rebuilt(t, s).Scheduled("job")
	if want := "[{1 m1} {3 m2}]"; !ok || fmt.Sprint(e.Runs) != want || e.Turn != 3 ||
		!e.Next.Equal(at.Add(2*time.Minute)) || !e.Started {
		t.Errorf("got %+v, want runs %s", e, want)
	}
	if _, ok := s.Scheduled("other"); ok {
		t.Error("an entry that nobody claimed is there")
	}
}

// A claim whose answer was lost is proposed again, and gets the first answer.
func TestClaimRunAgain(t *testing.T) {
	t.Parallel()
	s := founded(t)
	c := once(t, 1, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "job", At: at}, JID: "1", Node: "m1"})
	first, _ := apply(t, s, c)
	again, _ := apply(t, s, c)
	if e, _ := s.Scheduled("job"); !first.Changed || fmt.Sprint(again) != fmt.Sprint(first) ||
		len(e.Runs) != 1 || e.Turn != 1 {
		t.Errorf("first %+v, again %+v, entry %+v", first, again, e)
	}
}

func TestClearRuns(t *testing.T) {
	t.Parallel()
	s := founded(t)
	turn := uint64(0)
	for _, run := range []fsm.Run{{JID: "1", Node: "m1"}, {JID: "2", Node: "m2"},
		{JID: "3", Node: "m1"}} {
		apply(t, s, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "job", Turn: turn, At: at},
			JID: run.JID, Node: run.Node})
		turn++
	}
	apply(t, s, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "old", At: at.Add(-time.Hour)}})
	apply(t, s, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "young", At: at}})
	for i, tt := range []struct {
		c       fsm.ClearRuns
		changed bool
		want    string
	}{
		{fsm.ClearRuns{JIDs: []string{"2"}}, true, "[{1 m1} {3 m1}]"},
		{fsm.ClearRuns{JIDs: []string{"2"}, Node: "m3"}, false, "[{1 m1} {3 m1}]"},
		{fsm.ClearRuns{Node: "m1"}, true, "[]"},
		{fsm.ClearRuns{Forget: []string{"old", "young", "none"}, Before: at}, true, "[]"},
	} {
		r, _ := apply(t, s, &tt.c)
		if e, _ := rebuilt(t, s).Scheduled("job"); r.Changed != tt.changed ||
			fmt.Sprint(e.Runs) != tt.want {
			t.Errorf("%d: %+v, runs %v, want %s", i, r, e.Runs, tt.want)
		}
	}
	var names []string
	for _, e := range s.ScheduledEntries() {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "job young" {
		t.Errorf("entries left: %s", got)
	}
}

func TestScheduleIsBounded(t *testing.T) {
	t.Parallel()
	s := founded(t)
	for i := range 4096 {
		s.Apply(s.AppliedIndex()+1, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: fmt.Sprint(i),
			At: at}})
	}
	for i := range 256 {
		s.Apply(s.AppliedIndex()+1, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "0",
			Turn: uint64(i + 1), At: at}, JID: fmt.Sprint(i)})
	}
	for _, tt := range []struct {
		c    fsm.ClaimRun
		want fsm.Refusal
	}{
		{fsm.ClaimRun{Entry: fsm.Scheduled{Name: "one more"}}, fsm.RefusedFull},
		{fsm.ClaimRun{Entry: fsm.Scheduled{Name: "0", Turn: 257}, JID: "x"}, fsm.RefusedFull},
		{fsm.ClaimRun{Entry: fsm.Scheduled{Name: "0", Turn: 257}}, ""},
		{fsm.ClaimRun{Entry: fsm.Scheduled{}}, fsm.RefusedInvalid},
		{fsm.ClaimRun{Entry: fsm.Scheduled{Name: strings.Repeat("x", 1025)}}, fsm.RefusedInvalid},
	} {
		if r, _ := apply(t, s, &tt.c); r.Refused != tt.want {
			t.Errorf("%.10q: %+v, want %q", tt.c.Entry.Name, r, tt.want)
		}
	}
}

// TestReactorsAndRunsGiveEqualBytes applies random commands to two states, one of which begins with
// a snapshot of the other.
func TestReactorsAndRunsGiveEqualBytes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 9))
		a, b := founded(t), fsm.New()
		cut := r.IntN(200)
		for i := range 200 {
			name := fmt.Sprintf("job%d", r.IntN(4))
			var c fsm.Command
			switch r.IntN(4) {
			case 0:
				c = &fsm.ChangeReactor{Action: fsm.ReactorAction(r.IntN(5)),
					Tag: fmt.Sprint(r.IntN(6)), Files: make([]string,
						r.IntN(3)), Configured: r.IntN(2) == 0, At: at}
			case 1:
				c = &fsm.ClearRuns{JIDs: []string{fmt.Sprint(r.IntN(200))},
					Node: fmt.Sprintf("m%d",
						r.IntN(9)), Forget: []string{name},
					Before: at.Add(time.Duration(r.IntN(200)) * time.Second)}
			default:
				e, _ := a.Scheduled(name)
				e.Name, e.Turn, e.At = name, e.Turn+
					uint64(r.IntN(2)), at.Add(time.Duration(i)*time.Second)
				c = &fsm.ClaimRun{Entry: e, JID: strings.Repeat(fmt.Sprint(i), r.IntN(2)),
					Node: fmt.Sprintf("m%d", r.IntN(3))}
			}
			ra, _ := apply(t, a, c)
			if i == cut {
				b = rebuilt(t, a)
			} else if i > cut {
				if rb, _ := apply(t, b, c); fmt.Sprint(ra) != fmt.Sprint(rb) {
					t.Fatalf("seed %d, %T: %+v and %+v", seed, c, ra, rb)
				}
			}
		}
		if !bytes.Equal(snapshot(t, a), snapshot(t, b)) && cut < 199 {
			t.Fatalf("seed %d: snapshots differ", seed)
		}
	}
}

// What operators changed of the reactors comes back with a backup, and entries of the schedule that
// this cluster does not know.
func TestReactorsAndScheduleComeBack(t *testing.T) {
	t.Parallel()
	old, now := founded(t), founded(t)
	for _, c := range reactorsAndRuns() {
		apply(t, old, c)
	}
	apply(t, old, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "only there", Last: at, At: at}})
	apply(t, now, &fsm.ClaimRun{Entry: fsm.Scheduled{Name: "job", Last: at.Add(time.Hour), At: at}})
	parts, end := savedOf(old).Split("token", at, 4000)
	for _, p := range parts {
		apply(t, now, p)
	}
	if r, _ := apply(t, now, end); r.Refused != "" {
		t.Fatalf("restore: %+v", r)
	}
	got, want := now.Reactors(), old.Reactors()
	if got.Index = want.Index; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	kept, _ := now.Scheduled("job")
	back, ok := now.Scheduled("only there")
	if !kept.Last.Equal(at.Add(time.Hour)) || !ok || !back.Last.Equal(at) {
		t.Errorf("got %+v and %+v", kept, back)
	}
	rebuilt(t, now)
}
