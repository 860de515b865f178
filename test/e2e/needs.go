package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Releases are the minion releases that we serve, oldest first.
var Releases = []string{"3006.28", "3007.15", "3008.3"}

// Venvs is the folder of Salt's virtual environments (salt-3008.3, ...). Without it the test is
// skipped.
func Venvs(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if dir == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// Pepper is the path of pepper, Salt's client of salt-api. Without it the test is skipped.
func Pepper(t testing.TB) string {
	t.Helper()
	path := filepath.Join(Venvs(t), "pepper", "bin", "pepper")
	if _, err := os.Stat(path); err != nil {
		t.Skip("needs pepper in CLUSTERMASTER_SALT_VENVS; run make venvs")
	}
	return path
}

// HAProxyProgram is the path of haproxy. Without it the test is skipped.
func HAProxyProgram(t testing.TB) string {
	t.Helper()
	for _, p := range []string{"haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"} {
		if path, err := exec.LookPath(p); err == nil {
			return path
		}
	}
	t.Skip("needs haproxy; run make test")
	return ""
}

// Root is the folder of the module.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test's folder")
		}
	}
}

// Programs are the commands of one kind of master.
type Programs struct{ Master, Salt, Key, Run string }

var build struct {
	once sync.Once
	err  error
}

// Ours builds bin/clustermaster once per test run, unless CLUSTERMASTER_BIN names a folder with the
// program and its links.
func Ours(t testing.TB) Programs {
	t.Helper()
	dir := os.Getenv("CLUSTERMASTER_BIN")
	if dir == "" {
		root := Root(t)
		dir = filepath.Join(root, "bin")
		build.once.Do(func() {
			out, err := exec.Command("make", "-C", root, "build").CombinedOutput()
			if err != nil {
				build.err = fmt.Errorf("make build: %w\n%s", err, out)
			}
		})
		if build.err != nil {
			t.Fatal(build.err)
		}
	}
	return programs(dir)
}

// Theirs are the commands of the real Salt of a release.
func Theirs(t testing.TB, release string) Programs {
	t.Helper()
	return programs(filepath.Join(Venvs(t), "salt-"+release, "bin"))
}

func programs(dir string) Programs {
	return Programs{Master: filepath.Join(dir, "salt-master"), Salt: filepath.Join(dir, "salt"),
		Key: filepath.Join(dir, "salt-key"), Run: filepath.Join(dir, "salt-run")}
}
