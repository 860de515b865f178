package commands

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestSyncOnAllMasters copies a runner on all masters by one call, names those that can't, and sees
// where their modules differ.
func TestSyncOnAllMasters(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3, Extra: "python_host: " +
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
	last := c.Masters[2]
	last.Kill(t)
	e2e.Eventually(t, 60*time.Second, "a master that is away is named", func() error {
		r := c.Masters[0].Runner(t, "saltutil.sync_runners")
		if r.Code == 0 || !strings.Contains(r.Stdout, last.ID+" can't be reached") {
			return errors.New(r.String())
		}
		return nil
	})
}
