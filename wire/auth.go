package wire

import (
	"encoding/pem"
	"fmt"
	"strings"

	"clustermaster/value"
)

// SignIn is the load of an _auth request.
type SignIn struct {
	ID string
	// Pub is the text of the offered public key, cleaned (see CleanKey). It parses.
	Pub string
	// Nonce has 32 printable ASCII characters, or is "" below version 2.
	Nonce string
	// EncAlgo and SigAlgo are the minion's choice, or the SHA-1 forms; they may be unknown names.
	EncAlgo, SigAlgo string
	// Token is a text that only the master can decrypt and that the minion wants returned; nil if
	// there is none.
	Token []byte
	// AutosignGrains are grains by which the master may accept the key automatically.
	AutosignGrains value.Map
}

// maxOffered is the longest text of an offered key, in bytes; a key of 16,384 bits takes 2,900.
const maxOffered = 8 << 10

// minOffered is the smallest modulus of an offered key, in bits.
const minOffered = 1024

// ParseSignIn reads the load of a clear _auth request. It answers "bad load" to an id, pub or (from
// version 2 on) nonce that is missing or of the wrong type; Salt's worker would stop answering. It
// does the same for a pub that is not an RSA key of 1,024 to 16,384 bits, because the text would be
// stored, and reach reactors in the event salt/auth. A nonce must have the length of Salt's,
// because the key that signs publications also signs the reply that repeats it. An invalid id is
// not refused here: the caller answers with a signed "false".
func ParseSignIn(e Envelope) (SignIn, *Refusal) {
	s := SignIn{EncAlgo: EncSHA1, SigAlgo: SigSHA1}
	for _, field := range []struct {
		key      string
		to       *string
		required bool
	}{
		{"id", &s.ID, true},
		{"pub", &s.Pub, true},
		{"nonce", &s.Nonce, e.Version >= 2},
		{"enc_algo", &s.EncAlgo, false},
		{"sig_algo", &s.SigAlgo, false},
	} {
		v, ok := e.Clear.Get(field.key)
		if !ok && !field.required {
			continue
		}
		text, isText := v.(string)
		switch {
		case isText:
			*field.to = text
		case field.required:
			return SignIn{}, BadLoad("auth_" + field.key)
		default:
			*field.to = "(not text)"
		}
	}
	if e.Version < 2 {
		s.Nonce = ""
	} else if !plainNonce(s.Nonce) {
		return SignIn{}, BadLoad("auth_nonce")
	}
	if len(s.Pub) > maxOffered {
		return SignIn{}, BadLoad("auth_pub_length")
	}
	s.Pub = CleanKey(s.Pub)
	if !offeredKey(s.Pub) {
		return SignIn{}, BadLoad("auth_pub_not_a_key")
	}
	s.Token = e.Clear.Bytes("token")
	grains, _ := e.Clear.Get("autosign_grains")
	s.AutosignGrains, _ = grains.(value.Map)
	return s, nil
}

// plainNonce reports whether s could be one of Salt's nonces, which are 32 hexadecimal digits: it
// checks for 32 printable characters.
func plainNonce(s string) bool {
	return len(s) == nonceSize && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' ||
			r > '~'
	})
}

// offeredKey reports whether a cleaned text is one PEM public key and nothing else. pem.Decode
// ignores text before the block, after it and in its headers, and what looks like a block before
// it; minions send no such text.
func offeredKey(text string) bool {
	const begin = "-----BEGIN"
	if !strings.HasPrefix(text, begin+" ") || strings.Count(text, begin) > 1 {
		return false
	}
	block, rest := pem.Decode([]byte(text + "\n"))
	if block == nil || len(rest) > 0 || len(block.Headers) > 0 {
		return false
	}
	k, err := rsaPublic(block)
	return err == nil && k.N.BitLen() >= minOffered
}

// AuthReply packs an answer without secrets: ret is true for pending, false for refused, "full",
// and so on. Its shape depends on the request's version.
func AuthReply(k *PrivateKey, s SignIn, version int, ret any) ([]byte, error) {
	if version < 2 {
		return UnsignedAuth(value.Map{{Key: "ret", Value: ret}})
	}
	return SignedAuth(k, s.SigAlgo, value.Map{{Key: "ret", Value: ret},
		{Key: "nonce", Value: s.Nonce}})
}

// Grant is what an accepted minion receives.
type Grant struct {
	// Master is the key of the master, in a cluster of all masters.
	Master *PrivateKey
	// Minion is the accepted key; everything secret is encrypted to it.
	Minion *PublicKey
	// PublishPort is where the minion subscribes.
	PublishPort int
	// PubSig is the base64 signature of the master's public key, with master_sign_pubkey; else "".
	PubSig string
	// AES is the key of all minions, Session the key of this one.
	AES, Session Key
	// Signature is KeySignature(Master, AES), which a master keeps; if it is nil Reply makes it.
	Signature []byte
}

// Reply packs the accepting answer to s, in the shape for version. Like Salt it leaves out a token
// that doesn't decrypt. For an unknown algorithm it returns the unsigned reply about that.
func (g Grant) Reply(s SignIn, version int) ([]byte, error) {
	if version >= 2 && !KnownSignature(s.SigAlgo) {
		return BadSigAlgo().Reply, nil
	}
	if !KnownEncryption(s.EncAlgo) {
		return BadEncAlgo().Reply, nil
	}
	load := value.Map{{Key: "enc", Value: "pub"}, {Key: "pub_key", Value: g.Master.Public().Text()},
		{Key: "publish_port", Value: g.PublishPort}}
	if g.PubSig != "" {
		load = append(load, value.Pair{Key: "pub_sig", Value: g.PubSig})
	}
	if s.Token != nil {
		if clear, err := g.Master.Decrypt(s.EncAlgo, s.Token); err == nil {
			token, err := g.Minion.Encrypt(s.EncAlgo, clear)
			if err != nil {
				return nil, fmt.Errorf("sign-in reply of %q: token: %w", s.ID, err)
			}
			load = append(load, value.Pair{Key: "token", Value: token})
		}
	}
	aes, err := g.Minion.Encrypt(s.EncAlgo, []byte(g.AES.String()))
	if err != nil {
		return nil, fmt.Errorf("sign-in reply of %q: aes: %w", s.ID, err)
	}
	session, err := g.Minion.Encrypt(s.EncAlgo, []byte(g.Session.String()))
	if err != nil {
		return nil, fmt.Errorf("sign-in reply of %q: session: %w", s.ID, err)
	}
	sig := g.Signature
	if sig == nil {
		if sig, err = KeySignature(g.Master, g.AES); err != nil {
			return nil, fmt.Errorf("sign-in reply of %q: %w", s.ID, err)
		}
	}
	load = append(load, value.Pair{Key: "aes", Value: aes},
		value.Pair{Key: "session", Value: session}, value.Pair{Key: "sig", Value: sig})
	if version < 2 {
		return ClearReply(load)
	}
	return SignedAuth(g.Master, s.SigAlgo, append(load, value.Pair{Key: "nonce", Value: s.Nonce}))
}
