package bench

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"clustermaster/tools/simminion"
	"clustermaster/wire"
)

// keySize is the size of minions' keys, Salt's default.
const keySize = 2048

// poolKeys is the number of RSA keys that minions share.
const poolKeys = 4

// newKeys makes keys. Minions share a few, because making one takes a good part of a second; this
// does not help a master, which looks keys up by id.
func newKeys(n int) ([]*simminion.Key, error) {
	keys := make([]*simminion.Key, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() { keys[i], errs[i] = simminion.NewKey(keySize) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make minion keys: %w", err)
	}
	return keys, nil
}

// loadKeys reads the keys from a file, which it makes if needed; "" means one below the user's
// cache folder. Runs with --master keep their keys, because a master that has accepted bench1
// refuses it with another key.
func loadKeys(path string) ([]*simminion.Key, error) {
	if path == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a place for the minions' keys: %w; give --keys FILE", err)
		}
		path = filepath.Join(dir, "clustermaster", "bench-keys.pem")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKeys(path)
	}
	var keys []*simminion.Key
	for block, rest := pem.Decode(text); block != nil && err == nil; block, rest = pem.Decode(rest) {
		var private *wire.PrivateKey
		if private, err = wire.ParsePrivateKey(pem.EncodeToMemory(block), ""); err == nil {
			var k *simminion.Key
			k, err = simminion.KeyOf(private)
			keys = append(keys, k)
		}
	}
	if err == nil && len(keys) != poolKeys {
		err = fmt.Errorf("%d keys, want %d; remove the file to have new ones", len(keys), poolKeys)
	}
	if err != nil {
		return nil, fmt.Errorf("read minion keys of %s: %w", path, err)
	}
	return keys, nil
}

func makeKeys(path string) ([]*simminion.Key, error) {
	keys, err := newKeys(poolKeys)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, k := range keys {
		text.Write(k.Private.PEM())
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		err = os.WriteFile(path, text.Bytes(), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("keep minion keys: %w", err)
	}
	return keys, nil
}
