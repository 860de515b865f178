package statesync

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// patterns has each master take roots from the folders in formulas, and more around them.
func patterns(_ int, o *Options) {
	top := filepath.Dir(o.File[0].Dirs[0])
	o.File[0].Dirs = []string{top + "/srv", top + "/formulas/*", top + "/last"}
}

// A folder more on one master doesn't change which root is which: it arrives under its name, like
// what changed in the others, and what is deleted is deleted under its name.
func TestMatchesOfAPatternKeepTheirNames(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3, patterns).settled()
	a, b := c.boxes[0], c.boxes[1]
	top := func(b *box) string { return filepath.Dir(b.file) }
	want := tree{"srv/s": "644 s", "formulas/a/x": "644 a", "formulas/b/x": "644 b",
		"formulas/c/x": "644 c", "formulas/.hidden/x": "644 h", "formulas/file": "644 f",
		"last/l": "644 l"}
	same := func(what string, differs ...string) {
		t.Helper()
		for _, one := range c.boxes[1:] {
			for _, dir := range []string{"srv", "formulas", "last"} {
				want := read(t, top(a)+"/"+dir)
				for _, path := range differs {
					delete(want, path)
				}
				expect(t, what+", "+one.node, top(one)+"/"+dir, want)
			}
		}
	}
	want.write(t, top(a))
	a.sync(Request{Env: "base"})
	same("first", ".hidden/", ".hidden/x", "file")
	tree{"formulas/aa/x": "644 aa", "formulas/b/x": "644 b2", "last/l": "644 l2"}.write(t, top(a))
	r := a.sync(Request{Test: true}).of(t, "m2")
	if changes := []string{"~ base:2 l", "+ base:1/aa x", "~ base:1/b x"}; !slices.Equal(r.Changes,
		changes) {
		t.Errorf("would change %q", r.Changes)
	}
	a.sync(Request{})
	same("one more", ".hidden/", ".hidden/x", "file")
	if err := os.RemoveAll(top(b) + "/formulas/a"); err != nil {
		t.Fatal(err)
	}
	b.sync(Request{})
	if _, err := os.Stat(top(a) + "/formulas/a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("deleted on m2: %v", err)
	}
	same("one less", ".hidden/", ".hidden/x", "file")
	if err := os.Rename(top(b)+"/formulas", top(b)+"/unmounted"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Sync(t.Context(), Request{Trees: []Tree{FileRoots}}, nil); err == nil ||
		!strings.Contains(err.Error(), "is missing") {
		t.Errorf("all deleted: %v", err)
	}
	tree{"formulas/new/x": "644 n"}.write(t, top(a))
	if rep := a.sync(Request{}).of(t, "m2"); !strings.Contains(rep.Error, "mount its file system") {
		t.Errorf("one more below the mount point: %s", counts(rep))
	}
	if err := os.Rename(top(b)+"/unmounted", top(b)+"/formulas"); err != nil {
		t.Fatal(err)
	}
	a.sync(Request{})
	same("mounted again", ".hidden/", ".hidden/x", "file")
}

// A root that another list, or a master of 0.1.0, names otherwise is listed and written nowhere,
// and that master's numbers are forgotten.
func TestRootsOfOtherListsAreLeftOut(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2, func(i int, o *Options) {
		patterns(i, o)
		o.File = append(o.File, Env{Name: "dev", Dirs: []string{filepath.Dir(o.File[0].Dirs[0]) + "/dev"}})
		if i == 1 {
			o.File[0].Dirs[1] = strings.TrimSuffix(o.File[0].Dirs[1], "*") + "[a-f]"
		}
	}).settled()
	a, b := c.boxes[0], c.boxes[1]
	top := filepath.Dir(a.file)
	for sc, want := range map[Scope]string{
		{"base", 0}: top + "/srv", {"base//a", 1}: top + "/formulas/a", {"base//", 2}: top + "/last",
		{"base", 1}: "", {"base", 2}: "", {"base//a", 0}: "", {"base//a", 2}: "", {"base//", 1}: "",
		{"base//..", 1}: "", {"base//../x", 1}: "", {"base//a/b", 1}: "", {"base//.git", 1}: "",
		{"base//__pycache__", 1}: "", {"base//\xff", 1}: "", {"base//a", 3}: "", {"dev//a", 1}: "",
	} {
		if dir, ok := a.dirOf(FileRoots, sc); ok != (want != "") || ok && dir != want {
			t.Errorf("%+v is %q, %v", sc, dir, ok)
		}
	}
	tree{"formulas/a/x": "644 a", "formulas/x/x": "644 x",
		"formulas/__pycache__/x": "644"}.write(t, top)
	r := a.sync(Request{})
	if got := r.of(t, "m2").Missing; !slices.Equal(got, []Scope{{"base//x", 1}}) {
		t.Errorf("missing %v", got)
	}
	if got := r.of(t, "m1").Skipped; !slices.Equal(got,
		[]string{"base:1/__pycache__ a folder of this name is not synced"}) {
		t.Errorf("skipped %q", got)
	}
	expect(t, "b", filepath.Dir(b.file)+"/formulas", tree{"a/": made, "a/x": "644 a"})
	byNumber := Scope{"base", 1} // as 0.1.0 has the match of a pattern
	rec := a.trees[FileRoots].rec
	rec.roots = append(rec.roots, installedRoot{byNumber, top + "/formulas/x"})
	rec.manifest = &Manifest{Tree: FileRoots, Roots: []Root{{Scope: byNumber},
		{Scope: Scope{"base", 2}}, {Scope: Scope{"dev", 1}}}}
	// A head of 0.1.0 has it again.
	if _, err := a.install(t.Context(), a.trees[FileRoots], goal{want: rec.manifest, sum: rec.head.Manifest,
		source: "m2", head: rec.head, base: rec.manifest}); err != nil {
		t.Fatal(err)
	}
	rec = a.trees[FileRoots].rec
	m, err := a.capture(t.Context(), FileRoots, "dev", false, rec, &Report{})
	if err != nil {
		t.Fatal(err)
	}
	if _, kept := m.Root(byNumber); !kept {
		t.Error("a sync of one environment drops roots of another one")
	}
	m, err = a.capture(t.Context(), FileRoots, "", false, rec, &Report{})
	if err != nil {
		t.Fatal(err)
	}
	_, old := m.Root(byNumber)
	_, foreign := m.Root(Scope{"base", 2})
	if old || !foreign {
		t.Errorf("kept of the last manifest: its own %v, another master's %v", old, foreign)
	}
}
