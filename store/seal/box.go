package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/crypto/chacha20poly1305"

	"clustermaster/store/durable"
)

// ErrOpen means that a value was changed or cut, or was sealed with another key or for another
// place.
var ErrOpen = errors.New("does not open: it is damaged, or was sealed with another key")

// Box seals small values of one purpose with XChaCha20-Poly1305 under random nonces. A nil Box
// leaves values as they are.
type Box struct{ aead cipher.AEAD }

// Box returns the box of a purpose.
func (k *Key) Box(purpose string) *Box {
	if k == nil {
		return nil
	}
	aead, err := chacha20poly1305.NewX(k.Derive(purpose, nil))
	if err != nil {
		panic(err) // only for keys of another length
	}
	return &Box{aead}
}

// Seal returns nonce and ciphertext. The value is bound to its place, for example its index; the
// place is not stored.
func (b *Box) Seal(plain, place []byte) []byte {
	if b == nil {
		return plain
	}
	nonce := make([]byte, b.aead.NonceSize(), b.aead.NonceSize()+len(plain)+b.aead.Overhead())
	rand.Read(nonce) // never fails
	return b.aead.Seal(nonce, nonce, plain, place)
}

// Open reverses Seal. Error: ErrOpen.
func (b *Box) Open(sealed, place []byte) ([]byte, error) {
	if b == nil {
		return sealed, nil
	}
	n := b.aead.NonceSize()
	if len(sealed) < n {
		return nil, ErrOpen
	}
	plain, err := b.aead.Open(nil, sealed[:n], sealed[n:], place)
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}

// markFile marks a sealed folder. Its contents tell with which key.
const markFile = "sealed"

// Check compares dir with the key before anything in it is read. empty says that nothing is in dir
// yet: then Check writes a mark for the key. Otherwise a folder without a mark must be opened
// without a key, and a sealed one with its own key.
func Check(dir string, k *Key, empty bool) error {
	path := filepath.Join(dir, markFile)
	mark, err := os.ReadFile(path)
	switch {
	case err == nil && k == nil:
		return fmt.Errorf("%s is sealed, but seal_key is not set; set the former key. Nothing was changed", dir)
	case err == nil:
		if _, err := k.Box("mark").Open(mark, nil); err != nil {
			return fmt.Errorf("%s was sealed with a key other than that of seal_key; set the former key. Nothing "+
				"was changed", dir)
		}
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("read mark of sealed folder: %w", err)
	case k == nil:
		return nil
	case !empty:
		return fmt.Errorf("seal_key is set, but %s holds unsealed data of this master; nothing was changed. "+
			"Remove seal_key, or move the masters one by one: see docs/security.md, \"Secrets at rest\"", dir)
	}
	if err := durable.WriteFile(path, k.Box("mark").Seal([]byte("clustermaster"),
		nil)); err != nil {
		return fmt.Errorf("write mark of sealed folder: %w", err)
	}
	return nil
}
