package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"crypto/md5"
	"crypto/pbkdf2"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"strings"
	"unicode/utf8"

	"clustermaster/value"
)

// ParsePrivateKey reads a PEM private key: PKCS#1 or PKCS#8, either of them also encrypted. The
// passphrase is "" for none, and ignored for a key that is not encrypted.
func ParsePrivateKey(text []byte, passphrase string) (*PrivateKey, error) {
	block, _ := pem.Decode(append(append([]byte(nil), text...), '\n'))
	if block == nil {
		return nil, fmt.Errorf("parse private key: %w", ErrPEM)
	}
	k, err := rsaPrivate(block, passphrase)
	if err != nil {
		return nil, fmt.Errorf("parse private key: %w", err)
	}
	return newPrivateKey(k)
}

func rsaPrivate(block *pem.Block, passphrase string) (*rsa.PrivateKey, error) {
	der := block.Bytes
	switch block.Type {
	case "RSA PRIVATE KEY":
		//lint:ignore SA1019 the form that Salt writes with key_pass
		if x509.IsEncryptedPEMBlock(block) {
			var err error
			if passphrase == "" {
				return nil, ErrPassphrase
			}
			//lint:ignore SA1019 the form that Salt writes with key_pass
			if der, err = x509.DecryptPEMBlock(block, []byte(passphrase)); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrPassphrase, err)
			}
		}
		k, err := x509.ParsePKCS1PrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPEM, err)
		}
		return k, nil
	case "ENCRYPTED PRIVATE KEY":
		var err error
		if der, err = decryptPKCS8(der, passphrase); err != nil {
			return nil, err
		}
	case "PRIVATE KEY":
	default:
		return nil, fmt.Errorf("PEM block %q: %w", block.Type, ErrPEM)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPEM, err)
	}
	k, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%T: %w", key, ErrNotRSA)
	}
	return k, nil
}

// Object identifiers of PBES2 (RFC 8018) and what it may name.
var (
	oidPBES2      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	oidHMACSHA1   = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 7}
	oidHMACSHA224 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 8}
	oidHMACSHA256 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 9}
	oidHMACSHA384 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 10}
	oidHMACSHA512 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 11}
	oidAES128     = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 2}
	oidAES192     = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 22}
	oidAES256     = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}
	oid3DES       = asn1.ObjectIdentifier{1, 2, 840, 113549, 3, 7}
)

// maxIterations bounds the work that a key file can cause: about a second. Common tools write 2048
// to 600 000.
const maxIterations = 2_000_000

// decryptPKCS8 opens an EncryptedPrivateKeyInfo made with PBES2, PBKDF2 and AES-CBC or 3DES-CBC.
func decryptPKCS8(der []byte, passphrase string) ([]byte, error) {
	if passphrase == "" {
		return nil, ErrPassphrase
	}
	var outer struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	var scheme struct{ KDF, Cipher pkix.AlgorithmIdentifier }
	var kdf struct {
		Salt       []byte
		Iterations int
		KeyLength  int                      `asn1:"optional"`
		PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
	}
	var iv []byte
	if err := errors.Join(
		exactly(der, &outer),
		exactly(outer.Algorithm.Parameters.FullBytes, &scheme),
		exactly(scheme.KDF.Parameters.FullBytes, &kdf),
		exactly(scheme.Cipher.Parameters.FullBytes, &iv),
	); err != nil || !outer.Algorithm.Algorithm.Equal(oidPBES2) ||
		!scheme.KDF.Algorithm.Equal(oidPBKDF2) {
		return nil, fmt.Errorf("encryption of the key file: %w", ErrPEM)
	}
	if kdf.Iterations < 1 || kdf.Iterations > maxIterations {
		return nil, fmt.Errorf("%d iterations in the key file: %w", kdf.Iterations, ErrPEM)
	}
	prf := prfHash(kdf.PRF.Algorithm)
	size, newCipher := cbcCipher(scheme.Cipher.Algorithm)
	if prf == nil || newCipher == nil {
		return nil, fmt.Errorf("encryption of the key file: %w", ErrAlgorithm)
	}
	key, err := pbkdf2.Key(prf, passphrase, kdf.Salt, kdf.Iterations, size)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := newCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	n := block.BlockSize()
	if len(iv) != n || len(outer.Data) == 0 || len(outer.Data)%n != 0 {
		return nil, fmt.Errorf("encryption of the key file: %w", ErrPEM)
	}
	out := make([]byte, len(outer.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(out, outer.Data)
	pad := int(out[len(out)-1])
	if pad == 0 || pad > n {
		return nil, ErrPassphrase
	}
	for _, b := range out[len(out)-pad:] {
		if int(b) != pad {
			return nil, ErrPassphrase
		}
	}
	return out[:len(out)-pad], nil
}

// exactly decodes one ASN.1 value that must fill der.
func exactly(der []byte, v any) error {
	rest, err := asn1.Unmarshal(der, v)
	if err == nil && len(rest) > 0 {
		err = errors.New("trailing bytes")
	}
	return err
}

func prfHash(oid asn1.ObjectIdentifier) func() hash.Hash {
	switch {
	case len(oid) == 0, oid.Equal(oidHMACSHA1):
		return sha1.New
	case oid.Equal(oidHMACSHA224):
		return sha256.New224
	case oid.Equal(oidHMACSHA256):
		return sha256.New
	case oid.Equal(oidHMACSHA384):
		return sha512.New384
	case oid.Equal(oidHMACSHA512):
		return sha512.New
	}
	return nil
}

func cbcCipher(oid asn1.ObjectIdentifier) (int, func([]byte) (cipher.Block, error)) {
	switch {
	case oid.Equal(oidAES128):
		return 16, aes.NewCipher
	case oid.Equal(oidAES192):
		return 24, aes.NewCipher
	case oid.Equal(oidAES256):
		return 32, aes.NewCipher
	case oid.Equal(oid3DES):
		return 24, des.NewTripleDESCipher
	}
	return 0, nil
}

// CleanKey removes the white space around a key's text and joins its lines with LF, without one at
// the end. Salt compares keys in this form.
func CleanKey(text string) string {
	text = strings.TrimFunc(text, value.IsSpace)
	if !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && lineEnd(r) }) {
		return text
	}
	out := make([]byte, 0, len(text))
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case strings.HasPrefix(text, "\r\n"):
			out, n = append(out, '\n'), 2
		case lineEnd(r):
			out = append(out, '\n')
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return string(out)
}

// lineEnd reports whether Python's splitlines splits at r.
func lineEnd(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// Fingerprint returns the hash of a PEM text as Salt prints it: hex pairs joined by colons. It
// hashes the lines between the first and the last, without blank ones, each with LF. The hash type
// is one of md5, sha1, sha224, sha256, sha384, sha512; another one gives ErrAlgorithm.
func Fingerprint(text, hashType string) (string, error) {
	var h hash.Hash
	switch hashType {
	case "md5":
		h = md5.New()
	case "sha1":
		h = sha1.New()
	case "sha224":
		h = sha256.New224()
	case "sha256":
		h = sha256.New()
	case "sha384":
		h = sha512.New384()
	case "sha512":
		h = sha512.New()
	default:
		return "", fmt.Errorf("fingerprint with hash_type %.40q: %w", hashType, ErrAlgorithm)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > 2 {
		for _, line := range lines[1 : len(lines)-1] {
			h.Write([]byte(strings.ReplaceAll(line, "\r\n", "\n")))
		}
	}
	sum := h.Sum(nil)
	out := make([]byte, 0, 3*len(sum))
	for i := range sum {
		if i > 0 {
			out = append(out, ':')
		}
		out = hex.AppendEncode(out, sum[i:i+1])
	}
	return string(out), nil
}
