package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"clustermaster/tools/simminion"
	"clustermaster/wire"
)

// keySize is the size of the minions' key, Salt's default.
const keySize = 2048

// newKey makes the key of all minions. They share it, because making one takes a good part of a
// second; this does not help a master, which looks keys up by id.
func newKey() (*simminion.Key, error) { return simminion.NewKey(keySize) }

// keptKey reads the minions' key from a file, which it makes if needed; "" means one below the
// user's cache folder. Runs with --master keep their key, because a master that has accepted bench1
// refuses it with another one.
func keptKey(path string) (*simminion.Key, error) {
	if path == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a place for the minions' key: %w; give --keys FILE", err)
		}
		path = filepath.Join(dir, "clustermaster", "bench-key.pem")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := newKey()
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.WriteFile(path, key.Private.PEM(), 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("keep the minions' key: %w", err)
		}
		return key, nil
	}
	var private *wire.PrivateKey
	if err == nil {
		private, err = wire.ParsePrivateKey(text, "")
	}
	if err != nil {
		return nil, fmt.Errorf("read the minions' key of %s: %w", path, err)
	}
	return simminion.KeyOf(private)
}
