package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReloadedNodegroups changes nodegroups while a master runs. The commands use the new ones at
// once, runner functions after SIGHUP.
func TestReloadedNodegroups(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 1, Plain: true, Programs: Ours(t)})
	m := c.Masters[0]
	plain := m.Config(t)
	m.Configure(t, plain+"nodegroups: {group: 'web*'}\n")
	pki := filepath.Join(m.Dir, "pki", "minions") // as a Salt master leaves keys
	if err := os.MkdirAll(pki, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"web1", "db1"} {
		if r := m.Key(t, "--gen-keys", id, "--gen-keys-dir", m.Dir); r.Code != 0 {
			t.Fatal(r)
		}
		if err := os.Rename(filepath.Join(m.Dir, id+".pub"), filepath.Join(pki, id)); err != nil {
			t.Fatal(err)
		}
	}
	m.Run(t)
	c.WaitReady(t, 60*time.Second, m)
	names := func(r Result, id string) error {
		if got := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(r.Stdout),
			"- ")); got != id {
			return fmt.Errorf("want %s: %v", id, r)
		}
		return nil
	}
	command := func(id string) error {
		return names(m.Salt(t, "-N", "group", "--preview-target"), id)
	}
	runner := func(id string) error {
		return names(m.Runner(t, "manage.down", "tgt=group", "tgt_type=nodegroup", "timeout=1",
			"gather_job_timeout=1"), id)
	}
	if err := errors.Join(command("web1"), runner("web1")); err != nil {
		t.Fatal(err)
	}
	m.Configure(t, plain+"nodegroups: {group: 'db*'}\nworker_threads: 9\n")
	if err := errors.Join(command("db1"), runner("web1")); err != nil {
		t.Errorf("before SIGHUP: %v", err)
	}
	m.Signal(t, syscall.SIGHUP)
	Eventually(t, 30*time.Second, "the new group counts", func() error { return runner("db1") })
	Eventually(t, 10*time.Second, "the log tells", fileHas(m.Log, "in_force=nodegroups"))
	if err := fileHas(m.Log, "options=worker_threads")(); err != nil {
		t.Error(err)
	}
}

// TestOwnGrains changes the grains file and the option grains while a master runs. Both count at
// once.
func TestOwnGrains(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 1, Plain: true, Programs: Ours(t)})
	m := c.Masters[0]
	plain := m.Config(t)
	m.Run(t)
	c.WaitReady(t, 60*time.Second, m)
	role := func(want string) {
		t.Helper()
		r := m.Runner(t, "salt.cmd", "grains.get", "role", "--out=newline_values_only")
		if got := strings.TrimSpace(r.Stdout); got != want {
			t.Errorf("want %s: %v", want, r)
		}
	}
	file := filepath.Join(m.ConfDir, "grains")
	if err := os.WriteFile(file, []byte("role: web\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	role("web")
	m.Configure(t, plain+"grains: {role: db}\n")
	role("db")
	m.Signal(t, syscall.SIGHUP)
	Eventually(t, 10*time.Second, "the log tells", fileHas(m.Log, "in_force=grains"))
}

// TestReloadedExternalAuth changes who may order what while a master runs. A configuration with an
// error changes nothing, and what was reloaded counts after cluster.recover as well.
func TestReloadedExternalAuth(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 2, Programs: Ours(t)})
	m := c.Masters[0]
	users := filepath.Join(c.Dir, "users")
	if err := os.WriteFile(users, []byte("carol:carols-word\ndave:daves-word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := m.Config(t)
	with := func(file, rights string) string {
		return plain + "external_auth: {file: {" + file + rights + ": ['@runner']}}\n"
	}
	file := "^filename: " + users + ", "
	m.Configure(t, with(file, "carol"))
	c.StartMasters(t)
	may := func(who string, want bool) error {
		r := m.Runner(t, "-a", "file", "--username", who, "--password", who+"s-word", "--out=json",
			"test.arg", "x")
		if got := strings.Contains(r.Stdout, `"args"`); got != want ||
			!want && !strings.Contains(r.Stdout, "Authentication failure") {
			return fmt.Errorf("%s may: want %v: %v", who, want, r)
		}
		return nil
	}
	both := func(carol, dave bool) func() error {
		return func() error { return errors.Join(may("carol", carol), may("dave", dave)) }
	}
	if err := both(true, false)(); err != nil {
		t.Fatal(err)
	}
	m.Configure(t, with(file, "dave"))
	m.Signal(t, syscall.SIGHUP)
	Eventually(t, 30*time.Second, "the new rights count", both(false, true))
	Eventually(t, 10*time.Second, "the log tells", fileHas(m.Log, "in_force=external_auth"))

	m.Configure(t, with("", "carol")) // without ^filename
	m.Signal(t, syscall.SIGHUP)
	Eventually(t, 10*time.Second, "the log tells", fileHas(m.Log, "options not reloaded"))
	if err := both(false, true)(); err != nil {
		t.Errorf("after a configuration with an error: %v", err)
	}

	c.Masters[1].Kill(t)
	Eventually(t, 60*time.Second, "the master recovers", func() error {
		if r := m.Runner(t, "cluster.recover", "confirm=e2e"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	Eventually(t, 60*time.Second, "it is opened again", func() error {
		b, err := os.ReadFile(m.Log)
		if n := strings.Count(string(b), "master starts"); err == nil && n != 2 {
			err = fmt.Errorf("started %d times", n)
		}
		return err
	})
	c.WaitReady(t, 60*time.Second, m)
	if err := both(false, true)(); err != nil {
		t.Errorf("after cluster.recover: %v", err)
	}
}
