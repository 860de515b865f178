package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lossy is a file system that may lose all that was not synced. Before each step it notes what a
// loss of power would leave.
type lossy struct {
	fs    *vfs.MemFS
	made  int
	crash func(*vfs.MemFS)
}

func (l *lossy) note() {
	for seed := range uint64(4) { // nothing of what was not synced, or a random part of it
		l.crash(l.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed) * 30,
			RNG: rand.New(rand.NewPCG(seed, 1))}))
	}
}

func (l *lossy) create(dir string) (file, string, error) {
	l.note()
	l.made++
	name := fmt.Sprintf("%s/.new-%d", dir, l.made)
	f, err := l.fs.Create(name, vfs.WriteCategoryUnspecified)
	return lossyFile{f, l}, name, err
}

func (l *lossy) rename(from, to string) error { l.note(); return l.fs.Rename(from, to) }
func (l *lossy) link(from, to string) error   { l.note(); return l.fs.Link(from, to) }
func (l *lossy) remove(name string) error     { return l.fs.Remove(name) }

func (l *lossy) sync(dir string) error {
	l.note()
	d, err := l.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type lossyFile struct {
	vfs.File
	l *lossy
}

func (f lossyFile) Write(b []byte) (int, error) {
	f.l.note()
	return f.File.Write(append([]byte(nil), b...))
}
func (f lossyFile) Sync() error { f.l.note(); return f.File.Sync() }

func read(fs *vfs.MemFS, name string) (string, error) {
	f, err := fs.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// A loss of power at any step leaves the old or the new content, and the new one once WriteFile has
// returned. Without either of its syncs this fails.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	l := &lossy{fs: vfs.NewCrashableMem(), crash: func(*vfs.MemFS) {}}
	if err := l.fs.MkdirAll("/data", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.sync("/"), l.sync("/data")); err != nil {
		t.Fatal(err)
	}
	old := ""
	for n := range 20 {
		content := fmt.Sprintf("content %d, %s", n, make([]byte, n*100))
		steps := 0
		l.crash = func(fs *vfs.MemFS) {
			steps++
			if got, err := read(fs, "/data/state"); (err != nil && n > 0) ||
				(err == nil && got != old && got != content) {
				t.Errorf("write %d: a loss of power leaves %.20q, %v", n, got, err)
			}
		}
		if err := writeFile(l, "/data/state", []byte(content)); err != nil {
			t.Fatal(err)
		}
		if steps < 20 {
			t.Errorf("write %d: power was lost %d times", n, steps)
		}
		l.crash = func(fs *vfs.MemFS) {
			if got, err := read(fs, "/data/state"); err != nil || got != content {
				t.Errorf("write %d was acknowledged, a loss of power leaves %.20q, %v", n, got, err)
			}
		}
		l.note()
		old = content
	}
}

// The same for a file that is made once. Without either of its syncs this fails.
func TestPowerLossOfANewFile(t *testing.T) {
	t.Parallel()
	l := &lossy{fs: vfs.NewCrashableMem(), crash: func(*vfs.MemFS) {}}
	if err := l.fs.MkdirAll("/data", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.sync("/"), l.sync("/data")); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		name, content := fmt.Sprintf("/data/key%d", n), fmt.Sprintf("content %d, %s", n,
			make([]byte, n*100))
		l.crash = func(fs *vfs.MemFS) {
			if got, err := read(fs, name); err == nil && got != content {
				t.Errorf("file %d: a loss of power leaves %.20q", n, got)
			}
		}
		if err := writeNew(l, name, []byte(content)); err != nil {
			t.Fatal(err)
		}
		l.crash = func(fs *vfs.MemFS) {
			if got, err := read(fs, name); err != nil || got != content {
				t.Errorf("file %d was acknowledged, a loss of power leaves %.20q, %v", n, got, err)
			}
		}
		l.note()
		if err := writeNew(l, name, []byte("another")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("file %d is made twice: %v", n, err)
		}
		l.note()
	}
}
