package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestSyncOnAllMasters copies a runner to all masters by one call, names the masters that fail, and
// sees where modules differ.
func TestSyncOnAllMasters(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3, Extra: "fileserver_list_cache_time: 0\npython_host: " +
		filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin", "python3") + "\n"})
	write := func(m *e2e.Master, name, text string) {
		t.Helper()
		path := filepath.Join(m.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range c.Masters {
		write(m, "srv/_runners/hello.py", "def world():\n    return 'hello of "+m.ID+"'\n")
	}
	c.StartMasters(t)
	if r := c.Masters[1].Runner(t, "saltutil.sync_runners"); r.Code != 0 ||
		!strings.Contains(r.Stdout, "runners.hello") {
		t.Fatalf("sync: %v", r)
	}
	for _, m := range c.Masters {
		if r := m.Runner(t, "hello.world"); r.Stdout != "hello of "+m.ID+"\n" {
			t.Errorf("%s has no runner: %v", m.ID, r)
		}
	}
	r := e2e.Command(t, filepath.Join(filepath.Dir(e2e.Ours(t).Run), "clustermaster"), "doctor",
		"-c", c.Masters[0].ConfDir, "--all")
	if !strings.Contains(r.Stdout, "extension_modules: runners differs between") {
		t.Errorf("different modules: %v", r)
	}
	e2e.Eventually(t, 30*time.Second, "different modules have three digests", func() error {
		digests, health := extensionsOf(t, c.Masters[0])
		if len(digests) != 3 || !strings.Contains(health, "below extension_modules differ (") ||
			strings.Count(health, c.Masters[2].ID+": ") != 1 {
			return fmt.Errorf("members %v, health %s", digests, health)
		}
		return nil
	})
	for _, m := range c.Masters {
		write(m, "srv/_runners/hello.py", "def world():\n    return 'hello'\n")
	}
	if r := c.Masters[1].Runner(t, "saltutil.sync_runners"); r.Code != 0 {
		t.Fatalf("sync: %v", r)
	}
	e2e.Eventually(t, 30*time.Second, "equal modules have one digest", func() error {
		digests, health := extensionsOf(t, c.Masters[0])
		if len(digests) != 1 || strings.Contains(health, "extension_modules") {
			return fmt.Errorf("members %v, health %s", digests, health)
		}
		return nil
	})
	last := c.Masters[2]
	for _, m := range c.Masters {
		write(m, "srv/_runners/hello.py", "def world():\n    return 'new'\n")
	}
	staged := filepath.Join(last.Dir, "var/cache/salt/master/extmods/.staged")
	if err := os.WriteFile(staged, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := c.Masters[1].Runner(t, "saltutil.sync_all"); r.Code == 0 ||
		!strings.Contains(r.Stdout, last.ID+": modules can't be copied") ||
		!strings.Contains(r.Stdout, "no master has switched") {
		t.Errorf("a master that can't copy: %v", r)
	}
	for _, m := range c.Masters {
		if r := m.Runner(t, "hello.world"); r.Stdout != "hello\n" {
			t.Errorf("%s has switched though one could not copy: %v", m.ID, r)
		}
	}
	if err := os.Remove(staged); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Masters {
		if err := os.Remove(filepath.Join(m.Dir, "srv/_runners/hello.py")); err != nil {
			t.Fatal(err)
		}
		write(m, "srv/_runners/other.py", "def world():\n    return 'other'\n")
	}
	if r := c.Masters[1].Runner(t, "saltutil.sync_all"); r.Code != 0 {
		t.Errorf("sync_all: %v", r)
	}
	for _, m := range c.Masters {
		if r := m.Runner(t, "other.world"); r.Stdout != "other\n" {
			t.Errorf("%s has no other runner: %v", m.ID, r)
		}
		if r := m.Runner(t, "hello.world"); !strings.Contains(r.Stdout, "is not available") {
			t.Errorf("%s has a runner that was taken away: %v", m.ID, r)
		}
		staged := filepath.Join(m.Dir, "var/cache/salt/master/extmods/.staged")
		if _, err := os.Lstat(staged); err == nil {
			t.Errorf("%s keeps copies that nobody uses", m.ID)
		}
	}
	last.Kill(t)
	e2e.Eventually(t, 60*time.Second, "a master that is away is named", func() error {
		r := c.Masters[0].Runner(t, "saltutil.sync_runners")
		if r.Code == 0 || !strings.Contains(r.Stdout, last.ID+" can't be reached") {
			return errors.New(r.String())
		}
		return nil
	})
}

// extensionsOf returns the digests that a master shows of its own and the others' modules, with the
// masters that have each, and what it reports about the cluster's health.
func extensionsOf(t *testing.T, m *e2e.Master) (digests map[string][]string, health string) {
	t.Helper()
	var members struct {
		Peers map[string]struct{ Extensions string }
	}
	r := m.Runner(t, "cluster.members", "--out=json")
	if err := json.Unmarshal([]byte(r.Stdout), &members); err != nil {
		t.Fatalf("members: %v: %v", err, r)
	}
	digests = map[string][]string{}
	for id, p := range members.Peers {
		digests[p.Extensions] = append(digests[p.Extensions], id)
	}
	return digests, m.Runner(t, "cluster.health").Stdout
}
