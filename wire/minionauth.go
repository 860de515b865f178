package wire

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"clustermaster/value"
)

// Errors of a minion that checks a master's sign-in reply.
var (
	// ErrSignIn is returned for an answer that is not a sign-in reply, such as "bad load"; minions
	// try again.
	ErrSignIn = errors.New("sign-in failed")
	// ErrRefusedAlgorithm is returned for "bad enc algo" and "bad sig algo".
	ErrRefusedAlgorithm = errors.New("master refuses the algorithm")
	// ErrMasterKey is returned when the master's key is not the cached one, and no signature
	// confirms it.
	ErrMasterKey = errors.New("master key is not the known one")
	// ErrPubSig is returned when pub_sig is present but not requested, missing, or wrong.
	ErrPubSig = errors.New("signature of the master key missing, unasked or wrong")
	// ErrToken is returned when the master did not return the minion's token.
	ErrToken = errors.New("master did not return the token")
)

// AuthRequest is a minion's attempt to sign in. Pack makes the request, OpenAuthReply checks the
// answer.
type AuthRequest struct {
	// Version is the protocol version, 0 to 3.
	Version int
	ID      string
	// Key is the minion's own key.
	Key *PrivateKey
	// Nonce is 32 hexadecimal characters, new for each attempt (NewNonce).
	Nonce string
	// EncAlgo and SigAlgo are sent if not empty; "" means the SHA-1 forms.
	EncAlgo, SigAlgo string
	// Master is the cached key of the master, or nil on first contact.
	Master *PublicKey
	// Token is a random text that the master must return. It is sent only with a cached Master; nil
	// for none.
	Token []byte
	// AutosignGrains is sent if not nil.
	AutosignGrains value.Map
	// VerifySign is the key that must have signed the master's key (verify_master_pubkey_sign), or
	// nil if the minion does not ask for that.
	VerifySign *PublicKey
	// AlwaysVerify checks that signature of an unchanged master key too (always_verify_signature).
	AlwaysVerify bool
}

// NewNonce makes a nonce: 32 hexadecimal characters.
func NewNonce() (string, error) {
	var b [nonceSize / 2]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make nonce: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

func (a AuthRequest) encAlgo() string { return orDefault(a.EncAlgo, EncSHA1) }
func (a AuthRequest) sigAlgo() string { return orDefault(a.SigAlgo, SigSHA1) }

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// sendsToken reports whether the request carries a token.
func (a AuthRequest) sendsToken() bool { return a.Master != nil && a.Token != nil }

// Pack makes the request's bytes.
func (a AuthRequest) Pack() ([]byte, error) {
	load := value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: a.ID}}
	if a.Version >= 2 {
		load = append(load, value.Pair{Key: "nonce", Value: a.Nonce})
	}
	if a.EncAlgo != "" {
		load = append(load, value.Pair{Key: "enc_algo", Value: a.EncAlgo})
	}
	if a.SigAlgo != "" {
		load = append(load, value.Pair{Key: "sig_algo", Value: a.SigAlgo})
	}
	if a.AutosignGrains != nil {
		load = append(load, value.Pair{Key: "autosign_grains", Value: a.AutosignGrains})
	}
	if a.sendsToken() {
		token, err := a.Master.Encrypt(a.encAlgo(), a.Token)
		if err != nil {
			return nil, fmt.Errorf("sign-in request of %q: %w", a.ID, err)
		}
		load = append(load, value.Pair{Key: "token", Value: token})
	}
	load = append(load, value.Pair{Key: "pub", Value: a.Key.Public().Text()})
	out := value.Map{{Key: "enc", Value: encClear}, {Key: "load", Value: load}}
	if a.Version > 0 {
		out = append(out, value.Pair{Key: "version", Value: a.Version})
	}
	return value.Pack(out)
}

// AuthAnswer is a sign-in reply that passed the minion's checks.
type AuthAnswer struct {
	// Accepted says that the fields below Master are set. If not, Ret is the master's answer: true
	// for pending, false for rejected, "full".
	Accepted bool
	Ret      any
	// Master is the key to cache: the offered one, or the previous one.
	Master *PublicKey

	PublishPort int
	AES         Key
	Session     Key // zero if HasSession is false: masters before the 2025 releases
	HasSession  bool
}

// OpenAuthReply checks a master's reply in the order in which minions do: shape, refused algorithm,
// master key, its signature, AES key with its signature, token, session key, outer signature,
// nonce.
func OpenAuthReply(a AuthRequest, reply []byte) (AuthAnswer, error) {
	v, err := value.Unpack(reply)
	if err != nil {
		return AuthAnswer{}, fmt.Errorf("sign-in reply: %w: %w", ErrSignIn, err)
	}
	outer, _ := v.(value.Map)
	load, ok := outer.Get("load")
	if a.Version < 2 {
		return a.openOld(outer, load, ok)
	}
	if !ok {
		return AuthAnswer{}, fmt.Errorf("sign-in reply %.60v: %w", v, ErrSignIn)
	}
	if m, ok := load.(value.Map); ok {
		switch ret := m.String("ret"); ret {
		case "bad enc algo", "bad sig algo":
			return AuthAnswer{}, fmt.Errorf("sign-in reply %q: %w", ret, ErrRefusedAlgorithm)
		}
		return AuthAnswer{}, fmt.Errorf("sign-in reply is not signed: %w", ErrSignature)
	}
	packed, _ := value.BytesOf(load)
	inner, err := value.UnpackMap(packed)
	if err != nil {
		return AuthAnswer{}, fmt.Errorf("sign-in reply: %w: %w", ErrSignIn, err)
	}
	answer := AuthAnswer{Master: a.Master}
	if _, ok := inner.Get("pub_key"); ok {
		if answer, err = a.accept(inner); err != nil {
			return AuthAnswer{}, fmt.Errorf("sign-in reply: %w", err)
		}
	}
	if answer.Master != nil {
		if err := answer.Master.Verify(a.sigAlgo(), packed, outer.Bytes("sig")); err != nil {
			return AuthAnswer{}, fmt.Errorf("sign-in reply: %w", err)
		}
	}
	if inner.String("nonce") != a.Nonce {
		return AuthAnswer{}, fmt.Errorf("sign-in reply: %w", ErrNonce)
	}
	answer.Ret, _ = inner.Get("ret")
	return answer, nil
}

// openOld reads replies of versions 0 and 1: a map with enc and load, or the bare map of an
// accepted minion.
func (a AuthRequest) openOld(outer value.Map, load any, hasLoad bool) (AuthAnswer, error) {
	if hasLoad {
		m, ok := load.(value.Map)
		if !ok {
			return AuthAnswer{}, fmt.Errorf("sign-in reply: %w", ErrSignIn)
		}
		ret, _ := m.Get("ret")
		if s, _ := ret.(string); s == "bad enc algo" || s == "bad sig algo" {
			return AuthAnswer{}, fmt.Errorf("sign-in reply %q: %w", s, ErrRefusedAlgorithm)
		}
		return AuthAnswer{Ret: ret, Master: a.Master}, nil
	}
	if _, ok := outer.Get("pub_key"); !ok {
		return AuthAnswer{}, fmt.Errorf("sign-in reply: %w", ErrSignIn)
	}
	answer, err := a.accept(outer)
	if err != nil {
		return AuthAnswer{}, fmt.Errorf("sign-in reply: %w", err)
	}
	return answer, nil
}

// accept checks an accepting reply.
func (a AuthRequest) accept(m value.Map) (AuthAnswer, error) {
	master, err := a.masterKey(m)
	if err != nil {
		return AuthAnswer{}, err
	}
	answer := AuthAnswer{Accepted: true, Master: master}
	text, err := a.Key.Decrypt(a.encAlgo(), m.Bytes("aes"))
	if err != nil {
		return AuthAnswer{}, fmt.Errorf("aes: %w", err)
	}
	sum, err := master.RecoverX931(m.Bytes("sig"))
	if err != nil {
		return AuthAnswer{}, fmt.Errorf("signature of aes: %w", err)
	}
	if !bytes.Equal(sum, keyHash(string(text))) {
		return AuthAnswer{}, fmt.Errorf("signature of aes: %w", ErrSignature)
	}
	if answer.AES, err = ParseKey(string(text)); err != nil {
		return AuthAnswer{}, fmt.Errorf("aes: %w", err)
	}
	if a.sendsToken() {
		token, err := a.Key.Decrypt(a.encAlgo(), m.Bytes("token"))
		if err != nil || !bytes.Equal(token, a.Token) {
			return AuthAnswer{}, ErrToken
		}
	}
	if session, ok := m.Get("session"); ok {
		ct, _ := value.BytesOf(session)
		if text, err = a.Key.Decrypt(a.encAlgo(), ct); err != nil {
			return AuthAnswer{}, fmt.Errorf("session: %w", err)
		}
		if answer.Session, err = ParseKey(string(text)); err != nil {
			return AuthAnswer{}, fmt.Errorf("session: %w", err)
		}
		answer.HasSession = true
	} else if a.Version > 2 {
		return AuthAnswer{}, fmt.Errorf("session key is missing: %w", ErrSignIn)
	}
	port, ok := m.Get("publish_port")
	n, isInt := port.(int64)
	if !ok || !isInt || n < 1 || n > 65535 {
		return AuthAnswer{}, fmt.Errorf("publish_port %v: %w", port, ErrSignIn)
	}
	answer.PublishPort = int(n)
	return answer, nil
}

// masterKey decides whether to trust the offered master key.
func (a AuthRequest) masterKey(m value.Map) (*PublicKey, error) {
	text := m.String("pub_key")
	pubSig, hasSig := m.Get("pub_sig")
	if hasSig != (a.VerifySign != nil) {
		return nil, ErrPubSig
	}
	changed := a.Master != nil && a.Master.Text() != CleanKey(text)
	if a.VerifySign != nil && (a.Master == nil || changed || a.AlwaysVerify) {
		s, _ := pubSig.(string)
		sig, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPubSig, err)
		}
		if err := a.VerifySign.Verify(a.sigAlgo(), []byte(text), sig); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPubSig, err)
		}
	} else if changed {
		return nil, ErrMasterKey
	}
	if a.Master != nil && !changed {
		return a.Master, nil
	}
	return ParsePublicKey(text)
}
