package backup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestFolderKeepsTheNewest(t *testing.T) {
	t.Parallel()
	f := Folder{Dir: t.TempDir(), Cluster: "a/b", Master: "m1"}
	if kept, err := (Folder{Dir: filepath.Join(f.Dir, "none")}).List(); err != nil || kept != nil {
		t.Errorf("no folder: %v %v", kept, err)
	}
	at := time.Date(2026, 3, 1, 2, 0, 0, 0, time.FixedZone("x", 3600))
	touch := func(path string) string {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(path)
	}
	day := func(n int) time.Time { return at.AddDate(0, 0, n) }
	touch(f.Path(day(0)))
	touch(f.Path(day(1)))
	third := touch(f.Path(day(2)))
	other := f
	other.Master = "m-2"
	foreign := touch(other.Path(day(3)))
	untouched := []string{
		touch(other.Unverified(day(4))),
		touch(Folder{Dir: f.Dir, Cluster: "a", Master: "m1"}.Path(day(0))),
		touch(filepath.Join(f.Dir, "a_b-20260301T010000Z-m1.sealed.txt")),
		touch(filepath.Join(f.Dir, "a_b-2026-m1.sealed")),
	}
	touch(f.Unverified(day(5)))
	if third != "a_b-20260303T010000Z-m1.sealed" {
		t.Errorf("named %s", third)
	}
	names := func() []string {
		entries, err := os.ReadDir(f.Dir)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	check := func(want ...string) {
		t.Helper()
		want = append(want, untouched...)
		slices.Sort(want)
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	kept, err := f.List()
	if err != nil || len(kept) != 4 || kept[0].Master != "m-2" || !kept[0].At.Equal(day(3)) ||
		!kept[3].At.Equal(day(0)) {
		t.Errorf("listed %v %v", kept, err)
	}
	if removed, err := f.Prune(1, true, day(9)); err != nil || len(removed) != 2 {
		t.Errorf("own: removed %v %v", removed, err)
	}
	check(third, foreign)
	if removed, err := f.Prune(2, false, day(2)); err != nil || len(removed) != 0 {
		t.Errorf("removed %v %v", removed, err)
	}
	check(third, foreign)
	ahead := touch(f.Path(day(8)))
	if removed, err := f.Prune(2, false, day(7)); err != nil || len(removed) != 1 {
		t.Errorf("with one in the future: removed %v %v, not %s", removed, err, ahead)
	}
	check(third, foreign)
	if removed, err := f.Prune(1, false, day(9)); err != nil || len(removed) != 1 {
		t.Errorf("all: removed %v %v", removed, err)
	}
	check(foreign)
}
