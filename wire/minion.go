package wire

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"clustermaster/value"
)

// ErrNotSealed is returned for a reply that is a map or another value where a sealed byte string is
// due.
var ErrNotSealed = errors.New("reply is not sealed")

// Sender holds the values that are the same in all requests of a minion.
type Sender struct {
	// Version is the protocol version: 3, or 0 to 2 for old minions, which send neither outer id
	// nor ts, and no token unless Tok is set.
	Version int
	ID      string
	// Tok is the minion's token (TokenSalt).
	Tok []byte
	// EncAlgo and SigAlgo choose the RSA forms of replies; not sent if "".
	EncAlgo, SigAlgo string
	// SignKey signs the load (minion_sign_messages) unless it is nil.
	SignKey *PrivateKey
}

// SealRequest packs an aes request. c has the session key for version 3, the AES key for lower
// ones. load holds cmd and the command's own fields; SealRequest adds nonce (from version 2 on),
// ts, tok, id and sig.
func (s Sender) SealRequest(c *Crypticle, load value.Map, nonce string, now time.Time) ([]byte,
	error) {
	load = append(make(value.Map, 0, len(load)+5), load...)
	if s.Version > 1 {
		load = load.Set("nonce", nonce)
	}
	if s.Version > 2 {
		load = load.Set("ts", now.Unix())
	}
	if s.Version > 2 || s.Tok != nil {
		load = load.Set("tok", s.Tok)
	}
	if s.Version > 2 {
		load = load.Set("id", s.ID)
	}
	if s.SignKey != nil {
		packed, err := value.PackNew(load.Without("nonce", "tok", "sig"))
		if err != nil {
			return nil, fmt.Errorf("seal request: %w", err)
		}
		sig, err := s.SignKey.Sign(orDefault(s.SigAlgo, SigSHA1), packed)
		if err != nil {
			return nil, fmt.Errorf("seal request: %w", err)
		}
		load = load.Set("sig", sig)
	}
	sealed, err := c.sealValue(nil, load, "", false)
	if err != nil {
		return nil, fmt.Errorf("seal request: %w", err)
	}
	out := append(make(value.Map, 0, 6), value.Pair{Key: "enc", Value: encAES},
		value.Pair{Key: "load", Value: sealed})
	if s.Version > 0 {
		out = append(out, value.Pair{Key: "version", Value: s.Version})
	}
	if s.Version > 2 {
		out = append(out, value.Pair{Key: "id", Value: s.ID})
	}
	if s.EncAlgo != "" {
		out = append(out, value.Pair{Key: "enc_algo", Value: s.EncAlgo})
	}
	if s.SigAlgo != "" {
		out = append(out, value.Pair{Key: "sig_algo", Value: s.SigAlgo})
	}
	return value.AppendPack(make([]byte, 0, len(sealed)+128), out)
}

// ClearRequest packs a clear request, such as {cmd: ping}.
func ClearRequest(load value.Map, version int) ([]byte, error) {
	return value.Pack(value.Map{{Key: "enc", Value: encClear}, {Key: "load", Value: load},
		{Key: "version", Value: version}})
}

// OpenReply opens the reply to an aes request and returns the encoded value. The nonce is "" if the
// request had none. The text "bad load" gives ErrAuthentication, which makes a minion sign in
// again; an empty reply gives nil; any other unsealed value gives ErrNotSealed.
func OpenReply(c *Crypticle, reply []byte, nonce string) (value.Raw, error) {
	if _, err := value.Weigh(reply); err != nil {
		return nil, fmt.Errorf("open reply: %w", value.ErrMalformed)
	}
	h, err := value.ReadHead(reply, 0)
	if err != nil {
		return nil, fmt.Errorf("open reply: %w", err)
	}
	switch {
	case h.Kind == value.KindNil, h.Kind == value.KindMap && h.N == 0, h.Kind == value.KindRaw &&
		h.N == 0:
		return value.Raw{0xc0}, nil
	case h.Kind != value.KindRaw:
		return nil, fmt.Errorf("open reply: %w", ErrNotSealed)
	}
	p, err := c.OpenNonce(reply[h.End:], nonce)
	if err != nil {
		return nil, fmt.Errorf("open reply: %w", err)
	}
	return oneValue(p)
}

// oneValue checks that p is one msgpack value.
func oneValue(p []byte) (value.Raw, error) {
	if _, err := value.Weigh(p); err != nil {
		return nil, fmt.Errorf("open: %w", value.ErrMalformed)
	}
	return value.Raw(p), nil
}

// OpenPrivate opens the reply to _pillar (dictkey "pillar") with the minion's key and returns the
// encoded value. From version 2 on it checks the master's signature, that the inner key equals the
// outer one, and the nonce. A reply without a key, such as "bad load", gives ErrAuthentication.
func OpenPrivate(k *PrivateKey, master *PublicKey, s Sender, reply []byte, dictkey,
	nonce string) (value.Raw, error) {
	v, err := value.Unpack(reply)
	if err != nil {
		return nil, fmt.Errorf("open private reply: %w", err)
	}
	m, _ := v.(value.Map)
	sealedKey := m.Bytes("key")
	if sealedKey == nil {
		return nil, fmt.Errorf("open private reply %.60v: %w", v, ErrAuthentication)
	}
	text, err := k.Decrypt(orDefault(s.EncAlgo, EncSHA1), sealedKey)
	if err != nil {
		return nil, fmt.Errorf("open private reply: %w", err)
	}
	key, err := ParseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("open private reply: %w", err)
	}
	p, err := NewCrypticle(key).Open(m.Bytes(dictkey))
	if err != nil {
		return nil, fmt.Errorf("open private reply: %w", err)
	}
	if s.Version < 2 {
		return oneValue(p)
	}
	signed, err := value.UnpackRawMap(p)
	if err != nil {
		return nil, fmt.Errorf("open private reply: %w", err)
	}
	data := signed.Bytes("data")
	if err := master.Verify(orDefault(s.SigAlgo, SigSHA1), data, signed.Bytes("sig")); err != nil {
		return nil, fmt.Errorf("open private reply: %w", err)
	}
	inner, err := value.UnpackRawMap(data)
	if err != nil {
		return nil, fmt.Errorf("open private reply: %w", err)
	}
	if !bytes.Equal(inner.Bytes("key"), sealedKey) {
		return nil, fmt.Errorf("open private reply: key inside is another one: %w", ErrSignature)
	}
	if inner.String("nonce") != nonce {
		return nil, fmt.Errorf("open private reply: %w", ErrNonce)
	}
	val, ok := inner.Get(dictkey)
	if !ok {
		return nil, fmt.Errorf("open private reply: no %s in it: %w", dictkey, value.ErrMalformed)
	}
	return val, nil
}

// PubReader opens publications as one minion does under one AES key. It is not safe for concurrent
// use.
type PubReader struct {
	c      *Crypticle
	master *PublicKey
	serial int64
}

// NewPubReader makes a reader for the AES key of c. It checks signatures with master, or not at all
// if master is nil (the minion's option sign_pub_messages, off by default).
func NewPubReader(c *Crypticle, master *PublicKey) *PubReader {
	return &PubReader{c: c, master: master}
}

// OpenPublication returns the load of a publication without its serial. A serial that is not higher
// than the last one gives an empty load, which the minion ignores; a message under another AES key
// gives ErrAuthentication, after which minions sign in again.
func (r *PubReader) OpenPublication(payload []byte) (value.Map, error) {
	outer, err := value.UnpackRawMap(payload)
	if err != nil {
		return nil, fmt.Errorf("open publication: %w", err)
	}
	sealed := outer.Bytes("load")
	if r.master != nil {
		if err := r.master.Verify(outer.String("sig_algo"), sealed,
			outer.Bytes("sig")); err != nil {
			return nil, fmt.Errorf("open publication: %w", err)
		}
	}
	p, err := r.c.Open(sealed)
	if err != nil {
		return nil, fmt.Errorf("open publication: %w", err)
	}
	load, err := value.UnpackMap(p)
	if err != nil {
		return nil, fmt.Errorf("open publication: %w", err)
	}
	if v, ok := load.Get("serial"); ok {
		serial, ok := v.(int64)
		if !ok || serial <= r.serial {
			return value.Map{}, nil
		}
		r.serial = serial
		load = load.Without("serial")
	}
	return load, nil
}
