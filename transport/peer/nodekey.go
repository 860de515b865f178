package peer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"clustermaster/store/durable"
	"clustermaster/store/seal"
)

// nodeKeyFile holds a node's private key as PKCS #8 PEM, mode 0600.
const nodeKeyFile = "node.key"

// NodeKey is this master's own ed25519 key and its certificate. It is safe for concurrent use.
type NodeKey struct {
	cert tls.Certificate
	spki [32]byte
}

// LoadNodeKey reads dir/node.key, or makes it if it does not exist: the key belongs to the data
// directory, like the incarnation. It makes the certificate anew at each start, because peers pin
// only the key. It refuses a key that other users can read. With a box the file is encrypted.
func LoadNodeKey(dir string, box *seal.Box) (*NodeKey, error) {
	path := filepath.Join(dir, nodeKeyFile)
	key, err := readNodeKey(path, box)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeNodeKey(dir, path, box); err != nil {
			return nil, fmt.Errorf("make node key %s: %w", path, err)
		}
		key, err = readNodeKey(path, box)
	}
	if err != nil {
		return nil, fmt.Errorf("read node key %s: %w", path, err)
	}
	return newNodeKey(key)
}

// SPKI is the SHA-256 of the key's SubjectPublicKeyInfo, which members pin.
func (k *NodeKey) SPKI() [32]byte { return k.spki }

// Public is the key's public part as PEM text; SPKI is its hash.
func (k *NodeKey) Public() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY",
		Bytes: k.cert.Leaf.RawSubjectPublicKeyInfo}))
}

// LogValue keeps the private key out of logs.
func (k *NodeKey) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("%x", k.spki[:8]))
}

func newNodeKey(key ed25519.PrivateKey) (*NodeKey, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make node certificate: %w", err)
	}
	// The expiry is far away: a wrong clock must not keep a member out, and removing the member
	// record withdraws the key.
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "clustermaster node"},
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make node certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make node certificate: %w", err)
	}
	return &NodeKey{
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		spki: sha256.Sum256(leaf.RawSubjectPublicKeyInfo),
	}, nil
}

func readNodeKey(path string, box *seal.Box) (ed25519.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil,
			fmt.Errorf("mode %04o lets others read it: chmod 600, or remove it and join again",
				st.Mode().Perm())
	}
	text := make([]byte, 4096)
	n, err := f.Read(text)
	if err != nil {
		return nil, err
	}
	open, err := box.Open(text[:n], nil)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(open)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no PKCS #8 PEM block in it")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a %T, not an ed25519 key", parsed)
	}
	return key, nil
}

// makeNodeKey writes a new key. A crash leaves either no key or a complete one; if two processes
// start at once, both use the key of the first.
func makeNodeKey(dir, path string, box *seal.Box) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := durable.WriteNew(path, box.Seal(text, nil)); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// certSPKI returns the pin of the single certificate that a peer sent.
func certSPKI(certs []*x509.Certificate) ([32]byte, error) {
	if len(certs) != 1 {
		return [32]byte{}, fmt.Errorf("%d certificates instead of one: %w", len(certs),
			errCertificate)
	}
	if _, ok := certs[0].PublicKey.(ed25519.PublicKey); !ok {
		return [32]byte{}, fmt.Errorf("a %s key instead of ed25519: %w",
			certs[0].PublicKeyAlgorithm, errCertificate)
	}
	return sha256.Sum256(certs[0].RawSubjectPublicKeyInfo), nil
}

// equalSPKI compares two pins in constant time.
func equalSPKI(a, b [32]byte) bool {
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
