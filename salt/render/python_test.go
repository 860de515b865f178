package render

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLargeUnneeded: the library leaves alone the files that writePython makes without contents,
// and no other large file is written to be removed.
func TestLargeUnneeded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "python")
	if err := writePython(dir); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || needed(rel) {
			return err
		}
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		taken := st.Sys().(*syscall.Stat_t).Blocks * 512 // bytes
		if taken > 5e6 {
			t.Errorf("%s, which nobody needs, is written: %d bytes; set its size in largeUnneeded",
				rel, st.Size())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range largeUnneeded {
		if needed(name) {
			t.Errorf("%s is needed", name)
		}
	}
}
