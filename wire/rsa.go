package wire

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"sync/atomic"
)

// Names of algorithms as requests and options carry them.
const (
	SigSHA1   = "PKCS1v15-SHA1"
	SigSHA224 = "PKCS1v15-SHA224"
	EncSHA1   = "OAEP-SHA1"
	EncSHA224 = "OAEP-SHA224"
)

const maxModulus = 16384 // bits

var (
	// ErrAlgorithm is returned for the name of an algorithm that Salt does not define.
	ErrAlgorithm = errors.New("unknown algorithm")
	// ErrPEM is returned for a text that is not the expected PEM.
	ErrPEM = errors.New("not a PEM key")
	// ErrNotRSA is returned for a PEM key of another type, or one that RSA operations can't use.
	ErrNotRSA = errors.New("not a usable RSA key")
	// ErrPassphrase is returned for an encrypted key whose passphrase is missing or wrong.
	ErrPassphrase = errors.New("passphrase missing or wrong")
	// ErrSignature is returned for a signature or token that the key did not make.
	ErrSignature = errors.New("signature does not verify")
	// ErrDecrypt is returned for RSA ciphertext that does not decrypt.
	ErrDecrypt = errors.New("RSA decryption failed")
)

// PrivateKey is an RSA private key. It is safe for concurrent use.
type PrivateKey struct {
	key *rsa.PrivateKey
	pub *PublicKey
}

// GeneratePrivateKey makes a key with a modulus of the given number of bits, at least 1024 and at
// most 16384.
func GeneratePrivateKey(bits int) (*PrivateKey, error) {
	if bits < 1024 || bits > maxModulus {
		return nil, fmt.Errorf("generate RSA key of %d bits: %w", bits, ErrNotRSA)
	}
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, fmt.Errorf("generate RSA key of %d bits: %w", bits, err)
	}
	return newPrivateKey(k)
}

func newPrivateKey(k *rsa.PrivateKey) (*PrivateKey, error) {
	if err := usable(&k.PublicKey); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}
	text := CleanKey(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	return &PrivateKey{key: k, pub: &PublicKey{key: &k.PublicKey, text: text}}, nil
}

// usable bounds the work that a key from a stranger can cause.
func usable(k *rsa.PublicKey) error {
	if n := k.N.BitLen(); n < 512 || n > maxModulus || k.N.Bit(0) == 0 {
		return fmt.Errorf("RSA modulus of %d bits: %w", n, ErrNotRSA)
	}
	if k.E < 3 || k.E&1 == 0 || k.E > 1<<31-1 {
		return fmt.Errorf("RSA exponent: %w", ErrNotRSA)
	}
	return nil
}

// PEM returns the key in the form that Salt writes: unencrypted PKCS#1.
func (k *PrivateKey) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(k.key)})
}

// SealedPEM returns the key in the form that Salt writes with a passphrase (salt.crypt,
// cryptography's TraditionalOpenSSL): PKCS#1 encrypted with AES-256-CBC. Without a passphrase it is
// PEM.
func (k *PrivateKey) SealedPEM(passphrase string) ([]byte, error) {
	if passphrase == "" {
		return k.PEM(), nil
	}
	//lint:ignore SA1019 the form that Salt writes and reads
	block, err := x509.EncryptPEMBlock(rand.Reader, "RSA PRIVATE KEY",
		x509.MarshalPKCS1PrivateKey(k.key), []byte(passphrase), x509.PEMCipherAES256)
	if err != nil {
		return nil, fmt.Errorf("seal private key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// Public returns the public half.
func (k *PrivateKey) Public() *PublicKey { return k.pub }

// LogValue keeps keys out of logs.
func (k *PrivateKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// Format keeps keys out of formatted text, whatever the verb.
func (k *PrivateKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// Sign signs msg with PKCS#1 v1.5 and the hash that algo names (SigSHA1 or SigSHA224, else
// ErrAlgorithm).
func (k *PrivateKey) Sign(algo string, msg []byte) ([]byte, error) {
	h, sum, err := digest(algo, msg)
	if err != nil {
		return nil, err
	}
	sig, err := rsa.SignPKCS1v15(nil, k.key, h, sum)
	if err != nil {
		return nil, fmt.Errorf("sign with %s: %w", algo, err)
	}
	return sig, nil
}

// Decrypt undoes PublicKey.Encrypt. Ciphertext that is damaged or for another key gives ErrDecrypt.
func (k *PrivateKey) Decrypt(algo string, ct []byte) ([]byte, error) {
	h, err := oaepHash(algo)
	if err != nil {
		return nil, err
	}
	msg, err := rsa.DecryptOAEP(h, nil, k.key, ct, nil)
	if err != nil {
		return nil, fmt.Errorf("decrypt with %s: %w", algo, ErrDecrypt)
	}
	return msg, nil
}

// PublicKey is an RSA public key and its text. It is safe for concurrent use.
type PublicKey struct {
	key  *rsa.PublicKey
	text string

	// SHA-256 of the token that verified; a key has only one token
	token atomic.Pointer[[sha256.Size]byte]
}

// ParsePublicKey reads a PEM public key, PKIX or PKCS#1. The text stays with the key, because Salt
// compares texts.
func ParsePublicKey(text string) (*PublicKey, error) {
	block, _ := pem.Decode([]byte(text + "\n"))
	if block == nil {
		return nil, fmt.Errorf("parse public key: %w", ErrPEM)
	}
	k, err := rsaPublic(block)
	if err != nil {
		return nil, fmt.Errorf("parse public key: %w", err)
	}
	return &PublicKey{key: k, text: CleanKey(text)}, nil
}

func rsaPublic(block *pem.Block) (*rsa.PublicKey, error) {
	var k *rsa.PublicKey
	switch block.Type {
	case "PUBLIC KEY":
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPEM, err)
		}
		var ok bool
		if k, ok = key.(*rsa.PublicKey); !ok {
			return nil, fmt.Errorf("%T: %w", key, ErrNotRSA)
		}
	case "RSA PUBLIC KEY":
		var err error
		if k, err = x509.ParsePKCS1PublicKey(block.Bytes); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPEM, err)
		}
	default:
		return nil, fmt.Errorf("PEM block %q: %w", block.Type, ErrPEM)
	}
	if err := usable(k); err != nil {
		return nil, err
	}
	return k, nil
}

// Text returns the cleaned PEM text (see CleanKey): of the text that was parsed, or PKIX for a
// generated key.
func (k *PublicKey) Text() string { return k.text }

// Bits returns the size of the modulus.
func (k *PublicKey) Bits() int { return k.key.N.BitLen() }

// Verify checks a PKCS#1 v1.5 signature of msg; a wrong one gives ErrSignature, an unknown algo
// ErrAlgorithm.
func (k *PublicKey) Verify(algo string, msg, sig []byte) error {
	h, sum, err := digest(algo, msg)
	if err != nil {
		return err
	}
	if err := rsa.VerifyPKCS1v15(k.key, h, sum, sig); err != nil {
		return fmt.Errorf("verify with %s: %w", algo, ErrSignature)
	}
	return nil
}

// Encrypt encrypts msg with OAEP and the hash that algo names (EncSHA1 or EncSHA224, else
// ErrAlgorithm).
func (k *PublicKey) Encrypt(algo string, msg []byte) ([]byte, error) {
	h, err := oaepHash(algo)
	if err != nil {
		return nil, err
	}
	ct, err := rsa.EncryptOAEP(h, rand.Reader, k.key, msg, nil)
	if err != nil {
		return nil, fmt.Errorf("encrypt with %s: %w", algo, err)
	}
	return ct, nil
}

// tokenText is the content of a minion's token.
const tokenText = "salt"

// VerifyToken checks tok, which proves possession of the private key (see TokenSalt); a wrong one
// gives ErrSignature. The token of a key never changes, so the key keeps the hash of the token that
// verified, to compare with.
func (k *PublicKey) VerifyToken(tok []byte) error {
	sum := sha256.Sum256(tok)
	if seen := k.token.Load(); seen != nil && subtle.ConstantTimeCompare(seen[:], sum[:]) == 1 {
		return nil
	}
	msg, err := k.RecoverX931(tok)
	if err != nil {
		return fmt.Errorf("verify token: %w", err)
	}
	if string(msg) != tokenText {
		return fmt.Errorf("verify token: %w", ErrSignature)
	}
	kept := sum // sum itself stays on the stack
	k.token.Store(&kept)
	return nil
}

// TokenSalt makes the token ("tok") that a minion sends with its requests.
func TokenSalt(k *PrivateKey) ([]byte, error) { return k.X931([]byte(tokenText)) }

// KeySignature makes the field "sig" of an accepting sign-in reply: the master's X9.31 signature of
// the hash of the AES key. It depends on nothing else, so a master makes it once per AES key.
func KeySignature(k *PrivateKey, aes Key) ([]byte, error) { return k.X931(keyHash(aes.String())) }

// keyHash returns the hex SHA-256 of a key's text.
func keyHash(text string) []byte { return fmt.Appendf(nil, "%x", sha256.Sum256([]byte(text))) }

// KnownSignature reports whether algo names a signature algorithm.
func KnownSignature(algo string) bool { return algo == SigSHA1 || algo == SigSHA224 }

// KnownEncryption reports whether algo names an encryption algorithm.
func KnownEncryption(algo string) bool { return algo == EncSHA1 || algo == EncSHA224 }

func digest(algo string, msg []byte) (crypto.Hash, []byte, error) {
	switch algo {
	case SigSHA1:
		s := sha1.Sum(msg)
		return crypto.SHA1, s[:], nil
	case SigSHA224:
		s := sha256.Sum224(msg)
		return crypto.SHA224, s[:], nil
	}
	return 0, nil, fmt.Errorf("signature algorithm %.40q: %w", algo, ErrAlgorithm)
}

func oaepHash(algo string) (hash.Hash, error) {
	switch algo {
	case EncSHA1:
		return sha1.New(), nil
	case EncSHA224:
		return sha256.New224(), nil
	}
	return nil, fmt.Errorf("encryption algorithm %.40q: %w", algo, ErrAlgorithm)
}
