package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// PreviousRelease is the commit of release 0.1.0.
const PreviousRelease = "6536d4f10b11eb276dd913eee726510b996e6db2"

// Previous builds the previous release from the history. Without the history the test is skipped.
func Previous(t testing.TB) Programs {
	t.Helper()
	root := Root(t)
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e",
		PreviousRelease+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("needs the history with commit %s, for the previous release: %v\n%s",
			PreviousRelease[:7], err, out)
	}
	previous.Do(func() {
		src := t.TempDir()
		archive := exec.Command("sh", "-c", `git -C "$0" archive "$1" | tar -x -C "$2"`, root,
			PreviousRelease, src)
		if out, err := archive.CombinedOutput(); err != nil {
			t.Fatalf("unpack the previous release: %v\n%s", err, out)
		}
		previousPrograms = built(t, src, "previous")
	})
	if previousPrograms == (Programs{}) {
		t.Fatal("the previous release was not built, see above")
	}
	return previousPrograms
}

// Next builds a program one level ahead of this one (build tag future).
func Next(t testing.TB) Programs {
	t.Helper()
	next.Do(func() { nextPrograms = built(t, Root(t), "next", "-tags", "future") })
	if nextPrograms == (Programs{}) {
		t.Fatal("the next release was not built, see above")
	}
	return nextPrograms
}

var (
	previous, next                 sync.Once
	previousPrograms, nextPrograms Programs
)

// built builds the program from a folder of sources, with its links, below bin of this module.
func built(t testing.TB, src, name string, flags ...string) Programs {
	t.Helper()
	root := filepath.Join(Root(t), "bin")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, name)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"build", "-trimpath"}, flags...)
	build := exec.Command("go", append(args, "-o", filepath.Join(dir, "clustermaster"),
		"./cmd/clustermaster")...)
	build.Dir, build.Env = src, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build in %s: %v\n%s", src, err, out)
	}
	for _, name := range []string{"salt-master", "salt", "salt-key", "salt-run"} {
		if err := os.Symlink("clustermaster", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return programs(dir)
}
