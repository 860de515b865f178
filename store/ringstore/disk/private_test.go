package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// New files are 0600 whatever the umask is, and so are those of an older store once it is opened.
func TestFilesArePrivate(t *testing.T) { // not parallel: the umask is the process's
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "ring")
	for range 2 {
		d, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		// An open store removes old files, also while they are looked at.
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		n := 0
		err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			n++
			st, err := e.Info()
			if err == nil && st.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", e.Name(), st.Mode())
			}
			return os.Chmod(path, 0o666) // as an older store's are, for the second round
		})
		if err != nil || n < 4 {
			t.Errorf("%d files, %v", n, err)
		}
	}
}
