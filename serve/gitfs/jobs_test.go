package gitfs

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"clustermaster/serve/gitfs/gitpb"
)

// TestJobsKeepTheirCommits has minions ask for files while their jobs run and commits come.
func TestJobsKeepTheirCommits(t *testing.T) {
	t.Parallel()
	r, ctx := newRepo(t), t.Context()
	s, _ := open(t, Options{JobFunctions: []string{"state.*"}}, with("file://"+r.dir, "name", "s"))
	var ids []string
	commit := func(n int) {
		t.Helper()
		r.write(map[string]string{"a": fmt.Sprint(n), fmt.Sprint("f", n): ""})
		ids = append(ids, r.commit(fmt.Sprint(n)))
		s.all(t)
	}
	expect := func(what, minion string, want int) {
		t.Helper()
		ctx := s.For(ctx, minion)
		f, ok, err := s.Find(ctx, "a", "base")
		if err != nil || !ok {
			t.Fatal(what, ok, err)
		}
		got, err := f.Whole(ctx, 100)
		if err != nil || string(got) != fmt.Sprint(want) {
			t.Errorf("%s: served %q, want %d, %v", what, got, want, err)
		}
		l, err := s.Lists(ctx, "base")
		if last := l.Files[len(l.Files)-1]; err != nil || last != fmt.Sprint("f", want) {
			t.Errorf("%s: the last listed is %q, %v", what, last, err)
		}
	}
	commit(1)
	s.Begin(ctx, "state.apply", "j1", []string{"m", "n"})
	s.Begin(ctx, "test.ping", "p1", []string{"o"})
	commit(2)
	expect("during its job", "m", 1)
	expect("another function", "o", 2)
	expect("no job", "p", 2)
	s.Begin(ctx, []any{"test.ping", "state.sls"}, "j2", []string{"m"})
	commit(3)
	expect("two jobs", "m", 1)
	s.End(ctx, "state.sls", "j2", "n")
	expect("another minion's return", "m", 1)
	s.End(ctx, "state.apply", "j1", "m")
	expect("the second job", "m", 2)
	expect("the other minion of the first", "n", 1)
	s.End(ctx, []any{"test.ping", "state.sls"}, "j2", "m")
	expect("after both", "m", 3)
	s.Started(ctx, "n")
	expect("after a restart of the minion", "n", 3)

	// What an operator pins counts for new jobs, and not for those that run.
	s.Begin(ctx, "state.apply", "j3", []string{"m"})
	if _, err := s.Pin(ctx, "s", "base", ids[0], "ada", false); err != nil {
		t.Fatal(err)
	}
	expect("a job before the pin", "m", 3)
	s.Begin(ctx, "state.apply", "j4", []string{"n"})
	if _, err := s.Unpin(ctx, "s", "base", "ada", false); err != nil {
		t.Fatal(err)
	}
	expect("a job under the pin", "n", 1)
	expect("no job after the pin", "p", 3)

	// What is held is not cleaned away: more commits come than are remembered of a branch.
	r.git("checkout", "-q", "--orphan", "other")
	for n := range 8 {
		commit(4 + n)
		r.git("branch", "-f", "master", "HEAD")
	}
	s.all(t)
	s.tidy(ctx, s.mirrors[s.keys[0]])
	s.caches.clear()
	if lacking := s.mirrors[s.keys[0]].lacks(ids[2:3]); len(lacking) > 0 {
		t.Error("a commit that a job holds was dropped")
	}
	expect("after tidying", "m", 3)
}

// TestJobsThatNobodyEnds gives up jobs that no minion got, and those whose time is over.
func TestJobsThatNobodyEnds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	j := newJobs()
	view := func(name string) { j.saw(&view{name: name}) }
	expect := func(what, minion, want string) {
		t.Helper()
		got := ""
		if v, _ := j.of(minion, now); v != nil {
			got = v.name
		}
		if got != want {
			t.Errorf("%s: %q is served from %q, want %q", what, minion, got, want)
		}
	}
	view("v1")
	if j.pin("v9", "j", []string{"m"}, now, time.Hour) {
		t.Error("an unknown view is taken")
	}
	j.pin("v1", "j1", []string{"busy", "away", "queued"}, now, time.Hour)
	expect("its first file", "busy", "v1")
	view("v2")
	j.pin("v2", "j2", []string{"away", "queued"}, now, 2*time.Hour)
	j.note(gitpb.NoteJobRequest_USED, "queued", "j1", now) // another master said so
	now = now.Add(unusedJob + time.Second)
	j.expire(now)
	expect("a job that goes on", "busy", "v1")
	expect("a job that nobody got", "away", "v2")
	expect("a job in a queue", "queued", "v1")
	now = now.Add(50 * time.Minute)
	j.note(gitpb.NoteJobRequest_RETURNED, "queued", "j1", now)
	expect("its turn, long after it was sent", "queued", "v2")
	now = now.Add(time.Hour)
	expect("past the first limit", "busy", "")
	j.expire(now.Add(time.Hour))
	if j.some.Load() || len(j.pins) > 0 {
		t.Errorf("left: %v", j.pins)
	}
	for n := range maxViews {
		view(fmt.Sprint("w", n))
	}
	if j.pin("v1", "j", []string{"m"}, now, time.Hour) || len(j.views) != maxViews {
		t.Errorf("%d views are remembered", len(j.views))
	}
}

// TestJobsWaitForViews pins to what this master serves in a moment.
func TestJobsWaitForViews(t *testing.T) {
	t.Parallel()
	j := newJobs()
	go j.saw(&view{name: "v"})
	if !j.pinSoon(t.Context(), "v", "j", []string{"m"}, time.Hour) {
		t.Error("the view that came was not taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if j.pinSoon(ctx, "w", "j", []string{"m"}, time.Hour) || !slices.Equal(j.recent, []string{"v"}) {
		t.Error("an unknown view is taken")
	}
}
