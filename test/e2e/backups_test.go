package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestScheduledBackups: only the leader makes dated, verified backups and keeps the newest. Another
// leader continues where it stopped. cluster.health on every master names a backup that can't be
// made, until one succeeds.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, phrase := filepath.Join(dir, "backups"), filepath.Join(dir, "passphrase")
	write := func(mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(phrase, []byte("correct horse battery\n"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(phrase, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(0o600)
	c := NewCluster(t, ClusterOptions{Programs: Ours(t),
		Extra: fmt.Sprintf("backup_dir: %s\nbackup_passphrase_file: %s\nbackup_interval: 5\n"+
			"backup_keep: 1\nbackup_jobs: true\n", folder, phrase)})
	c.StartMasters(t)
	one := func() (string, error) {
		names, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || len(names) != 1 {
			return "", fmt.Errorf("backups: %v %v", names, err)
		}
		return names[0], nil
	}
	var first string
	Eventually(t, 30*time.Second, "there is a backup", func() (err error) {
		if first, err = one(); err == nil && !strings.HasSuffix(first, ".sealed") {
			err = fmt.Errorf("not finished: %s", first)
		}
		return err
	})
	m := c.Masters[0]
	if r := m.Runner(t, "cluster.restore", first, "passphrase_file="+phrase,
		"test=True"); r.Code != 0 || !strings.Contains(r.Stdout, "written_by") {
		t.Errorf("a dry restore: %v", r)
	}
	if info, err := os.Stat(first); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of %s: %v %v", first, info.Mode(), err)
	}
	old := c.Leader(t, m)
	if !strings.HasSuffix(first, "-"+old.ID+".sealed") {
		t.Errorf("%s is the leader and the backup is %s", old.ID, first)
	}
	var next *Master
	for _, other := range c.Masters {
		if other != old {
			next = other
		}
	}
	Eventually(t, 30*time.Second, next.ID+" leads", func() error {
		if r := m.Runner(t, "cluster.transfer_leader", next.ID); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	Eventually(t, 30*time.Second, "the new leader makes the next, and the old one is removed",
		func() error {
			name, err := one()
			if err == nil && (!strings.HasSuffix(name, "-"+next.ID+".sealed") || name <= first) {
				err = fmt.Errorf("there is %s", name)
			}
			return err
		})
	write(0o644)
	for _, asked := range c.Masters {
		Eventually(t, 30*time.Second, "the failure is told by "+asked.ID, func() error {
			r := asked.Runner(t, "cluster.health")
			if r.Code != 1 || !strings.Contains(r.Stdout,
				next.ID+": the last scheduled backup failed: backup_passphrase_file "+phrase+
					" is open to every user") {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	Eventually(t, 40*time.Second, "its age is told", func() error {
		if r := m.Runner(t, "cluster.health"); !strings.Contains(r.Stdout,
			"one is due every 5s (backup_interval)") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if _, err := one(); err != nil {
		t.Errorf("after failures: %v", err)
	}
	write(0o600)
	Eventually(t, 30*time.Second, "all is well again", func() error {
		if r := m.Runner(t, "cluster.health"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}
