package dev

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemoInstallsWhatItUses runs the demo's script as root of a machine that has none of the
// programs that it looks for, with an apt-get that only notes what it is asked for.
func TestDemoInstallsWhatItUses(t *testing.T) {
	dir := t.TempDir()
	notes := filepath.Join(dir, "notes")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"demo.sh", "install-test-needs.sh", "venvs.sh"} {
		text, err := os.ReadFile(filepath.Join("../scripts", name))
		if err != nil {
			t.Fatal(err)
		}
		// HAProxy of this machine is not one of the demo's.
		write(filepath.Join(dir, "tools/scripts", name),
			strings.ReplaceAll(string(text), "/usr/sbin/", dir+"/sbin/"))
	}
	write(filepath.Join(dir, "path/id"), "#!/bin/bash\necho 0\n")
	for _, name := range []string{"apt-get", "systemctl"} {
		write(filepath.Join(dir, "path", name),
			fmt.Sprintf("#!/bin/bash\necho %s \"$@\" >>%s\n", name, notes))
	}
	write(filepath.Join(dir, "bin/clustermaster"),
		fmt.Sprintf("#!/bin/bash\necho clustermaster \"$@\" >>%s\n", notes))
	for _, name := range []string{"bash", "dirname", "env", "mkdir"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, "path", name)); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(filepath.Join(dir, "path/bash"), "tools/scripts/demo.sh", "--leave")
	c.Dir, c.Env = dir, []string{"PATH=" + filepath.Join(dir, "path")}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	want := `apt-get install -y -q --no-install-recommends python3 python3-venv
apt-get install -y -q --no-install-recommends haproxy
clustermaster dev --leave
`
	if string(got) != want {
		t.Errorf("the demo did\n%swant\n%s", got, want)
	}
}
