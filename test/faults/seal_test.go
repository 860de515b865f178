package faults

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/test/e2e"
	"clustermaster/transport/peer"
)

// TestSealedDisks: with seal_key no file below cachedir contains a secret of the cluster, in a
// founder, in a joiner and after restarts. A copied disk opens only with its own key.
func TestSealedDisks(t *testing.T) {
	t.Parallel()
	word := "pillar password " + rand.Text()
	u := &used{cluster: prepareCluster(t, 3, "pillar_opts: True\nsharedsecret: shared "+rand.Text()+
		"\n"), t: t, secret: secrets{}, told: map[string]string{}}
	keyFile := func(m *e2e.Master) string { return filepath.Join(m.ConfDir, "seal.key") }
	for _, m := range u.Masters {
		if err := os.WriteFile(keyFile(m), []byte(rand.Text()+rand.Text()), 0o400); err != nil {
			t.Fatal(err)
		}
		source := "file:" + keyFile(m)
		if m == u.Masters[1] {
			source = "'command: cat " + keyFile(m) + "'"
		}
		m.Configure(t, m.Config(t)+"seal_key: "+source+"\n")
		for name, text := range map[string]string{"pillar/top.sls": "base:\n  '*': [site]\n",
			"pillar/site.sls": "password: " + word + "\n"} {
			if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	u.StartMasters(t)
	a, b := u.Masters[0], u.Masters[1]
	web := accepted(t, a, "web")
	u.signIn(web, a)
	u.asks(web, b)
	succeeds(t, a.Salt(t, "--async", "web", "test.arg", word))
	u.save(a, "first.backup", "typed "+rand.Text())
	u.run(a, "", "cluster.rotate_keys")
	u.signIn(web, b)
	for _, m := range u.Masters {
		m.Stop(t, healed)
	}
	u.StartMasters(t)
	u.signIn(web, a)
	// What is written now is in the ring store's log uncompressed, unlike in its tables.
	u.run(a, "", "cache.store", "site", "word", word)
	u.secret.text("pillar", word)
	u.secret.bytes("join key", peer.JoinKey(u.Secret, "e2e"))
	for _, m := range u.Masters {
		u.sealed(m)
	}

	// A stolen disk: another key, or none.
	thief := u.Masters[2]
	thief.Kill(t)
	refused := func(why string) {
		t.Helper()
		thief.Run(t)
		if code, err := thief.Wait(healed); err != nil || code == 0 {
			t.Errorf("%s: exit code %d, %v", why, code, err)
		}
		if text, err := os.ReadFile(thief.Log); err != nil || !strings.Contains(string(text), why) {
			t.Errorf("the log does not say %q: %v", why, err)
		}
	}
	config := thief.Config(t)
	thief.Configure(t, strings.Replace(config, "seal_key:", "#", 1))
	refused("is sealed, but seal_key is not set")
	if err := os.WriteFile(filepath.Join(thief.ConfDir, "other.key"),
		[]byte(rand.Text()+rand.Text()), 0o400); err != nil {
		t.Fatal(err)
	}
	thief.Configure(t, strings.Replace(config, "seal.key", "other.key", 1))
	refused("was sealed with a key other than")
	thief.Configure(t, config)
	thief.Run(t)
	e2e.Eventually(t, healed, "it goes on with its own key", thief.Ready)
}

// sealed looks for the secrets in every file below a master's cachedir.
func (u *used) sealed(m *e2e.Master) {
	u.t.Helper()
	files := 0
	err := filepath.WalkDir(filepath.Join(m.Dir, "cache"),
		func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return stays(err)
			case path == embedded(m):
				return fs.SkipDir
			case !d.Type().IsRegular():
				return nil
			}
			files++
			b, err := os.ReadFile(path)
			if names := u.secret.found(string(b)); len(names) > 0 {
				u.t.Errorf("%s has %v", path, names)
			}
			return stays(err)
		})
	if err != nil || files < 10 {
		u.t.Error(fmt.Errorf("%d files of %s: %w", files, m.ID, err))
	}
}
