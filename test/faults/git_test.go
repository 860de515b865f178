package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"clustermaster/test/e2e"
)

// gitCommit writes a file into a repository, which it creates if necessary, and returns the commit.
func gitCommit(t *testing.T, dir, name string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
		t.Fatal(err)
	}
	e2e.Git(t, dir, "init", "-q", "-b", "master")
	e2e.Git(t, dir, "add", "-A")
	e2e.Git(t, dir, "commit", "-q", "-m", name)
	return e2e.Git(t, dir, "rev-parse", "HEAD")
}

// servesCommit returns nil if a master serves a commit for base.
func servesCommit(t *testing.T, m *e2e.Master, commit string) error {
	t.Helper()
	var status map[string]struct {
		Environments map[string]struct {
			Commit string `json:"commit"`
		} `json:"environments"`
	}
	if err := m.RunnerJSON(t, &status, "cluster.git_status"); err != nil {
		return err
	}
	if got := status["states"].Environments["base"].Commit; got != commit {
		return fmt.Errorf("%s serves %q, not %s", m.ID, got, commit)
	}
	return nil
}

// TestGitWithFullDisk: the leader dies in the middle of a switch to a new commit, while the disk of
// another master is full. A commit served by one master is on a majority. The full one continues
// with the former commit. Once there is space, all serve the newest one.
func TestGitWithFullDisk(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "states")
	first := gitCommit(t, repo, "first")
	c := prepareCluster(t, 3, "disk_reserve: 8M\ncluster_isolated_filesystem: True\n"+
		"fileserver_backend: [git]\ngitfs_remotes:\n  - file://"+repo+
		":\n    - name: states\n    - update_interval: 1\n")
	full, rest := c.Masters[2], c.Masters[:2]
	disk := mountSmallDisk(t, full, "96M")
	c.StartMasters(t)
	serve := func(commit string, masters ...*e2e.Master) {
		t.Helper()
		e2e.Eventually(t, healed, "masters serve "+commit, func() error {
			for _, m := range masters {
				if err := servesCommit(t, m, commit); err != nil {
					return err
				}
			}
			return nil
		})
	}
	serve(first, c.Masters...)
	if c.Leader(t, rest[0]) == full {
		succeeds(t, rest[0].Runner(t, "cluster.transfer_leader", rest[0].ID))
	}
	disk.fill(t, 0)
	e2e.Eventually(t, healed, "the master with the full disk is not ready", func() error {
		if full.Probe("/readyz") == nil {
			return errors.New("it is ready")
		}
		return full.Probe("/livez")
	})
	leader := c.Leader(t, rest[0])
	other := c.others(leader, full)[0]
	second := gitCommit(t, repo, "second")
	serve(second, leader)
	leader.Kill(t)
	serve(second, other)
	if err := servesCommit(t, full, first); err != nil {
		t.Errorf("with a full disk: %v", err)
	}
	third := gitCommit(t, repo, "third")
	disk.empty(t)
	serve(third, other, full)
	leader.Run(t)
	serve(third, c.Masters...)
	c.WaitReady(t, healed, c.Masters...)
}
