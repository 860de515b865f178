package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

// TestOwnKeyFollowsARestore writes the files of a new key over those of the one before it.
func TestOwnKeyFollowsARestore(t *testing.T) {
	t.Parallel()
	for _, sealed := range []bool{false, true} {
		dir := t.TempDir()
		var key *wire.PrivateKey
		k := &OwnKey{Dir: dir, PublicOnly: sealed, Key: func() *wire.PrivateKey { return key }}
		for range 2 {
			var err error
			if key, err = wire.GeneratePrivateKey(2048); err != nil {
				t.Fatal(err)
			}
			k.Follow(1, fsm.Change{Restored: true})
			b, err := os.ReadFile(filepath.Join(dir, "master.pub"))
			if string(b) != key.Public().Text()+"\n" || err != nil {
				t.Errorf("master.pub is of another key, %v", err)
			}
			b, err = os.ReadFile(filepath.Join(dir, "master.pem"))
			if sealed != errors.Is(err, fs.ErrNotExist) || !sealed && string(b) != string(key.PEM()) {
				t.Errorf("sealed %v: master.pem is of another key, %v", sealed, err)
			}
		}
	}
}

// TestOwnKey writes the key of a stand-alone master, but never beside another master's.
func TestOwnKey(t *testing.T) {
	t.Parallel()
	var keys [2]*wire.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = wire.GeneratePrivateKey(2048); err != nil {
			t.Fatal(err)
		}
	}
	key, other := keys[0], keys[1]
	public := func(k *wire.PrivateKey) string { return k.Public().Text() + "\n" }
	for name, c := range map[string]struct {
		sealed          bool
		pass            string
		hadPem, hadPub  string
		wantPem, wantOf *wire.PrivateKey // the keys of master.pem and master.pub; nil: no such file
	}{
		"new":                    {wantPem: key, wantOf: key},
		"with key_pass":          {pass: "abc", wantPem: key, wantOf: key},
		"with seal_key":          {sealed: true, wantOf: key},
		"private part there":     {hadPem: string(key.PEM()), wantPem: key},
		"public part there":      {hadPub: public(key), wantPem: key, wantOf: key},
		"another's private part": {hadPem: string(other.PEM()), wantPem: other},
		"another's public part":  {hadPub: public(other), wantOf: other},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			pem, pub := filepath.Join(dir, "master.pem"), filepath.Join(dir, "master.pub")
			for path, text := range map[string]string{pem: c.hadPem, pub: c.hadPub} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o400); err != nil {
					t.Fatal(err)
				}
			}
			k := &OwnKey{Dir: dir, Pass: c.pass, PublicOnly: c.sealed,
				Key: func() *wire.PrivateKey { return key }}
			k.Follow(1, fsm.Change{Ring: true})
			if _, err := os.Stat(pem); c.hadPem == "" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("any change writes the key: %v", err)
			}
			k.Follow(2, fsm.Change{Secrets: true})
			got, err := os.ReadFile(pem)
			if have := err == nil; have != (c.wantPem != nil) {
				t.Fatalf("master.pem: %v", err)
			} else if have {
				read, err := wire.ParsePrivateKey(got, c.pass)
				if err != nil || public(read) != public(c.wantPem) {
					t.Errorf("master.pem is of another key, %v", err)
				}
				info, err := os.Stat(pem)
				if err != nil || info.Mode().Perm() != 0o400 {
					t.Errorf("master.pem has mode %v, %v", info.Mode(), err)
				}
			}
			if _, err := wire.ParsePrivateKey(got, ""); c.pass != "" && err == nil {
				t.Error("master.pem is not sealed with key_pass")
			}
			got, err = os.ReadFile(pub)
			if have := err == nil; have != (c.wantOf != nil) || have && string(got) != public(c.wantOf) {
				t.Errorf("master.pub is %q, %v", got, err)
			}
		})
	}
}
