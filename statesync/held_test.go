package statesync

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func hasLine(lines []string, text string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, text) })
}

// mount puts a folder over another one until the test ends.
func mount(t *testing.T, from, over string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: a folder is mounted")
	}
	if err := unix.Mount(from, over, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(over, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// A mount point can be neither replaced nor removed, not even with force. It is named on the master
// that has it, and all else is synced, the second time too.
func TestMountPointsStayAndTheRestIsSynced(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"web/data/one": "644 1", "f": "644 1"}.write(t, a.file)
	a.sync(Request{})
	outside := t.TempDir()
	tree{"foreign": "644 x"}.write(t, outside)
	// of the same file system: only the kernel's flag tells
	mount(t, outside, filepath.Join(b.file, "web/data"))
	tree{"web/data/one": "644 changed", "f": "644 2"}.write(t, a.file)
	for _, force := range []bool{false, true} {
		r := a.sync(Request{Force: force})
		if rep := r.of(t, "m2"); rep.Error != "" || rep.Drifted == 0 ||
			!hasLine(rep.Skipped, `"web/data": a mount point`) {
			t.Errorf("force %v: %s, skipped %q, error %q", force, counts(rep), rep.Skipped,
				rep.Error)
		}
		expect(t, b.node, outside, tree{"foreign": "644 x"})
		for _, box := range c.boxes {
			if got, err := os.ReadFile(filepath.Join(box.file, "f")); err != nil ||
				string(got) != "2" {
				t.Errorf("force %v: %s has %q %v", force, box.node, got, err)
			}
		}
	}
	if err := os.RemoveAll(filepath.Join(a.file, "web")); err != nil {
		t.Fatal(err)
	}
	if rep := a.sync(Request{Force: true}).of(t, "m2"); rep.Error != "" {
		t.Errorf("the folder above was deleted: %q", rep.Error)
	}
	expect(t, b.node, outside, tree{"foreign": "644 x"})
}

// On the master whose roots are published a mount point is not read, and what others have there
// stays.
func TestMountPointOfTheSourceDeletesNothingElsewhere(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"web/": "755", "web/data/": "755", "web/data/one": "644 1", "f": "644 1"}.write(t, a.file)
	a.sync(Request{})
	mount(t, t.TempDir(), filepath.Join(a.file, "web/data"))
	tree{"f": "644 2"}.write(t, a.file)
	r := a.sync(Request{})
	if own := r.of(t, "m1"); !hasLine(own.Skipped, `"web/data": a mount point`) {
		t.Errorf("skipped %q", own.Skipped)
	}
	expect(t, b.node, b.file, tree{"web/": "755", "web/data/": "755", "web/data/one": "644 1",
		"f": "644 2"})
}

// A file that grows all the time is named, keeps on the others what they have of it, and holds up
// nothing.
func TestGrowingFileIsNamedAndTheRestIsSynced(t *testing.T) {
	t.Parallel()
	var grow func() // set while the file grows
	c := newCompany(t, 2, func(i int, o *Options) {
		if i == 0 {
			o.reading = func(int64) {
				if grow != nil {
					grow()
				}
			}
		}
	}).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"log": "644 old", "f": "644 1"}.write(t, a.file)
	a.sync(Request{})
	path := filepath.Join(a.file, "log")
	tree{"log": "644 new", "f": "644 2"}.write(t, a.file)
	grow = func() {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString("more")
			f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
	r := a.sync(Request{})
	grow = nil
	if own := r.of(t, "m1"); !hasLine(own.Skipped, `"log": it is being written to`) {
		t.Errorf("skipped %q", own.Skipped)
	}
	expect(t, b.node, b.file, tree{"log": "644 old", "f": "644 2"})
	a.sync(Request{})
	if got, err := os.ReadFile(filepath.Join(b.file, "log")); err != nil ||
		!strings.HasPrefix(string(got), "newmore") {
		t.Errorf("when it was quiet again: %q %v", got, err)
	}
}

// Another user than root scans a tree with a file and a folder that it can't read.
func TestUnreadableEntriesAreHeld(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: the test becomes another user")
	}
	dir, err := os.MkdirTemp("/tmp", "held") // all may enter it; TMPDIR may be root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	tree{"secret": "600 s", "closed/in": "644 1", "listed/in": "644 1", "f": "644 1"}.write(t, dir)
	for path, mode := range map[string]os.FileMode{"closed": 0o700, "listed": 0o744} {
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		now *live
		err error
	}
	out := make(chan answer)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			out <- answer{nil, errno}
			return
		}
		sc := scanner{hashes: loadHashes(filepath.Join(dir, "none"), time.Second)}
		now, err := sc.scan(context.Background(), dir)
		out <- answer{now, err}
	}()
	got := <-out
	if got.err != nil {
		t.Fatal(got.err)
	}
	slices.Sort(got.now.held)
	if !slices.Equal(got.now.held, []string{"closed", "listed", "secret"}) {
		t.Errorf("held %q, skipped %q", got.now.held, got.now.skipped)
	}
	had := []Item{{Path: "closed", Kind: Dir}, {Path: "closed/in", Kind: File},
		{Path: "f", Kind: File, Size: 9}, {Path: "gone", Kind: File},
		{Path: "secret", Kind: File, Size: 3}}
	var paths []string
	for _, it := range got.now.withHeld(had) {
		paths = append(paths, it.Path)
	}
	if !slices.Equal(paths, []string{"closed", "closed/in", "f", "secret"}) {
		t.Errorf("the manifest has %q", paths)
	}
}

// What a manifest does not hold of a file is named.
func TestWhatIsNotKeptIsNamed(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a := c.boxes[0]
	tree{"suid": "755 1", "twin": "644 1", "attr": "644 1", "plain": "644 1"}.write(t, a.file)
	if err := unix.Chmod(filepath.Join(a.file, "suid"), 0o4755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(a.file, "twin"), filepath.Join(a.file, "twin2")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(filepath.Join(a.file, "attr"), "user.note", []byte("x"),
		0); err != nil {
		t.Fatal(err)
	}
	got := a.sync(Request{}).of(t, "m1").Skipped
	want := []string{
		`base:0 "attr": its extended attributes are not synced: user.note`,
		`base:0 "suid": its mode 4755 is synced as 0755`,
		`base:0 "twin": one of 2 hard links; other masters get a file of its own`,
		`base:0 "twin2": one of 2 hard links; other masters get a file of its own`,
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("named %q", got)
	}
}

// Contents of a sync under way are not collected, however old they are; those of one that has ended
// are.
func TestContentsOfASyncUnderWayStay(t *testing.T) {
	t.Parallel()
	var a, b *box          // set before the first fault
	var tries atomic.Int32 // of both masters
	c := newCompany(t, 2, func(_ int, o *Options) {
		o.BlobGrace = time.Nanosecond
		o.fault = func(step string) error {
			if step == "held" || step == "captured" || step == "publish" {
				tries.Add(1)
				a.tidy()
				b.tidy()
			}
			return nil
		}
	})
	a, b = c.boxes[0], c.boxes[1]
	c.settled()
	tries.Store(0)
	tree{"f": "644 1"}.write(t, a.file)
	r := a.sync(Request{})
	if rep := r.of(t, "m2"); rep.Error != "" || rep.Added != 1 || tries.Load() < 2 {
		t.Errorf("%s, error %q, after %d collections", counts(rep), rep.Error, tries.Load())
	}
}

// What is deleted between the scan's look at it and its reading is gone, and no sign that the root
// does not exist.
func TestEntriesThatVanishDuringAScanAreGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"d/": "755", "d/x": "644 1", "f": "644 1", "link": "-> f"}.write(t, dir)
	root, err := openDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	for _, name := range []string{"d", "f", "link"} {
		st, err := root.lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		sc := scanner{hashes: loadHashes("", time.Second), out: &live{}, root: root,
			kept: make(map[string]hashed), buf: make([]byte, pieceSize)}
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := sc.add(t.Context(), name, 1, st); err != nil || len(sc.out.items) > 0 {
			t.Errorf("%s: %v, %+v", name, err, sc.out.items)
		}
	}
}

// A file whose contents the blob store can't take is not one that was deleted.
func TestAVanishedBlobStoreDeletesNothing(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"", "dev"} {
		c := newCompany(t, 2, anyEnvs).settled()
		a, b := c.boxes[0], c.boxes[1]
		tree{"dev/pillar/p": "644 d", "prod/pillar/p": "644 p"}.write(t, a.envs())
		pillar := Request{Trees: []Tree{PillarRoots}, Env: env, Force: true}
		a.sync(pillar)
		had := read(t, b.envs())
		tree{"dev/pillar/p": "644 new"}.write(t, a.envs())
		a.Store.opts.reading = func(int64) { os.RemoveAll(a.blobs.parts()) }
		if _, err := a.Sync(t.Context(), pillar, nil); err == nil || !errors.Is(err, errStore) {
			t.Errorf("got %v", err)
		}
		expect(t, "b", b.envs(), had)
	}
}
