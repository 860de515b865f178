package statesync

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crash is what a test throws to end an install as a dying process does: nothing is tidied up.
type crash struct{ step string }

// crashes runs f and says at which step it was ended; "" if it went through.
func crashes(f func()) (step string) {
	defer func() {
		if p := recover(); p != nil {
			c, ok := p.(crash)
			if !ok {
				panic(p)
			}
			step = c.step
		}
	}()
	f()
	return ""
}

// An install is ended at every one of its steps, the master started again: the tree ends up as the
// head has it, and in between no file is missing or half: each is the old one or the new one.
func TestACrashAtEveryStepIsMended(t *testing.T) {
	t.Parallel()
	old := tree{
		"changed": "644 old", "gone": "644 old", "same": "644 same", "mode": "644 m",
		"dir gone/": "755", "dir gone/a": "644 a", "dir gone/sub/": "755",
		"dir gone/sub/b": "644 b",
		"was dir/":       "755", "was dir/c": "644 c", "was file": "644 f", "link": "-> same",
		"script": "755 #!",
	}
	next := tree{
		"changed": "644 new", "same": "644 same", "mode": "600 m", "was dir": "644 now a file",
		"was file/": "750", "was file/d": "644 d",
		"link": "-> changed", "added/": "755", "added/deep/": "700", "added/deep/e": "644 e",
		"script": "755 #! 2",
	}
	steps := 0
	for at := 1; ; at++ {
		c := newCompany(t, 2).settled()
		a, b := c.boxes[0], c.boxes[1]
		old.write(t, a.file)
		a.sync(Request{})
		for path := range old {
			if err := os.RemoveAll(filepath.Join(a.file, path)); err != nil {
				t.Fatal(err)
			}
		}
		next.write(t, a.file)
		tree{"changed by hand": "644 mine"}.write(t, b.file)
		b.leave()
		a.sync(Request{})
		b.opts.KeepAside = time.Hour
		n := 0
		b.opts.fault = func(step string) error {
			if n++; n == at {
				panic(crash{step})
			}
			return nil
		}
		b.open()
		where := crashes(func() {
			if err := b.advance(t.Context(), b.trees[FileRoots]); err != nil {
				t.Error(err)
			}
		})
		for path, now := range read(t, b.file) {
			if strings.HasSuffix(path, "/") || path == "changed by hand" || path == "mode" {
				continue
			}
			if now != old[path] && now != next[path] {
				t.Errorf("after a crash at %d (%s), %q is neither old nor new: %q", at, where,
					path, now)
			}
		}
		for path := range next { // what is in both is never missing
			if _, both := old[path]; both && !strings.HasSuffix(path, "/") {
				if _, err := os.Lstat(filepath.Join(b.file, path)); err != nil {
					t.Errorf("after a crash at %d (%s): %v", at, where, err)
				}
			}
		}
		b.server.Stop()
		b.opts.fault = nil
		b.open() // replays the journal
		if err := b.advance(t.Context(), b.trees[FileRoots]); err != nil {
			t.Fatalf("after a crash at %d (%s): %v", at, where, err)
		}
		want := read(t, a.file)
		want["changed by hand"] = "644 mine"
		if d := read(t, b.file).differ(want); d != "" {
			t.Errorf("after a crash at %d (%s):\n%s", at, where, d)
		}
		st, err := b.ownStatus(t.Context(), true)
		if err != nil || st[0].Drifted != 1 || st[0].Seq != 2 || st[0].Behind {
			t.Errorf("after a crash at %d (%s): %+v, %v", at, where, st[0], err)
		}
		if _, err := os.Stat(filepath.Join(b.file, StagingDir)); !os.IsNotExist(err) {
			t.Errorf("after a crash at %d (%s) the staging folder stays: %v", at, where, err)
		}
		if left, _ := filepath.Glob(filepath.Join(b.dir, "roots", "*.journal")); len(left) > 0 {
			t.Errorf("after a crash at %d (%s) the journal stays", at, where)
		}
		if where == "" {
			break
		}
		steps++
	}
	if steps < 25 {
		t.Errorf("ended at %d steps only", steps)
	}
	t.Logf("ended at each of %d steps", steps)
}

// A crash while a forced install keeps files aside loses none of them.
func TestACrashLosesNothingThatIsKeptAside(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		c := newCompany(t, 2).settled()
		a, b := c.boxes[0], c.boxes[1]
		tree{"f": "644 1", "d/": "755", "d/x": "644 1"}.write(t, a.file)
		a.sync(Request{})
		mine := tree{"f": "644 mine", "d/x": "644 mine", "extra": "644 mine"}
		mine.write(t, b.file)
		b.leave()
		a.sync(Request{Force: true})
		n := 0
		b.opts.fault = func(step string) error {
			if n++; n == at {
				panic(crash{step})
			}
			return nil
		}
		b.open()
		where := crashes(func() { _ = b.advance(t.Context(), b.trees[FileRoots]) })
		b.server.Stop()
		b.opts.fault = nil
		b.open()
		if err := b.advance(t.Context(), b.trees[FileRoots]); err != nil {
			t.Fatalf("after a crash at %d (%s): %v", at, where, err)
		}
		expect(t, fmt.Sprintf("after a crash at %d (%s)", at, where), b.file, read(t, a.file))
		for path := range mine {
			kept, err := filepath.Glob(filepath.Join(b.file, StagingDir, "kept", "*", path))
			if err != nil || len(kept) != 1 {
				t.Errorf("after a crash at %d (%s), of %s is kept: %v, %v", at, where, path,
					kept, err)
				continue
			}
			if text, err := os.ReadFile(kept[0]); err != nil || string(text) != "mine" {
				t.Errorf("after a crash at %d (%s): %s holds %q, %v", at, where, kept[0], text, err)
			}
		}
		if where == "" {
			return
		}
	}
}

// A file that somebody edits while the install runs is not lost.
func TestAnEditDuringTheInstallIsDrift(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1", "g": "644 1", "h": "644 1"}.write(t, a.file)
	a.sync(Request{})
	tree{"f": "644 2", "g": "644 2"}.write(t, a.file)
	if err := os.Remove(filepath.Join(a.file, "h")); err != nil {
		t.Fatal(err)
	}
	b.Store.opts.fault = func(step string) error {
		if step == "journal" {
			tree{"f": "644 typed now", "h": "644 typed now"}.write(t, b.file)
		}
		return nil
	}
	if rep := a.sync(Request{}).of(t, "m2"); rep.Drifted != 2 {
		t.Errorf("%s: %+v", counts(rep), rep.Drift)
	}
	expect(t, "b", b.file, tree{"f": "644 typed now", "g": "644 2", "h": "644 typed now"})
}

// fullDisk mounts a file system of this size, where the test may.
func fullDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skip("needs to mount a small tmpfs; run make test as root")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDiskLeavesTheOldTreeWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, what string
		guess      bool // whether the room is asked for before
	}{{"seen before", "file", true}, {"while staging", "file", false}, {"blob store seen before",
		"data", true}, {"blob store while fetching", "data", false}} {
		t.Run(c.name, func(t *testing.T) {
			disk := fullDisk(t, "3m")
			co := newCompany(t, 1).settled()
			a := co.boxes[0]
			b := co.add(func(_ int, o *Options) {
				if !c.guess {
					o.room = func(string) (uint64, error) { return 1 << 40, nil }
				}
			})
			if c.what == "file" {
				b.file = disk
				b.opts.File[0].Dirs[0] = disk
			} else {
				b.dir = disk
			}
			b.open()
			co.settled()
			tree{"f": "644 1", "d/": "755", "d/x": "644 1"}.write(t, a.file)
			a.sync(Request{})
			old := read(t, b.file)
			tree{"f": "644 2", "a big one": "644 " + strings.Repeat("0123456789", 500_000)}.write(t,
				a.file)
			if err := os.Remove(filepath.Join(a.file, "d/x")); err != nil {
				t.Fatal(err)
			}
			_, err := a.Sync(t.Context(), Request{Trees: []Tree{FileRoots}}, nil)
			if c.what == "file" { // it holds the contents, so there is a head; it can't install it
				if err != nil {
					t.Fatal(err)
				}
				if err = b.advance(t.Context(), b.trees[FileRoots]); err == nil {
					t.Fatal("installed")
				}
			}
			if err == nil || !strings.Contains(err.Error(), "no room") ||
				!strings.Contains(err.Error(), "make room") {
				t.Errorf("got %v", err)
			}
			expect(t, "the old tree", b.file, old)
			if c.what == "data" {
				return
			}
			if _, err := os.Stat(filepath.Join(b.file, StagingDir)); !os.IsNotExist(err) {
				t.Errorf("the staging folder stays: %v", err)
			}
			// With room it goes on by itself.
			if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=30m"); err != nil {
				t.Fatal(err)
			}
			b.run()
			eventually(t, "it is installed", has(b.file, read(t, a.file)))
		})
	}
}

// interrupted returns the masters of a sync to head 2. The second one began to install it and died
// at this step.
func interrupted(t *testing.T, at string) (a, b *box) {
	t.Helper()
	c := newCompany(t, 2).settled()
	a, b = c.boxes[0], c.boxes[1]
	tree{"f": "644 1", "g": "644 1"}.write(t, a.file)
	a.sync(Request{})
	b.leave()
	tree{"f": "644 2", "h": "644 2"}.write(t, a.file)
	a.sync(Request{})
	b.opts.fault = func(step string) error {
		if step == at {
			panic(crash{step})
		}
		return nil
	}
	b.open()
	if where := crashes(func() {
		_ = b.advance(t.Context(), b.trees[FileRoots])
	}); where != at {
		t.Fatalf("ended at %q", where)
	}
	b.opts.fault = nil
	b.server.Stop()
	return a, b
}

// unmount puts an empty folder in place of a root, as it is without its file system, and returns
// what undoes that.
func (b *box) unmount(t *testing.T) (mount func()) {
	t.Helper()
	disk := b.file + ".disk"
	if err := errors.Join(os.Rename(b.file, disk), os.Mkdir(b.file, 0o755)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(os.Remove(b.file), os.Rename(disk, b.file)); err != nil {
			t.Fatal(err)
		}
	}
}

// Without its staged files an interrupted install is not taken for finished: the root may not be
// mounted. It goes on with them, or anew once the journal is removed.
func TestAnInstallWaitsForItsStagedFiles(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted %v", deleted), func(t *testing.T) {
			t.Parallel()
			a, b := interrupted(t, "journal")
			mount := func() {}
			if deleted {
				if err := os.RemoveAll(filepath.Join(b.file, StagingDir)); err != nil {
					t.Fatal(err)
				}
			} else {
				mount = b.unmount(t)
			}
			b.open()
			roots, file := b.trees[FileRoots], b.journalFile(FileRoots)
			if wrong := roots.trouble(); !strings.Contains(wrong, "the staged files are missing") ||
				!strings.Contains(wrong, "remove "+file) {
				t.Errorf("the trouble is %q", wrong)
			}
			if err := b.advance(t.Context(), roots); err == nil || roots.record().head.Seq != 1 {
				t.Errorf("head %d counts as installed: %v", roots.record().head.Seq, err)
			}
			mount()
			if deleted {
				if err := os.Remove(file); err != nil { // as the message says
					t.Fatal(err)
				}
			}
			if err := b.advance(t.Context(), roots); err != nil || roots.record().head.Seq != 2 {
				t.Errorf("head %d is installed: %v", roots.record().head.Seq, err)
			}
			expect(t, "b", b.file, read(t, a.file))
		})
	}
}

// A root that is not mounted gets no head, forced or not: the master stays behind, says so, and
// goes on once the root is mounted, or somebody says that it is.
func TestAnUnmountedRootGetsNoHead(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ missing, force, emptied bool }{
		{}, {missing: true}, {force: true}, {emptied: true}, {force: true, emptied: true},
	} {
		t.Run(fmt.Sprintf("%+v", one), func(t *testing.T) {
			t.Parallel()
			c := newCompany(t, 2).settled()
			a, b := c.boxes[0], c.boxes[1]
			tree{"f": "644 1", "g": "644 1"}.write(t, a.file)
			a.sync(Request{})
			mount := b.unmount(t)
			if one.missing {
				if err := os.Remove(b.file); err != nil {
					t.Fatal(err)
				}
			}
			if st, err := b.ownStatus(t.Context(), true); err != nil || st[0].Drifted != 2 {
				t.Errorf("before a change: %+v, %v", st, err)
			}
			tree{"f": "644 2", "h": "644 2"}.write(t, a.file)
			for _, test := range []bool{true, false} {
				rep := a.sync(Request{Force: one.force, Test: test}).of(t, "m2")
				if !strings.Contains(rep.Error, "mount its file system, or put any file into") {
					t.Errorf("test %v: %s", test, counts(rep))
				}
			}
			roots := b.trees[FileRoots]
			b.follow(t.Context(), roots)
			for _, st := range a.Status(t.Context(), []Tree{FileRoots}, true) {
				if idOf(st.Node) == "m2" && (st.Seq != 1 || !st.Behind ||
					!strings.Contains(st.Error, "is missing or empty here, and had 2 items")) {
					t.Errorf("status: %+v", st)
				}
			}
			want := read(t, a.file)
			switch {
			case one.missing:
				if err := os.Mkdir(b.file, 0o755); err != nil { // it is still missing
					t.Fatal(err)
				}
				mount()
			case one.emptied:
				tree{"mine": "644 x"}.write(t, b.file) // as the message says
				if !one.force {
					want = tree{"mine": "644 x", "h": "644 2"} // the rest was deleted here
				}
			default:
				mount() // nothing was written below it
			}
			if err := b.advance(t.Context(), roots); err != nil || roots.record().head.Seq != 2 {
				t.Errorf("head %d is installed: %v", roots.record().head.Seq, err)
			}
			expect(t, "b", b.file, want)
		})
	}
}

// An install that is recorded needs nothing more of the root.
func TestARecordedInstallNeedsNoRoot(t *testing.T) {
	t.Parallel()
	a, b := interrupted(t, "recorded")
	mount := b.unmount(t)
	b.open()
	if wrong := b.trees[FileRoots].trouble(); wrong != "" {
		t.Errorf("the trouble is %q", wrong)
	}
	if seq := b.trees[FileRoots].record().head.Seq; seq != 2 {
		t.Errorf("head %d is installed", seq)
	}
	if _, err := os.Stat(b.journalFile(FileRoots)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal stays: %v", err)
	}
	mount()
	expect(t, "b", b.file, read(t, a.file))
}

// A damaged record is no reason to guess: the start says what to do.
func TestADamagedRecordStopsTheStart(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1"}.write(t, a.file)
	a.sync(Request{})
	b.leave()
	for name, hurt := range map[string]func(path string) error{
		"a bit": func(path string) error {
			p, err := os.ReadFile(path)
			if err == nil {
				p[len(p)/2] ^= 1
				err = os.WriteFile(path, p, 0o600)
			}
			return err
		},
		"cut": func(path string) error { return os.Truncate(path, 10) },
	} {
		file := b.recordFile(FileRoots)
		keep, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := hurt(file); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(b.dir, b, b, b.opts, nil, nil); err == nil ||
			!strings.Contains(err.Error(), "remove it to have the next sync") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(file, keep, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What lies in the blob store since the last flush may be damaged by a power cut.
func TestContentsAreCheckedAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := openBlobs(dir)
	if err != nil {
		t.Fatal(err)
	}
	good, err1 := b.ingest(t.Context(), strings.NewReader("good"), make([]byte, 10), nil)
	if err := errors.Join(err1, b.flush()); err != nil {
		t.Fatal(err)
	}
	bad, err := b.ingest(t.Context(), strings.NewReader("bad"), make([]byte, 10), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path(bad), []byte("\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(b.path(bad), later, later); err != nil {
		t.Fatal(err)
	}
	if b, err = openBlobs(dir); err != nil {
		t.Fatal(err)
	}
	if !b.has(good, 4) || b.has(bad, 3) {
		t.Errorf("good is there: %v, damaged is there: %v", b.has(good, 4), b.has(bad, 3))
	}
	if n, _, err := b.gc(map[Sum]struct{}{good: {}}, time.Hour); n != 0 || err != nil {
		t.Errorf("collected %d, %v", n, err)
	}
	if n, freed, err := b.gc(nil, -2*time.Hour); n != 1 || freed != 4 || err != nil {
		t.Errorf("collected %d of %d bytes, %v", n, freed, err)
	}
}

// Pipes, sockets and devices are listed and left alone.
func TestThingsThatCanNotBeSynced(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1"}.write(t, a.file)
	for _, dir := range []string{a.file, b.file} {
		if out, err := exec.Command("mkfifo",
			filepath.Join(dir, "pipe")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	r := a.sync(Request{})
	if s := r.of(t, "m1").Skipped; len(s) != 1 ||
		s[0] != `base:0 "pipe": neither file, folder nor link` {
		t.Errorf("skipped: %q", s)
	}
	if rep := r.of(t, "m2"); rep.Drifted != 1 || rep.Added != 1 {
		t.Errorf("%s", counts(rep))
	}
}

// The journal of an install may be cut off at any byte, or garbage may follow it: the store opens,
// leaves the tree as it was, names the file, and goes on once that is gone.
func TestTornJournal(t *testing.T) {
	t.Parallel()
	a, b := interrupted(t, "journal")
	file := b.journalFile(FileRoots)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before := read(t, b.file)
	torn := map[string][]byte{"with garbage behind it": append(slices.Clone(whole), 0, 1, 2, 3),
		"with zeros for its end": append(whole[:len(whole)-9:len(whole)-9], make([]byte, 9)...)}
	for cut := range whole {
		torn[fmt.Sprintf("cut at %d of %d", cut, len(whole))] = whole[:cut]
	}
	for what, content := range torn {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(b.dir, b, b, b.opts, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if wrong := s.trees[FileRoots].trouble(); !strings.Contains(wrong, file) ||
			!strings.Contains(wrong, "to give it up") {
			t.Errorf("%s: the trouble is %q", what, wrong)
		}
		if seq := s.trees[FileRoots].record().head.Seq; seq != 1 {
			t.Errorf("%s: head %d counts as installed", what, seq)
		}
	}
	if d := read(t, b.file).differ(before); d != "" {
		t.Errorf("a torn journal changed the tree:\n%s", d)
	}
	if err := os.Remove(file); err != nil { // as the message says
		t.Fatal(err)
	}
	b.open()
	if err := b.advance(t.Context(), b.trees[FileRoots]); err != nil {
		t.Fatal(err)
	}
	if d := read(t, b.file).differ(read(t, a.file)); d != "" {
		t.Errorf("after the journal was given up:\n%s", d)
	}
}
