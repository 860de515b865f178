package fileserver

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"clustermaster/value"
)

// TestHashOfOneFileAtOnce lets many wait for the hash of a file: the first works it out for all.
func TestHashOfOneFileAtOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, "f")
	write(t, path, "content")
	synctest.Test(t, func(t *testing.T) {
		long := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Roots: []Env{{"base", []string{root}}}, FollowSymlinks: true}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range cap(s.hashing) {
			s.hashing <- struct{}{}
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				reply, err := s.Serve(t.Context(), "_file_hash",
					value.Map{{Key: "path", Value: "f"}, {Key: "saltenv", Value: "base"}})
				if sum, _ := reply.(value.Map).Get("hsum"); err != nil || len(sum.(string)) != 64 {
					t.Errorf("got %v, %v", reply, err)
				}
			})
		}
		synctest.Wait()
		<-s.hashing
		all.Wait()
		if n := testutil.ToFloat64(s.hashed); n != 1 {
			t.Errorf("it was hashed %v times", n)
		}
	})
}
