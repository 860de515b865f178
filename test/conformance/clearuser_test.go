package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/wire"
)

// TestKeyFiles: both masters write the same files for users of the system. Only those users can
// read them.
func TestKeyFiles(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: files are given to another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			m := newMaster(t, k, variant{name: "files", options: `enable_clear_commands: True
auto_accept: True
publisher_acl: {nobody: ['test.*'], nosuchuser: ['.*'], 'nobod[y]': [test.version]}
`})
			// like /var/cache and /var/cache/salt
			for _, dir := range []string{filepath.Dir(m.Dir), m.Dir} {
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cache := m.path("cache")
			if err := os.MkdirAll(cache, 0o750); err != nil { // as Salt's packages make it
				t.Fatal(err)
			}
			m.start(t)
			m.signIn(t, "web-a", 3)
			e2e.Eventually(t, 20*time.Second, "root and nobody have keys",
				func() error { return errors.Join(m.hasKey("root"), m.hasKey("nobody")) })
			files, err := filepath.Glob(filepath.Join(cache, ".*_key"))
			if err != nil ||
				fmt.Sprint(files) != fmt.Sprint([]string{filepath.Join(cache, ".nobody_key"),
					filepath.Join(cache, ".root_key")}) {
				t.Errorf("files %v, %v", files, err)
			}
			for name, owner := range map[string]uint32{"root": 0, "nobody": uint32(uid)} {
				info, err := os.Lstat(filepath.Join(cache, "."+name+"_key"))
				if err != nil {
					t.Fatal(err)
				}
				if got := info.Sys().(*syscall.Stat_t).Uid; info.Mode() != 0o600 || got != owner ||
					info.Size() != 76 {
					t.Errorf("%s: mode %v, owner %d, %d bytes", name, info.Mode(), got, info.Size())
				}
			}
			if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o751 {
				t.Errorf("cachedir: %v, %v", info.Mode(), err)
			}
			// The key that the user reads allows what the user may do.
			read := func(owner string) ([]byte, error) {
				cmd := exec.Command("cat", filepath.Join(cache, "."+owner+"_key"))
				cmd.Dir = "/"
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
				return cmd.Output()
			}
			if b, err := read("root"); err == nil {
				t.Errorf("nobody reads root's key of %d bytes", len(b))
			}
			key, err := read("nobody")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.ParseKey(string(key)); err != nil {
				t.Error(err)
			}
			for fun, want := range map[string]string{
				"test.ping": "{enc: clear, load: {jid: JID, minions: [web-a], missing: []}}",
				"cmd.run":   "{error: {message: Authorization error occurred., name: AuthorizationError}}",
			} {
				if got := plainly(t, m, unpack(t,
					m.clear(t, 3, jobOf("user", "nobody", "key", string(key), "fun",
						fun)))); got != want {
					t.Errorf("%s: %s", fun, got)
				}
			}
			m.Stop(t, 10*time.Second)
			before := string(key)
			m.start(t)
			if after := string(readFile(t, filepath.Join(cache, ".nobody_key"))); after != before {
				t.Error("the key is another one after a restart")
			}
		})
	}
}
