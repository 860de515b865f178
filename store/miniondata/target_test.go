package miniondata

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/salt/target"
	"clustermaster/salt/target/targettest"
)

// answers are what a target means in a world whose data is all at hand; that these are Salt's is
// shown by package target.
func answers(t testing.TB, w *targettest.World) []target.Result {
	t.Helper()
	out := make([]target.Result, len(w.Targets))
	for i, q := range w.Targets {
		var err error
		if out[i], err = target.Match(t.Context(), q.Type, q.Expr, "", w, q.Greedy); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func sameAnswer(ctx context.Context, q targettest.Target, src target.Source,
	want target.Result) error {
	got, err := target.Match(ctx, q.Type, q.Expr, "", src, q.Greedy)
	if err != nil {
		return fmt.Errorf("%v: %w", q, err)
	}
	if got.Incomplete != "" || !slices.Equal(got.Minions, want.Minions) ||
		!slices.Equal(got.Missing, want.Missing) {
		return fmt.Errorf("%v: %d minions %.100v (%s), want %d %.100v", q, len(got.Minions),
			got.Minions, got.Incomplete, len(want.Minions), want.Minions)
	}
	return nil
}

// TestTargetsOnTheRing: whichever master is asked, one store or three, all alive or one dead, a
// target means the same minions.
func TestTargetsOnTheRing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := targettest.New()
	want := answers(t, w)
	for _, names := range [][]string{{"m1/a"}, {"m1/a", "m2/b", "m3/c"}} {
		a := newMasters(t, names...)
		a.fill(ctx, w)
		check := func(when string, step int) {
			for i, q := range w.Targets {
				if i%step != 0 {
					continue
				}
				for _, n := range a.list() {
					if !n.up {
						continue
					}
					if err := sameAnswer(ctx, q, source(w, n.data), want[i]); err != nil {
						t.Errorf("%d masters, %s, asked at %s: %v", len(names), when, n.name, err)
					}
				}
			}
		}
		check("all alive", 1)
		if len(names) == 1 {
			continue
		}
		for _, dead := range names {
			a.node(dead).kill()
			check(dead+" is dead", 3)
			a.start(dead)
			check(dead+" is back", 7)
		}
	}
}

// TestTargetsWhileTheRingChanges: masters join, leave and die under questions; no minion is lost
// and none is there twice.
func TestTargetsWhileTheRingChanges(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := targettest.New()
	want := answers(t, w)
	a := newMasters(t, "m1/a", "m2/b", "m3/c")
	a.fill(ctx, w)
	asking, enough := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var asked atomic.Int64
	for i, name := range []string{"m1/a", "m2/b"} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			src := source(w, a.node(name).data)
			for n := i; asking.Err() == nil; n++ {
				at := n * 13 % len(w.Targets)
				if err := sameAnswer(asking, w.Targets[at], src, want[at]); err != nil &&
					asking.Err() == nil {
					t.Errorf("asked at %s: %v", name, err)
				}
				asked.Add(1)
			}
		}()
	}
	for _, ring := range [][]string{{"m1/a", "m2/b", "m3/c", "m4/d"}, {"m1/a", "m2/b", "m4/d"},
		{"m1/a", "m2/b", "m4/d", "m3/c"}} {
		a.setRing(ring...)
		a.settled()
	}
	a.node("m4/d").kill()
	a.setRing("m1/a", "m2/b", "m3/c")
	a.settled()
	enough()
	wg.Wait()
	t.Logf("%d targets", asked.Load())
}

// TestNodegroups replaces the groups of a world.
func TestNodegroups(t *testing.T) {
	t.Parallel()
	w := NewWorld(accepted{"web1"}, nil, true, nil)
	if _, ok := w.Nodegroup("web"); ok {
		t.Error("a group without the option")
	}
	w.SetNodegroups(m("web", "L@web1"))
	if v, ok := w.Nodegroup("web"); !ok || v != "L@web1" {
		t.Errorf("got %v, %v", v, ok)
	}
	got, err := target.Match(t.Context(), "nodegroup", "web", "", w, true)
	if err != nil || !slices.Equal(got.Minions, []string{"web1"}) {
		t.Errorf("%v, %v", got.Minions, err)
	}
}
