package gitfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"clustermaster/serve/fileserver"
	"clustermaster/value"
)

// TestLargeFileWithoutRoom asks for a file that the disk has no room for, as a minion does.
func TestLargeFileWithoutRoom(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"large": strings.Repeat("0", 1<<22), "small": "small"})
	r.commit("one")
	room, full, began := int64(1<<20), errors.New("full"), 0
	low := func() error {
		if began++; began > 3 {
			return full
		}
		return nil
	}
	s, log := open(t, Options{Room: func(n int64) error {
		if n > room {
			return full
		}
		return nil
	}, Low: func() error { return low() }}, "file://"+r.dir)
	s.all(t)
	files, err := fileserver.New(fileserver.Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	files.Use([]string{RoleFiles}, s)
	ask := func(cmd, path string, loc int64) (any, error) {
		t.Helper()
		return files.Serve(t.Context(), cmd, value.Map{{Key: "path", Value: path},
			{Key: "saltenv", Value: "base"}, {Key: "loc", Value: loc}})
	}
	for _, cmd := range []string{"_serve_file", "_file_hash", "_file_hash_and_stat"} {
		got, err := ask(cmd, "large", 0)
		want, _ := ask(cmd, "absent", 0)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v; of an absent file %v", cmd, got, err, want)
		}
		if small, err := ask(cmd, "small", 0); err != nil || reflect.DeepEqual(small, want) {
			t.Errorf("%s of a small file: %v, %v", cmd, small, err)
		}
	}
	if got, err := ask("_serve_file", "large", 1<<20); !errors.Is(err, fileserver.ErrAbsent) {
		t.Errorf("a later piece: %v, %v", got, err)
	}
	if n := strings.Count(log.String(), "is not served"); n != 1 || !strings.Contains(log.String(),
		"path=large size=4194304") {
		t.Errorf("it is said %d times: %s", n, log)
	}

	room, began = 1<<30, 0 // it fits, but others fill the disk meanwhile
	if got, err := ask("_file_hash", "large", 0); !errors.Is(err, full) {
		t.Errorf("on a disk that fills up: %v, %v", got, err)
	}
	low = func() error { return nil }
	left := 0
	_ = filepath.WalkDir(s.caches.folder, func(path string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".new-") {
			left++
		}
		return nil
	})
	if left > 0 {
		t.Errorf("%d parts of files are left", left)
	}
	if got, err := ask("_file_hash", "large", 0); err != nil || got == "" {
		t.Errorf("with room: %v, %v", got, err)
	}
}
