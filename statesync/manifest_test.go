package statesync

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"clustermaster/statesync/syncpb"
)

func TestPathsThatLeaveTheRootAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", "./a", "a/.", "a//b", "a/",
		"a\x00b", ".clustermaster-staging", "a/.clustermaster-staging/b",
		strings.Repeat("n", 256), strings.Repeat("a/", 200) + "a",
		strings.Repeat("abcdefg/", 520) + "a",
	} {
		it := Item{Path: bad, Kind: File, Mode: 0o644}
		if err := it.check(); err == nil {
			t.Errorf("%.40q is taken", bad)
		}
	}
	for _, good := range []string{"a", "...", "a/b", " ", "-", "a\nb", "\xff", "..a/b..",
		strings.Repeat("n", 255)} {
		it := Item{Path: good, Kind: File, Mode: 0o644}
		if err := it.check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestLinksThatLeaveTheRootAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, target string
		kind         Kind
		inside       bool
	}{
		{"a", "b", Link, true},
		{"a", "./b//c", Link, true},
		{"a/b/c", "../../x", Link, true},
		{"a/b/c", "../..", Link, true},
		{"a/b/c", "../../../x", Link, false},
		{"a", "..", Link, false},
		{"a", "b/../../x", Link, false},
		{"a/b", "c/../x", Link, false}, // c may be a link to somewhere else
		{"a", "/etc/passwd", Link, false},
		{"a", "", Link, false},
		{"a", "b\x00", Link, false},
		{"a", StagingDir + "/x", Link, false},
		{"a", "", RootLink, true},
		{"a/b", "/c", RootLink, true},
		{"a/b", "c", RootLink, false}, // the root's name goes on
		{"a/b", "/../c", RootLink, false},
	} {
		it := Item{Path: c.path, Kind: c.kind, Target: c.target}
		if got := it.check() == nil; got != c.inside {
			t.Errorf("%s -> %q of kind %d: inside %v, want %v", c.path, c.target, c.kind, got,
				c.inside)
		}
	}
}

func manifest(items ...Item) *Manifest {
	return &Manifest{Tree: FileRoots, Roots: []Root{{Scope: Scope{"base", 0}, Items: items}}}
}

func TestManifestsOfPeersAreVetted(t *testing.T) {
	t.Parallel()
	good := manifest(Item{Path: "a", Kind: Dir, Mode: 0o755},
		Item{Path: "a/b", Kind: File, Mode: 0o644, Size: 3,
			Sum: sumOf([]byte("xyz"))}, Item{Path: "c", Kind: Link, Target: "a/b"})
	b := good.Encode()
	m, err := DecodeManifest(b)
	if err != nil || !bytes.Equal(m.Encode(), b) || len(m.Roots[0].Items) != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	for name, bad := range map[string]*Manifest{
		"no such tree":   {Tree: 3},
		"no environment": {Tree: FileRoots, Roots: []Root{{}}},
		"a root twice": {Tree: FileRoots,
			Roots: []Root{{Scope: Scope{"base", 0}}, {Scope: Scope{"base", 0}}}},
		"unsorted roots": {Tree: FileRoots,
			Roots: []Root{{Scope: Scope{"base", 1}}, {Scope: Scope{"base", 0}}}},
		"unsorted":           manifest(Item{Path: "b", Kind: Dir}, Item{Path: "a", Kind: Dir}),
		"a path twice":       manifest(Item{Path: "a", Kind: Dir}, Item{Path: "a", Kind: Dir}),
		"no folder":          manifest(Item{Path: "a/b", Kind: File}),
		"a folder is a file": manifest(Item{Path: "a", Kind: File}, Item{Path: "a/b", Kind: File}),
		"a folder is a link": manifest(Item{Path: "a", Kind: Link, Target: "d"},
			Item{Path: "a/b", Kind: File}),
		"leaves the root":     manifest(Item{Path: "../b", Kind: File}),
		"link leaves":         manifest(Item{Path: "b", Kind: Link, Target: "../../etc"}),
		"setuid":              manifest(Item{Path: "b", Kind: File, Mode: 0o4755}),
		"kind that is none":   manifest(Item{Path: "b", Kind: 9}),
		"kind of what we see": manifest(Item{Path: "b", Kind: other}),
	} {
		if _, err := DecodeManifest(bad.Encode()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range b {
		if _, err := DecodeManifest(b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := DecodeManifest(append(slices.Clone(b), 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add(manifest().Encode())
	f.Add(manifest(Item{Path: "a", Kind: Dir, Mode: 0o755}, Item{Path: "a/b", Kind: File, Size: 3},
		Item{Path: "c", Kind: RootLink, Target: "/a"}).Encode())
	f.Add([]byte(manifestMagic + "\x01\xff\xff\x3f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			if m != nil {
				t.Error("a manifest beside an error")
			}
			return
		}
		if !bytes.Equal(m.Encode(), b) {
			t.Error("it encodes to other bytes")
		}
		for _, r := range m.Roots {
			for _, it := range r.Items {
				if !filepath.IsLocal(it.Path) {
					t.Errorf("%q leads out of the root", it.Path)
				}
			}
		}
	})
}

func FuzzDecodeJournal(f *testing.F) {
	f.Add((&journal{tree: FileRoots, kept: "k",
		roots: []journalRoot{{Scope{"base", 0}, "/srv",
			[]op{{kind: opPut, path: "a", item: Item{Path: "a", Kind: File}}}}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, sealed := range [][]byte{b, (&encoder{b: slices.Clone(b)}).sealed()} {
			if j, err := decodeJournal(sealed); err == nil && !bytes.Equal(j.encode(), sealed) {
				t.Error("it encodes to other bytes")
			}
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add((&record{head: Head{Tree: FileRoots, Seq: 3}, copied: true,
		roots: []installedRoot{{Scope{"base", 0}, "/srv"}}, manifest: manifest()}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, sealed := range [][]byte{b, (&encoder{b: slices.Clone(b)}).sealed()} {
			if r, err := decodeRecord(sealed); err == nil && !bytes.Equal(r.encode(), sealed) {
				t.Error("it encodes to other bytes")
			}
		}
	})
}

// A link on the way is never followed, whoever put it there.
func TestLinksOnTheWayAreNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"root/real/": "755", "root/real/f": "644 1", "elsewhere/f": "644 mine",
		"root/link": "-> ../elsewhere", "root/file link": "-> ../elsewhere/f"}.write(t, dir)
	r, err := openDir(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := openDir(filepath.Join(dir, "elsewhere"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, f := range map[string]func(path string) error{
		"create":    func(p string) error { _, err := r.create(p); return err },
		"open":      func(p string) error { _, err := r.open(p); return err },
		"lstat":     func(p string) error { _, err := r.lstat(p); return err },
		"mkdir":     func(p string) error { return r.mkdir(p, 0o755) },
		"mkdirAll":  func(p string) error { return r.mkdirAll(p+"/more", 0o755) },
		"chmod":     func(p string) error { return r.chmod(p, 0o777) },
		"unlink":    func(p string) error { return r.unlink(p) },
		"rmdir":     func(p string) error { return r.rmdir(p) },
		"symlink":   func(p string) error { return r.symlink("x", p) },
		"names":     func(p string) error { _, err := r.names(p + "/f"); return err },
		"readlink":  func(p string) error { _, err := r.readlink(p); return err },
		"move from": func(p string) error { return r.moveTo(p, s, "stolen") },
		"move to":   func(p string) error { return s.moveTo("f", r, p) },
		"link":      func(p string) error { return r.linkTo(p, s, "stolen") },
		"sub":       func(p string) error { _, err := r.sub(p); return err },
	} {
		if err := f("link/f"); err == nil {
			t.Errorf("%s follows a link on the way", name)
		}
		if err := f("../elsewhere/f"); err == nil {
			t.Errorf("%s goes up", name)
		}
	}
	if _, err := r.open("file link"); err == nil {
		t.Error("open follows a link at the end")
	}
	if err := r.chmod("file link", 0o777); err == nil {
		t.Error("chmod follows a link at the end")
	}
	if err := r.removeAll("link"); err != nil {
		t.Error(err)
	}
	expect(t, "elsewhere", filepath.Join(dir, "elsewhere"), tree{"f": "644 mine"})
	if _, err := os.Lstat(filepath.Join(dir, "root/link")); !os.IsNotExist(err) {
		t.Errorf("the link itself is still there: %v", err)
	}
}

// On a peer a folder was replaced by a link that leads out: nothing is written or deleted through
// it.
func TestALinkInPlaceOfAFolderIsDrift(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"d/": "755", "d/x": "644 1", "d/y": "644 1"}.write(t, a.file)
	a.sync(Request{})
	out := t.TempDir()
	tree{"x": "644 mine", "y": "644 mine"}.write(t, out)
	if err := os.RemoveAll(filepath.Join(b.file, "d")); err != nil {
		t.Fatal(err)
	}
	tree{"d": "-> " + out}.write(t, b.file)
	tree{"d/x": "644 2", "d/z": "644 2"}.write(t, a.file)
	if err := os.Remove(filepath.Join(a.file, "d/y")); err != nil {
		t.Fatal(err)
	}
	rep := a.sync(Request{}).of(t, "m2")
	expect(t, "outside", out, tree{"x": "644 mine", "y": "644 mine"})
	expect(t, "b", b.file, tree{"d": "-> " + out})
	if rep.Drifted != 3 { // the link, x, and z that can't be put there
		t.Errorf("%s: %+v", counts(rep), rep.Drift)
	}
	rep = a.sync(Request{Force: true}).of(t, "m2")
	expect(t, "outside", out, tree{"x": "644 mine", "y": "644 mine"})
	expect(t, "b, forced", b.file, tree{"d/": "755", "d/x": "644 2", "d/z": "644 2"})
	expect(t, "kept aside", rep.KeptIn[0], tree{"d": "-> " + out})
}

func FuzzReport(f *testing.F) {
	r := Report{Tree: PillarRoots, Seq: 3, Added: 1, Kept: 2, KeptIn: []string{"/srv/x"},
		Changes: []string{"+ base:0 a"}, Skipped: []string{"s"}, Error: "no room"}
	r.addDrift(Drift{Scope{"base", 1}, "a/\xff", DriftEdited})
	r.Missing = []Scope{{"dev", 0}}
	b, err := proto.Marshal(r.toWire())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &syncpb.Report{}
		if proto.Unmarshal(b, p) != nil {
			return
		}
		r := reportFrom(p, "m2/1")
		if r.Node != "m2/1" {
			t.Errorf("it calls itself %q", r.Node)
		}
		if n := max(len(r.Drift), len(r.Missing), len(r.KeptIn), len(r.Changes),
			len(r.Skipped)); n > maxListed {
			t.Errorf("%d entries", n)
		}
		if again := reportFrom(r.toWire(), r.Node); !reflect.DeepEqual(again, r) {
			t.Errorf("%+v becomes %+v", r, again)
		}
	})
}

func FuzzLoadHashes(f *testing.F) {
	file := filepath.Join(f.TempDir(), "hashes")
	h := loadHashes(file, 0)
	h.byRoot["/srv"] = map[string]hashed{"a": {stat: stat{kind: File, mode: 0o644, size: 3, dev: 1,
		ino: 2, mtime: 3, ctime: 4}, sum: sumOf([]byte("abc"))}}
	h.dirty = true
	if err := h.save(); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, sealed := range [][]byte{b, (&encoder{b: slices.Clone(b)}).sealed()} {
			if err := os.WriteFile(file, sealed, 0o600); err != nil {
				t.Fatal(err)
			}
			h := loadHashes(file, 0)
			h.dirty = true
			if err := h.save(); err != nil {
				t.Fatal(err)
			}
			if again := loadHashes(file, 0); !reflect.DeepEqual(again.byRoot, h.byRoot) {
				t.Errorf("%v becomes %v", h.byRoot, again.byRoot)
			}
		}
	})
}
