package daemon

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != fs.ModeDir|want {
				t.Errorf("%v: %s has mode %v, want %v (%v)", mode, name, info.Mode(), want, err)
			}
		}
	}
	var said bytes.Buffer
	closePki(&config.Options{PkiDir: "/proc/sys"}, slog.New(slog.NewTextHandler(&said, nil)))
	if !strings.Contains(said.String(), "option=pki_dir") {
		t.Errorf("it said %q", said.String())
	}
}
