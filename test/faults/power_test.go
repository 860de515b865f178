package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"clustermaster/test/e2e"
	"clustermaster/test/powerdisk"
)

// losePower cuts a master's power and restores it.
func losePower(t *testing.T, d *powerdisk.Disk, m *e2e.Master) {
	t.Helper()
	m.Freeze(t)
	left := d.Lose(t)
	m.Kill(t)
	d.Return(t, left)
	m.Run(t)
}

// TestPowerLoss: a master that loses power right after it has acknowledged a key, a return or new
// secrets has them when it starts again. It is alone, so no other master can tell it what it
// forgot. Without the sync of Raft's log this fails.
func TestPowerLoss(t *testing.T) {
	c := prepareCluster(t, 1, "")
	m := c.Masters[0]
	disk := powerdisk.Mount(t, filepath.Join(m.Dir, "cache"), m.Dir)
	m.Run(t, "--found")
	c.WaitReady(t, healed, m)
	w := newWriter(t, c, c.Masters)
	for round := range 3 {
		id := fmt.Sprintf("late%d", round)
		late := accepted(t, m, id)
		losePower(t, disk, m)
		c.WaitReady(t, healed, m)
		if s := keyState(t, m, id); s != "minions" {
			t.Errorf("round %d: the accepted key is in %q after a loss of power", round, s)
		}
		if word, err := late.signIn(t.Context(), m); err != nil || word != "accepted" {
			t.Errorf("round %d: sign-in after a loss of power: %s, %v", round, word, err)
		}
		w.write(t, 20, 2000)
		losePower(t, disk, m)
		c.WaitReady(t, healed, m)
		w.found(t, m)
	}
}

// TestPowerLossOfRoots: a master that loses power right after it has reported synced roots as
// installed has all of their files: without the sync of the roots' file system the first part
// fails. Contents of an agreed head are on a majority's disks when it is agreed: without the sync
// of the blobs the second part fails.
func TestPowerLossOfRoots(t *testing.T) {
	c := prepareCluster(t, 3, "cluster_isolated_filesystem: True\n")
	roots := func(m *e2e.Master) string { return filepath.Join(m.Dir, "srv") }
	source, m := c.Masters[0], c.Masters[2]
	disk := powerdisk.Mount(t, roots(m), m.Dir)
	var caches []*powerdisk.Disk
	for _, o := range c.Masters[:2] {
		caches = append(caches, powerdisk.Mount(t, filepath.Join(o.Dir, "cache"), o.Dir))
	}
	c.StartMasters(t)
	text := fmt.Sprintf("a state: %0100d", 1)
	sync := func(name string, codes ...int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(roots(source), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := source.Runner(t, "cluster.sync_roots", "roots=file"); !slices.Contains(codes, r.Code) {
			t.Fatal(r)
		}
	}
	sync("one.sls", 0)
	losePower(t, disk, m)
	c.WaitReady(t, healed, m)
	if got, err := os.ReadFile(filepath.Join(roots(m), "one.sls")); err != nil || string(got) != text {
		t.Errorf("after a loss of power the master has %q, %v", got, err)
	}

	m.Kill(t)
	text = fmt.Sprintf("a state: %0100d", 2)
	sync("two.sls", 0, 1) // one master is away, or has failed if the others still counted on it
	var left []string
	for i, o := range c.Masters[:2] {
		o.Freeze(t)
		left = append(left, caches[i].Lose(t))
	}
	for i, o := range c.Masters[:2] {
		o.Kill(t)
		caches[i].Return(t, left[i])
		if err := os.Remove(filepath.Join(roots(o), "two.sls")); err != nil { // only blobs are left
			t.Fatal(err)
		}
	}
	for _, o := range c.Masters {
		o.Run(t)
	}
	c.WaitReady(t, healed, c.Masters...)
	e2e.Eventually(t, healed, "the absent master gets the file", func() error {
		got, err := os.ReadFile(filepath.Join(roots(m), "two.sls"))
		if err == nil && string(got) != text {
			err = fmt.Errorf("it has %q", got)
		}
		return err
	})
}
