package migrate

import (
	"errors"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"clustermaster/config"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// same compares the text of a file, or of what a link leads to.
func same(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s has %q, want %q: %v", path, b, want, err)
	}
}

func leads(t *testing.T, path, want string) {
	t.Helper()
	if to, err := os.Readlink(path); err != nil || to != want {
		t.Errorf("%s leads to %q, want %q: %v", path, to, want, err)
	}
}

// TestLinkedFolders keeps and restores a pki_dir that is a link, with links in it.
func TestLinkedFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real, pki := filepath.Join(dir, "real"), filepath.Join(dir, "pki")
	put(t, filepath.Join(real, "box.pem"), "key")
	put(t, filepath.Join(real, "minions", "web1"), "web1's")
	put(t, filepath.Join(real, "plain"), "plain")
	put(t, filepath.Join(dir, "etc.real", "master"), "id: box\n")
	link(t, "real", pki)
	link(t, filepath.Join(pki, "box.pem"), filepath.Join(real, "master.pem"))
	link(t, "nowhere", filepath.Join(real, "dangling"))
	link(t, "etc.real", filepath.Join(dir, "etc"))
	m := &migration{out: io.Discard}
	j := &journal{Conf: filepath.Join(dir, "etc"), Pki: pki, dir: filepath.Join(dir, "journal")}
	o := &config.Options{PkiDir: pki}
	if err := m.keep(j, o); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(j.dir, "before")
	same(t, filepath.Join(kept, "conf", "master"), "id: box\n")
	same(t, filepath.Join(kept, "pki", "minions", "web1"), "web1's")
	leads(t, filepath.Join(kept, "pki", "master.pem"), filepath.Join(pki, "box.pem"))
	leads(t, filepath.Join(kept, "pki", "dangling"), "nowhere")

	// A file in the place of a link, and the other way round.
	for _, name := range []string{"master.pem", "plain"} {
		if err := os.Remove(filepath.Join(real, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(real, "master.pem"), "other")
	put(t, filepath.Join(real, "minions", "web1"), "other")
	link(t, "box.pem", filepath.Join(real, "plain"))
	if err := copyTree(filepath.Join(kept, "pki"), pki); err != nil {
		t.Fatal(err)
	}
	leads(t, pki, "real")
	leads(t, filepath.Join(pki, "master.pem"), filepath.Join(pki, "box.pem"))
	same(t, filepath.Join(pki, "box.pem"), "key")
	same(t, filepath.Join(pki, "plain"), "plain")
	same(t, filepath.Join(pki, "minions", "web1"), "web1's")

	// The earlier key alone, whose link leads to a file in the same folder.
	if err := m.masterKey(j, o); err != nil {
		t.Fatal(err)
	}
	leads(t, filepath.Join(pki, "master.pem"), filepath.Join(pki, "box.pem"))
	same(t, filepath.Join(pki, "box.pem"), "key")
}

// TestPutBackAfterCopyError starts Salt's master although its former files can't be copied, says so
// and keeps the journal.
func TestPutBackAfterCopyError(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // in the place of Salt's master
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	m := &migration{flags: flags{undo: "touch " + started, wait: 10}, out: io.Discard}
	j := &journal{Pki: filepath.Join(dir, "pki"), Added: filepath.Join(dir, "added"), Stopped: true,
		dir: filepath.Join(dir, "journal")}
	o := &config.Options{PkiDir: j.Pki, CacheDir: filepath.Join(dir, "cache"), SockDir: dir,
		PidFile: filepath.Join(dir, "pid"), Interface: "127.0.0.1",
		RetPort: ln.Addr().(*net.TCPAddr).Port}
	put(t, filepath.Join(j.dir, "before", "pki", "minions", "web1"), "key")
	put(t, filepath.Join(j.Pki, "minions"), "a file where the folder was")
	if err := m.putBack(t.Context(), j, o); err == nil ||
		!strings.Contains(err.Error(), "it runs, without all of its former files") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(started); err != nil {
		t.Errorf("Salt's master was not started: %v", err)
	}
	if _, err := os.Stat(j.dir); err != nil {
		t.Errorf("the journal is gone: %v", err)
	}
	if err := os.Remove(filepath.Join(j.Pki, "minions")); err != nil {
		t.Fatal(err)
	}
	if err := m.putBack(t.Context(), j, o); err != nil {
		t.Errorf("without an error: %v", err)
	}
	same(t, filepath.Join(j.Pki, "minions", "web1"), "key")
}

// TestLinkedPillar finds the functions of templates below a link.
func TestLinkedPillar(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "real", "a.sls"), "a: {{ salt['no.such']() }}\n")
	pillar := filepath.Join(dir, "pillar")
	link(t, "real", pillar)
	p := &Plan{options: &config.Options{
		PillarRoots: config.Roots{{Name: "base", Dirs: []string{pillar}}}}}
	p.modules(nil)
	if len(p.Modules) != 1 || p.Modules[0].Path != filepath.Join(pillar, "a.sls") {
		t.Errorf("found %v", p.Modules)
	}
}

// TestAddedFileIsForTheUser lets the master's user read what apply writes, whatever the umask.
func TestAddedFileIsForTheUser(t *testing.T) {
	t.Parallel()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	path := filepath.Join(t.TempDir(), "added")
	put(t, path, "cluster_id: c\n")
	if err := letRead(path, u.Username); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	if got := strconv.Itoa(int(owner.Gid)); got != u.Gid || owner.Uid != 0 || info.Mode().Perm() != 0o640 {
		t.Errorf("group %s, mode %v; want %s, 0640", got, info.Mode(), u.Gid)
	}
	if err := letRead(path, "no-such-user"); err == nil {
		t.Error("an unknown user")
	}
}
