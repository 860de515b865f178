// Package powerdisk cuts the power of a file system, for tests.
//
// Lives here: an ext4 file system in a file, and what a loss of power leaves of it. Does not: start
// or end the processes that write to it.
package powerdisk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk is an ext4 file system in a file, mounted on a folder. What was written and not synced is in
// the kernel's memory and not in the file. So a copy of the file is what a loss of power leaves.
type Disk struct {
	dir, image, images string
	copies             int
}

// Mount makes an empty file system and mounts it on dir until the test ends. Its images are in
// another folder. If the user is not root, the test is skipped.
func Mount(t testing.TB, dir, images string) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	d := &Disk{dir: dir, images: images}
	d.image = d.next()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"truncate", "-s", "128M", d.image},
		{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.image},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs %s: %v: %s", args[0], err, out)
		}
	}
	if err := d.mount(); err != nil {
		t.Skipf("needs to mount a file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

func (d *Disk) next() string {
	d.copies++
	return filepath.Join(d.images, fmt.Sprintf("%s.%d.image", filepath.Base(d.dir), d.copies))
}

// mount stops the kernel from writing the journal on its own: only what is synced reaches the file.
func (d *Disk) mount() error {
	out, err := exec.Command("mount", "-o", "loop,commit=600", d.image, d.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Lose keeps what a loss of power at this moment leaves. Writers must stand still meanwhile.
func (d *Disk) Lose(t testing.TB) (left string) {
	t.Helper()
	left = d.next()
	if out, err := exec.Command("cp", "--sparse=always", d.image, left).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return left
}

// Return mounts what a loss of power left. No process may have files open there.
func (d *Disk) Return(t testing.TB, left string) {
	t.Helper()
	if err := unix.Unmount(d.dir, 0); err != nil {
		t.Fatal(err)
	}
	d.image = left
	if err := d.mount(); err != nil {
		t.Fatal(err)
	}
}
