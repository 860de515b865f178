package daemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"clustermaster/config"
)

// TestClosePki: like Salt's master, ours leaves its folders of keys to its user and group alone,
// also if they exist. A folder of somebody else keeps its mode, and the log says so.
func TestClosePki(t *testing.T) {
	t.Parallel()
	modes := map[fs.FileMode]fs.FileMode{0o777: 0o700, 0o755: 0o700, 0o770: 0o700, 0o700: 0o700,
		0o750: 0o750, fs.ModeSticky | 0o777: 0o700}
	for mode, want := range modes {
		dir := t.TempDir()
		o := &config.Options{PkiDir: filepath.Join(dir, "link"), CacheDir: filepath.Join(dir, "cache"),
			SockDir: filepath.Join(dir, "sock"), ClusterPkiDir: filepath.Join(dir, "cluster")}
		if err := os.Symlink("pki", o.PkiDir); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"pki", "cluster", "cache"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		closePki(o, slog.New(slog.DiscardHandler))
		for name, want := range map[string]fs.FileMode{"pki": want, "cluster": want, "cache": mode} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != fs.ModeDir|want {
				t.Errorf("%v: %s has mode %v, want %v", mode, name, info.Mode(), want)
			}
		}
	}
	var said bytes.Buffer
	closePki(&config.Options{PkiDir: "/proc/sys"}, slog.New(slog.NewTextHandler(&said, nil)))
	if !strings.Contains(said.String(), "option=pki_dir") {
		t.Errorf("it said %q", said.String())
	}
}

// TestGiveLooksAtTheFile: the user of a folder may swap its entries while root walks over it.
func TestGiveLooksAtTheFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files to another user")
	}
	dir := t.TempDir()
	own, other := filepath.Join(dir, "tree", "own"), filepath.Join(dir, "other")
	linked := filepath.Join(dir, "tree", "linked")
	err := errors.Join(os.Mkdir(filepath.Dir(own), 0o700), os.WriteFile(own, nil, 0o600),
		os.WriteFile(other, nil, 0o600), os.Link(other, linked))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var swapping sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	swapping.Go(func() {
		for ctx.Err() == nil {
			err := unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, linked, unix.RENAME_EXCHANGE)
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer swapping.Wait()
	defer stop()
	given := false
	for range 2000 {
		if err := (tree{path: filepath.Dir(own)}).give(identity{uid: 65534, gid: 65534}, false); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(other); err != nil {
			t.Fatal(err)
		} else if uid, gid := ownerOf(info); uid != 0 || gid != 0 {
			t.Fatalf("a file with a name elsewhere belongs to %d:%d", uid, gid)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := ownerOf(info)
		given = given || uid == 65534
		if err := f.Chown(0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if !given {
		t.Error("the user's own file was never given")
	}
}
