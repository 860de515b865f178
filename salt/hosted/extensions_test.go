package hosted

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestExtensionsDigest: equal trees have one digest, whatever their times, links and compiled
// files; each change of a name or a byte has another.
func TestExtensionsDigest(t *testing.T) {
	t.Parallel()
	put := func(dir, name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	var both [2]*Extensions
	for i, dir := range dirs {
		both[i] = NewExtensions(filepath.Join(dir, "ext"))
		if got := both[i].Digest(); got != "" {
			t.Errorf("before the first look: %q", got)
		}
		both[i].Look()
		if got := both[i].Digest(); got != NoExtensions {
			t.Errorf("without a folder: %q", got)
		}
	}
	same := func(want bool, what string) {
		t.Helper()
		both[0].Look()
		both[1].Look()
		a, b := both[0].Digest(), both[1].Digest()
		if (a == b) != want || len(a) != 16 {
			t.Errorf("%s: digests %q and %q", what, a, b)
		}
	}
	put(dirs[0], "ext/runners/a.py", "one")
	same(false, "a file that one lacks")
	put(dirs[1], "elsewhere/a.py", "one")
	if err := errors.Join(os.MkdirAll(filepath.Join(dirs[1], "ext", "sdb"), 0o755),
		os.Symlink("../elsewhere", filepath.Join(dirs[1], "ext", "runners"))); err != nil {
		t.Fatal(err)
	}
	put(dirs[1], "ext/runners/__pycache__/a.cpython-311.pyc", "compiled")
	same(true, "a link, an empty folder and compiled files")
	put(dirs[1], "elsewhere/a.py", "two")
	same(false, "a file of the same length")
	put(dirs[0], "ext/runners/a.py", "two")
	same(true, "the same again")
	if err := os.Rename(filepath.Join(dirs[1], "ext/runners/a.py"),
		filepath.Join(dirs[1], "ext/runners/b.py")); err != nil {
		t.Fatal(err)
	}
	same(false, "another name")
	if err := os.Symlink(".", filepath.Join(dirs[1], "ext", "round")); err != nil {
		t.Fatal(err)
	}
	both[1].Look() // ends
}
