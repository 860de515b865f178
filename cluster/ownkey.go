package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"clustermaster/cluster/fsm"
	"clustermaster/store/durable"
	"clustermaster/wire"
)

// OwnKey keeps the key pair of a stand-alone master as master.pem and master.pub in pki_dir, where
// Salt's masters have it: minions know no other key, and whoever clears cachedir, which is only a
// cache in Salt, does not expect to lose it. A cluster needs no such files: its members have the
// key.
type OwnKey struct {
	Dir        string // pki_dir
	Pass       string // option key_pass, which seals the private key; "": it is not sealed
	PublicOnly bool   // with seal_key no private key may lie there
	Key        func() *wire.PrivateKey
	Log        *slog.Logger

	was string // the public key at the last change that concerned keys
}

// Follow handles a change; register it with Node.OnApply. A backup that is restored brings another
// key.
func (k *OwnKey) Follow(_ uint64, c fsm.Change) {
	if !c.Restored && !c.Secrets {
		return
	}
	if err := k.write(); err != nil {
		k.Log.Error("the master's key is not in pki_dir; whoever deletes cachedir deletes it for good", "dir",
			k.Dir, "err", err)
	}
}

// write makes the files, or replaces those of the key that this master had before, unless there are
// any of another key.
func (k *OwnKey) write() error {
	key := k.Key()
	if key == nil { // not founded yet
		return nil
	}
	public, was := key.Public().Text(), k.was
	k.was = public
	private := filepath.Join(k.Dir, "master.pem")
	b, err := os.ReadFile(private)
	if err == nil {
		have, err := wire.ParsePrivateKey(b, k.Pass)
		if err != nil || have.Public().Text() == public || have.Public().Text() != was {
			return nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err = os.ReadFile(publicPart(private))
	if have := strings.TrimSpace(string(b)); err == nil && have != strings.TrimSpace(public) &&
		have != strings.TrimSpace(was) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if k.PublicOnly {
		return writeKeyFile(publicPart(private), []byte(public+"\n"), 0o644)
	}
	return WriteKeyPair(private, key, k.Pass)
}

// WriteKeyPair writes NAME.pem, sealed with a passphrase unless that is "", and NAME.pub, as Salt
// does. The private key comes last: with it, both are there.
func WriteKeyPair(private string, key *wire.PrivateKey, pass string) error {
	text, err := key.SealedPEM(pass)
	if err != nil {
		return fmt.Errorf("write %s: %w", private, err)
	}
	if err := writeKeyFile(publicPart(private), []byte(key.Public().Text()+"\n"), 0o644); err != nil {
		return err
	}
	return writeKeyFile(private, text, 0o400)
}

func publicPart(private string) string { return strings.TrimSuffix(private, ".pem") + ".pub" }

func writeKeyFile(path string, text []byte, mode os.FileMode) error {
	if err := durable.WriteFile(path, text); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
