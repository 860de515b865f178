package unixsock

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// Sockets are born private, whatever the umask, and their birth changes no file of another
// goroutine.
func TestListenAtOnce(t *testing.T) {
	dir := t.TempDir()
	var both sync.WaitGroup
	for n := range 8 {
		both.Go(func() {
			for i := range 50 {
				path := filepath.Join(dir, strconv.Itoa(n))
				ln, err := Listen(path)
				if err != nil {
					t.Error(err)
					return
				}
				if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != 0o600 {
					t.Errorf("socket mode %v, %v; want 0600", st.Mode(), err)
				}
				ln.Close()
				other := filepath.Join(dir, strconv.Itoa(n)+"-"+strconv.Itoa(i))
				if err := os.Mkdir(other, 0o700); err != nil {
					t.Error(err)
				}
				if st, err := os.Stat(other); err != nil || st.Mode().Perm() != 0o700 {
					t.Errorf("another folder has the mode %v, %v; want 0700", st.Mode(), err)
				}
			}
		})
	}
	both.Wait()
}
