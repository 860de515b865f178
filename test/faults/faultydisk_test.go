package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/test/e2e"
)

// faultyDisk is an ext4 below the cachedir of a master that has not been started yet. Its device
// can hang, and refuse what is written.
type faultyDisk struct {
	dir    string
	device smallDisk // holds the file that is the device
}

func mountFaultyDisk(t *testing.T, m *e2e.Master) faultyDisk {
	t.Helper()
	const needs = "needs root, mkfs.ext4 and a loop device, for a faulty disk"
	if os.Geteuid() != 0 {
		t.Skip(needs)
	}
	d := faultyDisk{filepath.Join(m.Dir, "cache"), mountTmpfs(t, filepath.Join(m.Dir, "device"), "256M")}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(d.device.dir, "ext4")
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(512<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, d.dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Logf("%v: %v: %s", args, err, out)
			t.Skip(needs)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
	return d
}

// hang makes all writes wait until the returned function is called.
func (d faultyDisk) hang(t *testing.T) (resume func()) {
	t.Helper()
	f, err := os.Open(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(f.Fd()), fifreeze, 0); err != nil {
		t.Fatalf("freeze %s: %v", d.dir, err)
	}
	resume = sync.OnceFunc(func() {
		defer f.Close()
		if err := unix.IoctlSetInt(int(f.Fd()), fithaw, 0); err != nil {
			t.Errorf("thaw %s: %v", d.dir, err)
		}
	})
	t.Cleanup(resume)
	return resume
}

// refuse makes all writes fail from now on: the device is sparse, and what holds it becomes full.
func (d faultyDisk) refuse(t *testing.T) {
	t.Helper()
	d.device.fill(t, 0)
}

// FIFREEZE and FITHAW of linux/fs.h.
const (
	fifreeze = 0xc0045877
	fithaw   = 0xc0045878
)

// TestHangingDisk: the disk of a master hangs, which holds its log, too; its process and its
// network are well. If it is the leader, another one leads within seconds, so that keys can be
// changed. Minions answer all masters at once, also those that are connected to it. Later health
// names the disk, and the balancer sends its minions to the others. When the disk is back the
// master is ready again by itself, and has what was acknowledged meanwhile.
func TestHangingDisk(t *testing.T) {
	t.Parallel()
	e2e.HAProxyProgram(t)
	e2e.Venvs(t)
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3,
		Extra: "cluster_isolated_filesystem: True\n"})}
	hung, rest := c.Masters[2], c.Masters[:2]
	disk := mountFaultyDisk(t, hung)
	hung.Configure(t, strings.Replace(hung.Config(t), hung.Dir+"/master.log", disk.dir+"/master.log", 1))
	c.Start(t)
	pid := hung.PID()
	c.AddMinions(t, "minion", "recon_default: 1000\nrecon_max: 2000\n", "3006.28", "3007.15", "3008.3")
	e2e.Eventually(t, healed, "all minions have signed in", func() error {
		succeeds(t, rest[0].Key(t, "-A", "-y"))
		for _, id := range c.IDs() {
			if s := keyState(t, rest[0], id); s != "minions" {
				return fmt.Errorf("%s is in %q", id, s)
			}
		}
		return nil
	})
	e2e.Eventually(t, healed, "all minions answer", func() error { return answers(t, rest[0], c.IDs()) })
	w := newWriter(t, c, c.Masters)
	w.write(t, 200, 2000)

	for _, role := range []string{"leader", "follower"} {
		t.Run(role, func(t *testing.T) {
			leads := hung
			if role == "follower" {
				leads = rest[0]
			}
			if c.Leader(t, rest[0]) != leads {
				succeeds(t, rest[0].Runner(t, "cluster.transfer_leader", leads.ID))
			}
			resume := disk.hang(t)
			began := time.Now()
			stop := w.during(t, 10, 2000)
			var asked sync.WaitGroup
			for _, m := range c.Masters {
				asked.Go(func() {
					if err := answers(t, m, c.IDs()); err != nil {
						t.Error(err)
					}
				})
			}
			asked.Wait()
			t.Logf("all masters had answers of all minions after %v", time.Since(began))
			e2e.Eventually(t, healed, "a key is accepted", func() error {
				id := fmt.Sprintf("new-%s-%d", role, time.Since(began))
				newMinion(t, id).comes(t, rest[0])
				if r := rest[0].Key(t, "-a", id, "-y"); r.Code != 0 || keyState(t, rest[1], id) != "minions" {
					return fmt.Errorf("%v", r)
				}
				return nil
			})
			t.Logf("a key was accepted after %v", time.Since(began))
			e2e.Eventually(t, healed, "health names the disk", func() error {
				r := rest[0].Runner(t, "cluster.health")
				if r.Code != 1 || !strings.Contains(r.Stdout, hung.ID+" is not ready (disk: a write at ") {
					return fmt.Errorf("%v", r)
				}
				return nil
			})
			t.Logf("health named the disk after %v", time.Since(began))
			e2e.Eventually(t, healed, "the balancer takes it out", func() error {
				up, err := c.Balancer.Up("")
				for name, list := range up {
					if slices.Contains(list, hung.Number) {
						return fmt.Errorf("%s has %v", name, list)
					}
				}
				return err
			})
			stop()
			for _, m := range c.Masters {
				e2e.Eventually(t, healed, "all minions answer", func() error { return answers(t, m, c.IDs()) })
			}
			w.write(t, 100, 2000)

			resume()
			c.WaitReady(t, healed, c.Masters...)
			if hung.PID() != pid {
				t.Error("the master was started anew")
			}
			settled(t, c, c.Masters...)
			w.found(t, c.Masters...)
			oneHistory(t, c.Masters...)
		})
	}
}

// TestRefusingDisk: the device of a follower's disk answers errors, and its file system becomes
// read-only. Raft itself would go on: the master would hear its leader and be ready, but learn of
// no key any more. It ends instead, and says why. The others go on.
func TestRefusingDisk(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t, 3, "cluster_isolated_filesystem: True\n")
	bad, rest := c.Masters[2], c.Masters[:2]
	disk := mountFaultyDisk(t, bad)
	c.StartMasters(t)
	if c.Leader(t, rest[0]) == bad {
		succeeds(t, rest[0].Runner(t, "cluster.transfer_leader", rest[0].ID))
	}
	disk.refuse(t)
	for n := 0; bad.Running(); n++ {
		if n == 20 {
			t.Fatalf("%s runs: readyz says %v", bad.ID, bad.Probe("/readyz"))
		}
		accepted(t, rest[n%2], fmt.Sprintf("new%d", n))
	}
	said := ""
	for _, name := range []string{"master.log", "output.log"} {
		b, err := os.ReadFile(filepath.Join(bad.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		said += string(b)
	}
	if !strings.Contains(said, "refuses raft's log") && !strings.Contains(said, "refuses the ring store's writes") {
		t.Error("it did not say that its disk refuses writes")
	}
	e2e.Eventually(t, healed, "health names it", func() error {
		if r := rest[0].Runner(t, "cluster.health"); !strings.Contains(r.Stdout, bad.ID+" is unreachable") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	accepted(t, rest[0], "late")
}
