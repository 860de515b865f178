package fileserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermaster/value"
)

// A kept content is served while the file is the one that was read, whatever its times are set to.
func TestKeptContentsFollowTheDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, "f")
	s, err := New(Options{Roots: []Env{{"base", []string{root}}}, FollowSymlinks: true,
		BufferSize: 4}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	piece := func(loc int64) string {
		t.Helper()
		reply, err := s.Serve(t.Context(), "_serve_file",
			value.Map{{Key: "path", Value: "f"}, {Key: "saltenv", Value: "base"},
				{Key: "loc", Value: loc}})
		if err != nil {
			t.Fatal(err)
		}
		data, _ := reply.(value.Map).Get("data")
		return string(data.([]byte))
	}
	long := time.Now().Add(-time.Hour)
	change := func(text string) {
		write(t, path, text)
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	change("first")
	if got := piece(0); got != "firs" || s.contents.bytes != 0 {
		t.Errorf("got %q; %d bytes kept of a file that may still change unseen", got,
			s.contents.bytes)
	}
	time.Sleep(settled + 100*time.Millisecond)
	for range 2 { // read, then kept
		if got := piece(0) + "|" + piece(4) + "|" + piece(5) + "|" +
			piece(1<<40); got != "firs|t||" {
			t.Errorf("pieces %q", got)
		}
	}
	if s.contents.bytes != 5 {
		t.Errorf("%d bytes kept", s.contents.bytes)
	}
	change("other")
	if got := piece(0); got != "othe" {
		t.Errorf("changed, with size and time as before: %q", got)
	}
	change("a longer one")
	if got := piece(8); got != " one" {
		t.Errorf("changed: %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reply, err := s.Serve(t.Context(), "_serve_file",
		value.Map{{Key: "path", Value: "f"}, {Key: "saltenv", Value: "base"},
			{Key: "loc", Value: int64(0)}})
	if dest, _ := reply.(value.Map).Get("dest"); err != nil || dest != "" {
		t.Errorf("a file that is gone: %v, %v", reply, err)
	}
}

func TestKeptContentsAreBounded(t *testing.T) {
	t.Parallel()
	var c contents
	for i := range 3 * maxKept / maxKeptFile {
		c.put(fmt.Sprint(i%100), marks{ino: uint64(i)}, make([]byte, maxKeptFile-i%7))
	}
	sum := 0
	for _, kept := range c.files {
		sum += len(kept.data)
	}
	if sum != c.bytes || sum > maxKept || sum < maxKept-2*maxKeptFile {
		t.Errorf("%d bytes in %d files, counted %d", sum, len(c.files), c.bytes)
	}
}
