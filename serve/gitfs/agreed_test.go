package gitfs

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"clustermaster/serve/gitfs/gitfstest"
)

// newAlone is the agreement of one master with itself.
func newAlone() Agreed { return Agreed{gitfstest.New()} }

// TestAgreed publishes, pins and locks, and reads what was agreed on.
func TestAgreed(t *testing.T) {
	t.Parallel()
	a, ctx := newAlone(), t.Context()
	key, one, two := strings.Repeat("a", 32), strings.Repeat("1", 40), strings.Repeat("2", 40)
	const main, dev = "refs/remotes/origin/main", "refs/remotes/origin/dev"
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	check("first", a.Publish(ctx, key, 1, Refs{main: one, dev: one}, nil), nil)
	check("of another master, too late", errors.Is(a.Publish(ctx, key, 1, Refs{main: two}, nil),
		ErrStale), true)
	check("second", a.Publish(ctx, key, 2, Refs{main: two}, []string{dev}), nil)
	check("pin", a.Pin(ctx, key, "base", one, "root"), nil)
	check("lock", a.Lock(ctx, key, true), nil)
	got := a.Tables()[key]
	check("number", got.Seq, uint64(2))
	check("refs", got.Refs, Refs{main: two})
	check("before", got.Before, map[string][]string{main: {one}})
	check("locked", got.Locked, true)
	check("pin's commit", got.Pins["base"].Commit+got.Pins["base"].By, one+"root")
	check("unpin", a.Pin(ctx, key, "base", "", "root"), nil)
	check("unlock", a.Lock(ctx, key, false), nil)
	got = a.Tables()[key]
	check("pins", len(got.Pins), 0)
	check("still locked", got.Locked, false)
	for what, err := range map[string]error{
		"publish": a.Publish(ctx, "no key", 1, Refs{main: one}, nil),
		"pin":     a.Pin(ctx, "no key", "base", one, "root"),
		"lock":    a.Lock(ctx, "no key", true),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "refused: ") {
			t.Errorf("%s of a bad key: %v", what, err)
		}
	}
}

// TestPillarsByShownRemotes finds an entry of ext_pillar by remotes whose secrets are hidden.
func TestPillarsByShownRemotes(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"top.sls": "{}"})
	r.commit("one")
	entry := func(password string) []any {
		return []any{with("master file://"+r.dir, "user", "u", "password", password,
			"insecure_auth", true)}
	}
	dir := t.TempDir()
	s, problems, err := New(Options{Dir: dir, CacheDir: dir, Pillars: []Config{{
		Role: RolePillar, Remotes: entry("secret"), Shown: entry("[redacted]"),
		Global: func(option string) any { return defaults[option] },
	}}}, newAlone(), nil, nil, nil)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	defer s.Close()
	s.all(t)
	trees, err := s.Pillars(t.Context(), entry("[redacted]"), "", "")
	if err != nil || len(trees) != 1 {
		t.Errorf("got %v, %v, want one tree", trees, err)
	}
	_, err = s.Pillars(t.Context(), []any{"master file:///elsewhere"}, "", "")
	if err == nil || !strings.Contains(err.Error(), "ext_pillar") {
		t.Errorf("an entry that no configuration has: %v", err)
	}
}
