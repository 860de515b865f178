package hosted

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSwitch puts staged folders in place: one that was there, and a new one. A folder that is a
// link is not replaced, and nothing of a stage stays.
func TestSwitch(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(name, want string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, name))
		if got := string(b); got != want || (want == "") != (err != nil) {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
	put("ext/runners/a.py", "old")
	put("ext/runners/__pycache__/a.pyc", "compiled")
	put("ext/sdb/kept.py", "kept")
	put("elsewhere/m.py", "linked")
	if err := os.Symlink("../elsewhere", filepath.Join(root, "ext/modules")); err != nil {
		t.Fatal(err)
	}
	ext := filepath.Join(root, "ext")
	looks := 0
	f := New(Deps{Folders: Folders{ExtensionModules: ext}, Changed: func() { looks++ },
		Find: func() (string, error) { return "", errors.New("there is no Python") },
		Log:  slog.New(slog.DiscardHandler)})
	begin := func(id string, kinds ...string) {
		t.Helper()
		dir := filepath.Join(ext, stagedIn, id)
		if err := errors.Join(os.MkdirAll(dir, 0o700), copyKinds(ext, dir)); err != nil {
			t.Fatal(err)
		}
		if f.staged.by == nil {
			f.staged.by = map[string]stage{}
		}
		f.staged.by[id] = stage{dir: dir, kinds: kinds, fun: "saltutil.sync_all"}
	}

	begin("one", "runners", "tops")
	is("ext/.staged/one/runners/a.py", "old")
	is("ext/.staged/one/runners/__pycache__/a.pyc", "")
	put("ext/.staged/one/runners/a.py", "new")
	put("ext/.staged/one/tops/t.py", "top")
	put("ext/.staged/one/sdb/kept.py", "not of this function")
	if err := f.Switch(t.Context(), "one"); err != nil || looks != 1 {
		t.Errorf("switch: %v, looked %d times", err, looks)
	}
	is("ext/runners/a.py", "new")
	is("ext/tops/t.py", "top")
	is("ext/sdb/kept.py", "kept")
	if err := f.Switch(t.Context(), "one"); err == nil {
		t.Error("a stage is used twice")
	}

	begin("two", "modules")
	if err := f.Switch(t.Context(), "two"); err == nil ||
		!strings.Contains(err.Error(), "there is no Python") { // with it the function runs again
		t.Errorf("a folder that is a link: %v", err)
	}
	is("ext/modules/m.py", "linked")

	begin("three", "runners")
	put("ext/.staged/three/runners/a.py", "newer")
	f.Drop("three")
	f.Drop("three")
	is("ext/runners/a.py", "new")
	if _, err := os.Lstat(filepath.Join(ext, stagedIn)); err == nil {
		t.Error("copies stay that nobody uses")
	}
	put("ext/.staged/before/x.py", "of a process that was killed")
	if _, err := f.Stage(t.Context(), "four", "saltutil.sync_all", nil); err == nil ||
		!strings.Contains(err.Error(), "there is no Python") {
		t.Errorf("stage: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(ext, stagedIn)); err == nil {
		t.Error("copies of a process that was killed stay")
	}
}
