package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/test/e2e"
)

// smallDisk is a separate file system below the cachedir of a master that has not been started yet.
type smallDisk struct{ dir string }

func mountSmallDisk(t *testing.T, m *e2e.Master, size string) smallDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	return mountTmpfs(t, filepath.Join(m.Dir, "cache"), size)
}

func mountTmpfs(t *testing.T, dir, size string) smallDisk {
	t.Helper()
	d := smallDisk{dir}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs",
		d.dir).CombinedOutput(); err != nil {
		t.Skipf("needs to mount a file system: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

func (d smallDisk) filler() string { return filepath.Join(d.dir, "filler") }

func (d smallDisk) free(t *testing.T) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// fill leaves that many bytes; 0 fills until nothing more fits.
func (d smallDisk) fill(t *testing.T, leave int64) {
	t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); d.free(t) > leave; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) && leave == 0 {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// takeInodes leaves that many inodes; 0 takes them until no file can be made.
func (d smallDisk) takeInodes(t *testing.T, leave uint64) {
	t.Helper()
	dir := filepath.Join(d.dir, "small")
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for {
		var st unix.Statfs_t
		if err := unix.Statfs(d.dir, &st); err != nil {
			t.Fatal(err)
		}
		if leave > 0 && st.Ffree <= leave {
			return
		}
		f, err := os.CreateTemp(dir, "")
		if errors.Is(err, syscall.ENOSPC) && leave == 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

func (d smallDisk) giveInodes(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(d.dir, "small")); err != nil {
		t.Fatal(err)
	}
}

func (d smallDisk) empty(t *testing.T) {
	t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk: a master whose disk fills up refuses what would fill it further, says so, and
// continues with keys and members. Without a single free byte, through changes of leaders, it
// neither ends nor lies. When space returns it serves again automatically.
func TestFullDisk(t *testing.T) {
	c := prepareCluster(t, 3, "disk_reserve: 8M\ncluster_isolated_filesystem: True\n")
	full, rest := c.Masters[2], c.Masters[:2]
	disk := mountSmallDisk(t, full, "96M")
	c.StartMasters(t)
	pid := full.PID()
	w := newWriter(t, c, c.Masters)
	w.write(t, 200, 2000)

	disk.fill(t, 4<<20)
	e2e.Eventually(t, healed, "a master below its reserve is not ready", func() error {
		if full.Probe("/readyz") == nil {
			return errors.New("it is ready")
		}
		return full.Probe("/livez")
	})
	e2e.Eventually(t, healed, "health names the disk", func() error {
		r := rest[0].Runner(t, "cluster.health")
		if r.Code == 0 || !strings.Contains(r.Stdout, full.ID+" is not ready (disk: ") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	refusedBefore := metric(t, full, "clustermaster_requests_refused_total", `reason="disk"`)
	if reply, err := w.minions[0].ask(within(t, 10*time.Second), full,
		w.minions[0].returned("20260102000000000001", "test.echo", "x")); err == nil {
		t.Errorf("below the reserve a return is answered: %v", reply)
	}
	if got := metric(t, full, "clustermaster_requests_refused_total",
		`reason="disk"`); got != refusedBefore+1 {
		t.Errorf("requests refused for the disk: %v, want %v", got, refusedBefore+1)
	}
	refused(t, full.Runner(t, "cluster.sync_roots"), "disk: ")
	phrase := filepath.Join(full.Dir, "phrase")
	if err := os.WriteFile(phrase, []byte("correct horse battery staple"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, full.Runner(t, "cluster.backup", filepath.Join(full.Dir, "c.backup"),
		"passphrase_file="+phrase), "disk: ")
	refused(t, rest[0].Runner(t, "cluster.backup", filepath.Join(disk.dir, "c.backup"),
		"passphrase_file="+phrase), "disk: ")
	newMinion(t, "late").comes(t, full)
	succeeds(t, full.Key(t, "-a", "late", "-y"))
	e2e.Eventually(t, healed, "a key is accepted on the full master", func() error {
		if s := keyState(t, full, "late"); s != "minions" {
			return fmt.Errorf("it is in %q", s)
		}
		return nil
	})
	w.to(rest...)
	w.write(t, 200, 2000)

	disk.fill(t, 0)
	stop := w.during(t, 20, 2000)
	began := time.Now()
	for i, m := range rest { // each change of leader has a new term, which raft must keep
		succeeds(t, rest[1-i].Runner(t, "cluster.transfer_leader", m.ID))
		newMinion(t, fmt.Sprintf("during%d", i)).comes(t, m)
		succeeds(t, m.Key(t, "-a", fmt.Sprintf("during%d", i), "-y"))
	}
	t.Logf("with 0 bytes free two changes of leader and two of keys took %v", time.Since(began))
	touched(t, full, began)
	stop()
	if !full.Running() || full.PID() != pid {
		t.Fatal("the master with the full disk has ended")
	}

	disk.empty(t)
	c.WaitReady(t, healed, c.Masters...)
	if full.PID() != pid {
		t.Error("the master was started anew")
	}
	settled(t, c, c.Masters...)

	// The last byte goes during writes, before the master has seen its reserve used up.
	w.to(full)
	stop = w.during(t, 200, 20000)
	disk.fill(t, 0)
	e2e.Eventually(t, healed, "it is not ready", func() error {
		if full.Probe("/readyz") == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	stop()
	disk.empty(t)
	c.WaitReady(t, healed, c.Masters...)
	if full.PID() != pid {
		t.Error("the master was started anew")
	}
	settled(t, c, c.Masters...)
	w.to(full)
	w.write(t, 40, 2000)
	w.found(t, c.Masters...)
	oneHistory(t, c.Masters...)
}

// touched waits until a master has touched its file alive, by which Kubernetes restarts it or not.
func touched(t *testing.T, m *e2e.Master, since time.Time) {
	t.Helper()
	e2e.Eventually(t, healed, m.ID+" shows that it is alive", func() error {
		info, err := os.Stat(filepath.Join(m.Dir, "cache", "health", "alive"))
		if err == nil && info.ModTime().Before(since) {
			err = fmt.Errorf("not since %v", info.ModTime())
		}
		return err
	})
}

// TestNoInodesLeft: a disk may have space and no inode left, which many small files of other
// programs do. The master behaves as with a full one.
func TestNoInodesLeft(t *testing.T) {
	c := prepareCluster(t, 3, "cluster_isolated_filesystem: True\n")
	full, rest := c.Masters[2], c.Masters[:2]
	disk := mountSmallDisk(t, full, "96M,nr_inodes=2000")
	c.StartMasters(t)
	pid := full.PID()
	w := newWriter(t, c, c.Masters)
	w.write(t, 200, 2000)

	disk.takeInodes(t, 50) // the reserve is 5 %: 100
	e2e.Eventually(t, healed, "health names the inodes", func() error {
		if full.Probe("/readyz") == nil {
			return errors.New("it is ready")
		}
		r := rest[0].Runner(t, "cluster.health")
		if r.Code == 0 || !strings.Contains(r.Stdout, full.ID+" is not ready (disk: ") ||
			!strings.Contains(r.Stdout, " inodes are free at ") {
			return fmt.Errorf("%v", r)
		}
		return full.Probe("/livez")
	})
	if reply, err := w.minions[0].ask(within(t, 10*time.Second), full,
		w.minions[0].returned("20260102000000000001", "test.echo", "x")); err == nil {
		t.Errorf("below the reserve a return is answered: %v", reply)
	}
	refused(t, full.Runner(t, "cluster.sync_roots"), " inodes are free at ")

	disk.takeInodes(t, 0)
	w.to(rest...)
	began := time.Now()
	stop := w.during(t, 20, 20000)
	for i, m := range rest {
		succeeds(t, rest[1-i].Runner(t, "cluster.transfer_leader", m.ID))
		newMinion(t, fmt.Sprintf("during%d", i)).comes(t, full)
		succeeds(t, full.Key(t, "-a", fmt.Sprintf("during%d", i), "-y"))
	}
	touched(t, full, began)
	stop()
	disk.giveInodes(t)
	c.WaitReady(t, healed, c.Masters...)

	// The last inode goes during writes, before the master has seen its reserve used up.
	w.to(full)
	stop = w.during(t, 200, 20000)
	disk.takeInodes(t, 0)
	e2e.Eventually(t, healed, "it is not ready", func() error {
		if full.Probe("/readyz") == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	stop()
	disk.giveInodes(t)
	c.WaitReady(t, healed, c.Masters...)
	if !full.Running() || full.PID() != pid {
		t.Error("the master was started anew")
	}
	settled(t, c, c.Masters...)
	w.write(t, 40, 2000)
	w.found(t, c.Masters...)
	oneHistory(t, c.Masters...)
}

// TestDamagedRingStore: a flipped bit in a file of the ring store costs a master nothing but the
// time to fetch its records again. Meanwhile it signs minions in, takes keys and is ready. Its log
// names the file, and the damaged store is set aside.
func TestDamagedRingStore(t *testing.T) {
	c := newCluster(t, 3, "")
	hurt := c.Masters[2]
	w := newWriter(t, c, c.Masters)
	w.write(t, 400, 20000)
	settled(t, c, c.Masters...)
	ring := filepath.Join(hurt.Dir, "cache", "clustermaster", "ring")
	tables := func() []string {
		names, _ := filepath.Glob(filepath.Join(ring, "*.sst"))
		return names
	}
	e2e.Eventually(t, healed, "the ring store has table files", func() error {
		if len(tables()) == 0 {
			w.write(t, 40, 20000)
			return errors.New("none yet")
		}
		return nil
	})
	if code, _ := hurt.Stop(t, 30*time.Second); code != 0 {
		t.Fatalf("%s ended with %d", hurt.ID, code)
	}
	for _, name := range tables() {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	from := logSize(hurt)
	hurt.Run(t)
	c.WaitReady(t, healed, c.Masters...)
	late := accepted(t, hurt, "late")
	if word, err := late.signIn(within(t, 5*time.Second), hurt); err != nil || word != "accepted" {
		t.Errorf("sign-in at the damaged master: %s, %v", word, err)
	}
	w.found(t, hurt)
	line := logged(t, hurt, from, "the ring store was damaged", ".damaged-")
	logged(t, hurt, from, "the ring store has its records again")
	t.Log(strings.TrimSpace(line))
	settled(t, c, c.Masters...)
	w.found(t, c.Masters...)
	if n, all := records(t, hurt), records(t, c.Masters...); 3*n != all || n < len(w.acked) {
		t.Errorf("the damaged master has %d records, all together %d; %d returns were taken", n, all,
			len(w.acked))
	}
	if aside, _ := filepath.Glob(ring + ".damaged-*"); len(aside) != 1 {
		t.Errorf("kept aside: %v", aside)
	}
}
