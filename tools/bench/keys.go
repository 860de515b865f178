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

	"clustermaster/wire"
)

// keySize is of minions' keys, Salt's default.
const keySize = 2048

// poolKeys is the number of RSA keys that minions share.
const poolKeys = 4

// keyPair is a minion's key with its token. Minions share a few, for making one takes a
// good part of a second; a master cannot gain by it, it looks keys up by id.
type keyPair struct {
	private *wire.PrivateKey
	tok     []byte
}

func keyPairOf(private *wire.PrivateKey) (*keyPair, error) {
	tok, err := wire.TokenSalt(private)
	return &keyPair{private: private, tok: tok}, err
}

func newKeys(n int) ([]*keyPair, error) {
	keys := make([]*keyPair, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			private, err := wire.GeneratePrivateKey(keySize)
			if err == nil {
				keys[i], err = keyPairOf(private)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make minion keys: %w", err)
	}
	return keys, nil
}

// keyFile is where the keys of --master runs are kept: a master that has once
// accepted bench1 refuses it with another key.
func keyFile() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the minions' keys: %w; give --keys FILE", err)
	}
	return filepath.Join(dir, "clustermaster", "bench-keys.pem"), nil
}

// loadKeys reads the pool from a file, which it makes if there is none.
func loadKeys(path string) ([]*keyPair, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKeys(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read minion keys: %w", err)
	}
	var keys []*keyPair
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		private, err := wire.ParsePrivateKey(pem.EncodeToMemory(block), "")
		if err != nil {
			return nil, fmt.Errorf("read minion keys of %s: %w", path, err)
		}
		k, err := keyPairOf(private)
		if err != nil {
			return nil, fmt.Errorf("read minion keys of %s: %w", path, err)
		}
		keys = append(keys, k)
	}
	if len(keys) != poolKeys {
		return nil,
			fmt.Errorf("read minion keys of %s: %d keys, want %d; remove the file to have new ones",
				path, len(keys), poolKeys)
	}
	return keys, nil
}

func makeKeys(path string) ([]*keyPair, error) {
	keys, err := newKeys(poolKeys)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, k := range keys {
		text.Write(k.private.PEM())
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		err = os.WriteFile(path, text.Bytes(), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("keep minion keys: %w", err)
	}
	return keys, nil
}
