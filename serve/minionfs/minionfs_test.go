package minionfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/serve/fileserver"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/store/uploads"
)

func serving(t *testing.T, o Options) (*Server, *uploads.Files) {
	t.Helper()
	pushed := uploads.New(ringtest.Alone(t, ringstore.Options{}), time.Now)
	o.Env, o.HashType = "base", "sha256"
	if o.Ignored == nil {
		o.Ignored = func(string) bool { return false }
	}
	s, err := New(o, pushed)
	if err != nil {
		t.Fatal(err)
	}
	return s, pushed
}

func push(t *testing.T, f *uploads.Files, id, path, text string) {
	t.Helper()
	if ok, err := f.Append(context.Background(), id, path, 0, int64(len(text)),
		[]byte(text)); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func read(t *testing.T, s *Server, name string) string {
	t.Helper()
	f, ok, err := s.Find(t.Context(), name, "base")
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return "(absent)"
	}
	b, err := f.Whole(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := f.Sum(t.Context())
	if want := sha256.Sum256(b); err != nil || sum != hex.EncodeToString(want[:]) {
		t.Errorf("%s: hash %s, %v", name, sum, err)
	}
	return string(b)
}

// TestWhatIsServed: top files, minions outside the lists and ignored files are not; a file that is
// pushed anew has its new content and hash at once.
func TestWhatIsServed(t *testing.T) {
	t.Parallel()
	s, pushed := serving(t, Options{White: []string{"web.*", "db1"}, Black: []string{"web9"},
		Ignored: func(path string) bool { return strings.HasSuffix(path, ".bak") }})
	for _, id := range []string{"web1", "web9", "db1", "db2"} {
		push(t, pushed, id, "etc/x", "of "+id)
	}
	push(t, pushed, "web1", "top.sls", "base: {}")
	push(t, pushed, "web1", "sub/top.sls", "base: {}")
	push(t, pushed, "web1", "old.bak", "old")
	for name, want := range map[string]string{
		"web1/etc/x": "of web1", "db1/etc/x": "of db1", "web9/etc/x": "(absent)",
		"db2/etc/x": "(absent)", "web1/top.sls": "(absent)", "web1/sub/top.sls": "(absent)",
		"web1/old.bak": "(absent)", "web1": "(absent)", "web1/etc": "(absent)",
		"web1/etc/../etc/x": "(absent)", "": "(absent)",
	} {
		if got := read(t, s, name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	push(t, pushed, "web1", "etc/x", "anew")
	if got := read(t, s, "web1/etc/x"); got != "anew" {
		t.Errorf("pushed anew: %q", got)
	}
	if _, ok, err := s.Find(t.Context(), "web1/etc/x", "dev"); ok || err != nil {
		t.Error("found in another environment", err)
	}
}

// TestLists are kept for a second, and dropped by Forget.
func TestLists(t *testing.T) {
	t.Parallel()
	s, pushed := serving(t, Options{Mountpoint: "salt://from/minions"})
	list := func(env string) fileserver.Lists {
		t.Helper()
		l, err := s.Lists(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	push(t, pushed, "web1", "a/b/c", "1")
	l := list("base")
	if !slices.Equal(l.Files, []string{"from/minions/web1/a/b/c"}) ||
		!slices.Equal(l.Dirs, []string{"from/minions/web1/a", "from/minions/web1/a/b"}) {
		t.Errorf("%+v", l)
	}
	if l := list("dev"); len(l.Files) > 0 {
		t.Errorf("another environment: %+v", l)
	}
	s.until = time.Now().Add(time.Hour)
	push(t, pushed, "web1", "d", "2")
	if l := list("base"); len(l.Files) != 1 {
		t.Errorf("a list that is kept: %+v", l)
	}
	if got := s.Forget("dev"); got != nil {
		t.Errorf("forgot %v", got)
	}
	if got := s.Forget(""); !slices.Equal(got, []string{"base"}) {
		t.Errorf("forgot %v", got)
	}
	if l := list("base"); len(l.Files) != 2 {
		t.Errorf("after Forget: %+v", l)
	}
	if got := read(t, s, "from/minions/web1/d"); got != "2" {
		t.Errorf("below the mount point: %q", got)
	}
	if got := read(t, s, "web1/d"); got != "(absent)" {
		t.Errorf("beside the mount point: %q", got)
	}
}
