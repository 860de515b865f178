package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"sync"

	"clustermaster/value"
)

const (
	aesKeySize = 24
	keyText    = 76 // characters of a key's text form
	ivSize     = aes.BlockSize
	macSize    = sha256.Size
	nonceSize  = 32
	mark       = "pickle::" // first bytes of every plaintext
	minSealed  = ivSize + aes.BlockSize + macSize
)

var (
	// ErrAuthentication is returned for a sealed message that this key did not make.
	ErrAuthentication = errors.New("message authentication failed")
	// ErrNonce is returned for a nonce that is not the expected one, or not 32 bytes.
	ErrNonce = errors.New("nonce does not match")
	// ErrKey is returned for a text that is not a symmetric key.
	ErrKey = errors.New("not a key of 56 bytes in base64")
)

// Key is a Crypticle key: 24 bytes for AES-192, then 32 for HMAC-SHA256. Its text form, from
// String, is what Salt encrypts with RSA, hashes and stores. The package fmt and slog print it as
// [redacted].
type Key [aesKeySize + sha256.Size]byte

// NewKey makes a random key.
func NewKey() (Key, error) {
	var k Key
	if _, err := rand.Read(k[:]); err != nil {
		return Key{}, fmt.Errorf("make key: %w", err)
	}
	return k, nil
}

// ParseKey reads the text form: 76 characters of standard base64. Anything else is ErrKey.
func ParseKey(s string) (Key, error) {
	var k Key
	if len(s) != keyText {
		return Key{}, fmt.Errorf("parse key of %d characters: %w", len(s), ErrKey)
	}
	var buf [keyText / 4 * 3]byte
	n, err := base64.StdEncoding.Strict().Decode(buf[:], []byte(s))
	if err != nil || n != len(k) {
		return Key{}, fmt.Errorf("parse key: %w", ErrKey)
	}
	copy(k[:], buf[:n])
	return k, nil
}

// String returns the text form, which is the secret itself.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// LogValue keeps keys out of logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }

// Format keeps keys out of formatted text, whatever the verb.
func (k Key) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

const redacted = "[redacted]"

// Crypticle seals and opens messages under one key: AES-192-CBC, then HMAC-SHA256 over IV and
// ciphertext. It is safe for concurrent use. It keeps the expanded key and keyed hash states
// between messages, until the garbage collector removes those of an unused key.
type Crypticle struct {
	key  Key
	pool sync.Pool // *engine
}

// engine holds the states of one operation.
type engine struct {
	block cipher.Block
	mac   hash.Hash
	enc   cbc
	dec   cbc
	sum   [macSize]byte
}

// cbc is a block mode whose IV can be set again.
type cbc interface {
	cipher.BlockMode
	SetIV([]byte)
}

// NewCrypticle prepares a key for use.
func NewCrypticle(k Key) *Crypticle { return &Crypticle{key: k} }

func (c *Crypticle) engine() *engine {
	if e, ok := c.pool.Get().(*engine); ok {
		return e
	}
	block, err := aes.NewCipher(c.key[:aesKeySize])
	if err != nil {
		panic("wire: AES refuses a key of 24 bytes: " + err.Error()) // impossible
	}
	return &engine{block: block, mac: hmac.New(sha256.New, c.key[aesKeySize:])}
}

// tag returns the HMAC of b; the result lives in e.
func (e *engine) tag(b []byte) []byte {
	e.mac.Reset()
	e.mac.Write(b)
	return e.mac.Sum(e.sum[:0])
}

func (e *engine) encrypt(iv, b []byte) {
	if e.enc == nil {
		m := cipher.NewCBCEncrypter(e.block, iv)
		if e.enc, _ = m.(cbc); e.enc == nil {
			m.CryptBlocks(b, b)
			return
		}
	} else {
		e.enc.SetIV(iv)
	}
	e.enc.CryptBlocks(b, b)
}

func (e *engine) decrypt(iv, dst, src []byte) {
	if e.dec == nil {
		m := cipher.NewCBCDecrypter(e.block, iv)
		if e.dec, _ = m.(cbc); e.dec == nil {
			m.CryptBlocks(dst, src)
			return
		}
	} else {
		e.dec.SetIV(iv)
	}
	e.dec.CryptBlocks(dst, src)
}

// Seal encrypts packed, one msgpack value. The nonce is "" for none, or the 32 bytes of the request
// that this answers; any other length is ErrNonce.
func (c *Crypticle) Seal(packed []byte, nonce string) ([]byte, error) {
	if nonce != "" && len(nonce) != nonceSize {
		return nil, fmt.Errorf("seal with nonce of %d bytes: %w", len(nonce), ErrNonce)
	}
	n := len(mark) + len(nonce) + len(packed)
	b := make([]byte, ivSize, sealedSize(n))
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("seal: make IV: %w", err)
	}
	b = append(append(append(b, mark...), nonce...), packed...)
	return c.finish(b, 0), nil
}

// sealedSize is the length of a sealed message with n bytes of plaintext, mark included.
func sealedSize(n int) int { return ivSize + n + aes.BlockSize - n%aes.BlockSize + macSize }

// finish pads and encrypts in place the plaintext that follows the IV at b[start:], and appends the
// MAC.
func (c *Crypticle) finish(b []byte, start int) []byte {
	pad := aes.BlockSize - (len(b)-start)%aes.BlockSize // the IV is one block
	for range pad {
		b = append(b, byte(pad))
	}
	e := c.engine()
	e.encrypt(b[start:start+ivSize], b[start+ivSize:])
	b = append(b, e.tag(b[start:])...)
	c.pool.Put(e)
	return b
}

// sealValue packs and seals v in one buffer. With framed the result is the msgpack byte string of
// the sealed message, as it goes onto the wire. It uses buf's memory after its end if that is large
// enough.
func (c *Crypticle) sealValue(buf []byte, v any, nonce string, framed bool) ([]byte, error) {
	if nonce != "" && len(nonce) != nonceSize {
		return nil, fmt.Errorf("seal with nonce of %d bytes: %w", len(nonce), ErrNonce)
	}
	const room = 5 // for the longest head of a byte string
	b := buf[len(buf):]
	if need := room + sealedSize(len(mark)+len(nonce)+PackedGuess(v)); cap(b) < need {
		b = make([]byte, 0, need)
	}
	b = b[:room+ivSize]
	if _, err := rand.Read(b[room:]); err != nil {
		return nil, fmt.Errorf("seal: make IV: %w", err)
	}
	b, err := value.AppendPack(append(append(b, mark...), nonce...), v)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	b = c.finish(b, room)
	if !framed {
		return b[room:], nil
	}
	var h [room]byte
	head, err := value.AppendTextHead(h[:0], len(b)-room)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	start := room - len(head)
	copy(b[start:], head)
	return b[start:], nil
}

// PackedGuess estimates the packed size of v, so that most values need one allocation.
func PackedGuess(v any) int {
	switch v := v.(type) {
	case nil, bool:
		return 1
	case value.Raw:
		return len(v)
	case []byte:
		return len(v) + 5
	case string:
		return len(v) + 5
	case []string:
		n := 5
		for _, s := range v {
			n += len(s) + 5
		}
		return n
	case value.RawMap:
		n := 5
		for i := range v {
			n += len(v[i].Key) + len(v[i].Value) + 3
		}
		return n
	case value.Map:
		n := 5
		for i := range v {
			n += 16
			switch x := v[i].Value.(type) {
			case string:
				n += len(x)
			case []byte:
				n += len(x)
			case value.Raw:
				n += len(x)
			}
		}
		return n
	}
	return 200
}

// Open checks and decrypts a sealed message without a nonce, and returns the msgpack inside. A
// message that the key did not make gives ErrAuthentication; a plaintext without Salt's mark counts
// as an empty map.
func (c *Crypticle) Open(b []byte) ([]byte, error) {
	p, _, err := c.open(b, nil)
	return p, err
}

// OpenInPlace is Open without a copy. On success b's memory holds the returned plaintext; on
// failure b is unchanged, so that another key can be tried.
func (c *Crypticle) OpenInPlace(b []byte) ([]byte, error) {
	p, _, err := c.open(b, b)
	return p, err
}

// OpenNonce is Open for a reply that starts with the nonce of its request; another nonce gives
// ErrNonce. With nonce "" it is Open.
func (c *Crypticle) OpenNonce(b []byte, nonce string) ([]byte, error) {
	if nonce == "" {
		return c.Open(b)
	}
	p, marked, err := c.open(b, nil)
	if err != nil || !marked { // without the mark it is an empty map, which has no nonce
		return p, err
	}
	if len(p) < nonceSize || subtle.ConstantTimeCompare(p[:nonceSize], []byte(nonce)) != 1 {
		return nil, fmt.Errorf("open: %w", ErrNonce)
	}
	return p[nonceSize:], nil
}

// open decrypts b into buf, which is b itself, or nil for new memory. marked reports whether the
// plaintext has Salt's mark.
func (c *Crypticle) open(b, buf []byte) (packed []byte, marked bool, err error) {
	if len(b) < minSealed || (len(b)-ivSize-macSize)%aes.BlockSize != 0 {
		return nil, false, ErrAuthentication
	}
	e := c.engine()
	defer c.pool.Put(e)
	body := b[:len(b)-macSize]
	if subtle.ConstantTimeCompare(e.tag(body), b[len(b)-macSize:]) != 1 {
		return nil, false, ErrAuthentication
	}
	iv, ct := body[:ivSize], body[ivSize:]
	var p []byte
	if buf == nil {
		p = make([]byte, len(ct))
	} else {
		p = buf[ivSize : ivSize+len(ct)]
	}
	e.decrypt(iv, p, ct)
	pad := int(p[len(p)-1])
	if pad == 0 || pad > aes.BlockSize {
		return nil, false, ErrAuthentication
	}
	for _, x := range p[len(p)-pad:] {
		if int(x) != pad {
			return nil, false, ErrAuthentication
		}
	}
	p = p[: len(p)-pad : len(p)-pad]
	if len(p) < len(mark) || string(p[:len(mark)]) != mark {
		return []byte{0x80}, false, nil
	}
	return p[len(mark):], true, nil
}
