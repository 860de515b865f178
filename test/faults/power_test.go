package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"clustermaster/test/e2e"
)

// powerDisk is an ext4 file system in a file, below the cachedir of a master. What was written and
// not synced is in the kernel's memory and not in the file, so a copy of the file is what a loss of
// power leaves.
type powerDisk struct {
	dir, image string
	copies     int
}

func mountPowerDisk(t *testing.T, m *e2e.Master) *powerDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	d := &powerDisk{dir: filepath.Join(m.Dir, "cache"), image: filepath.Join(m.Dir, "disk.0")}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
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

// mount keeps the journal from being written by itself: only what is synced reaches the file.
func (d *powerDisk) mount() error {
	out, err := exec.Command("mount", "-o", "loop,commit=600", d.image, d.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// cut takes the power away from a master, and gives it back.
func (d *powerDisk) cut(t *testing.T, m *e2e.Master) {
	t.Helper()
	m.Freeze(t)
	d.copies++
	left := filepath.Join(m.Dir, fmt.Sprintf("disk.%d", d.copies))
	if out, err := exec.Command("cp", "--sparse=always", d.image,
		left).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.Kill(t)
	if err := unix.Unmount(d.dir, 0); err != nil {
		t.Fatal(err)
	}
	d.image = left
	if err := d.mount(); err != nil {
		t.Fatal(err)
	}
	m.Run(t)
}

// A master that loses power right after it has acknowledged a key, a return or new secrets has them
// when it starts again. It is alone, so nobody can tell it what it has forgotten. Without the sync
// of Raft's log this fails.
func TestPowerLoss(t *testing.T) {
	c := prepareCluster(t, 1, "")
	m := c.Masters[0]
	disk := mountPowerDisk(t, m)
	m.Run(t, "--found")
	c.WaitReady(t, healed, m)
	w := newWriter(t, c, c.Masters)
	for round := range 3 {
		id := fmt.Sprintf("late%d", round)
		late := accepted(t, m, id)
		disk.cut(t, m)
		c.WaitReady(t, healed, m)
		if s := keyState(t, m, id); s != "minions" {
			t.Errorf("round %d: the accepted key is in %q after a loss of power", round, s)
		}
		if word, err := late.signIn(t.Context(), m); err != nil || word != "accepted" {
			t.Errorf("round %d: sign-in after a loss of power: %s, %v", round, word, err)
		}
		w.write(t, 20, 2000)
		disk.cut(t, m)
		c.WaitReady(t, healed, m)
		w.found(t, m)
	}
}
