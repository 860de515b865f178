package wire

import (
	"math"
	"time"
	"unicode/utf8"

	"clustermaster/value"
)

// Request is the content of an aes request, without the fields of the channel.
type Request struct {
	// Cmd is the command; "" if it is absent or not text.
	Cmd string
	// ID is the id inside the load: "" if it is absent or not text. Below version 3 nothing proves
	// it.
	ID string
	// Nonce goes before the reply: "" or 32 bytes.
	Nonce string
	// TS is the sender's clock in seconds since the epoch; HasTS says whether the request has one.
	TS    int64
	HasTS bool
	// Tok proves possession of the minion's private key (VerifyToken); nil if absent.
	Tok []byte
	// Load is everything but nonce and tok, in order, sharing memory with the input.
	Load value.RawMap
}

// ParseRequest reads the plaintext of an aes request: what Crypticle.Open returns. Values share
// memory with packed.
func ParseRequest(packed []byte) (Request, *Refusal) {
	m, err := value.UnpackRawMap(packed)
	if err != nil {
		if _, err := value.Weigh(packed); err == nil {
			return Request{}, refuse(textNotAMap, "not_a_map")
		}
		return Request{}, BadLoad("malformed")
	}
	var r Request
	var id, nonce value.Raw
	kept := m[:0]
	for _, p := range m {
		if p.Other() {
			kept = append(kept, p)
			continue
		}
		switch p.Key {
		case "nonce":
			nonce = p.Value
			continue
		case "tok":
			r.Tok, _ = p.Value.Bytes()
			if r.Tok == nil && !p.Value.IsNil() {
				r.Tok = []byte{} // of another type: present, but never valid
			}
			continue
		case "id":
			id = p.Value
		case "cmd":
			b, _ := p.Value.Bytes()
			r.Cmd = value.Intern(b)
		case "ts":
			r.TS, r.HasTS = parseTS(p.Value)
		}
		kept = append(kept, p)
	}
	if refusal := checkID(id); refusal != nil {
		return Request{}, refusal
	}
	r.ID, _ = id.Text()
	var ok bool
	if r.Nonce, ok = parseNonce(nonce); !ok {
		return Request{}, BadLoad("nonce")
	}
	clear(m[len(kept):])
	r.Load = kept
	return r, nil
}

// parseNonce reads nil as no nonce. Salt's peers only send 32 hexadecimal characters; a nonce of
// another length could not be told from the value after it.
func parseNonce(r value.Raw) (string, bool) {
	if r.IsNil() {
		return "", true
	}
	b, ok := r.Bytes()
	if !ok || (len(b) != nonceSize && len(b) != 0) || !utf8.Valid(b) {
		return "", false
	}
	return string(b), true
}

func parseTS(r value.Raw) (int64, bool) {
	h, err := value.ReadHead(r, 0)
	if err != nil {
		return 0, false
	}
	switch h.Kind {
	case value.KindInt:
		return int64(h.Bits), true
	case value.KindFloat:
		if f := math.Float64frombits(h.Bits); f > -1<<62 && f < 1<<62 {
			return int64(f), true
		}
	}
	return 0, false
}

// Check makes the checks on an opened request that need no key, in Salt's order: age (ttl is the
// option request_server_ttl, 0 for off; it refuses only old requests), the id inside against the
// one outside, the form of the id, and the presence of a token. Below version 3 it checks only the
// form of an id, if there is one. The caller must still verify the token (PublicKey.VerifyToken).
func (r *Request) Check(e Envelope, now time.Time, ttl time.Duration) *Refusal {
	if e.Version < 3 {
		if r.ID != "" && !ValidID(r.ID) {
			return BadLoad("inner_id")
		}
		return nil
	}
	if ttl > 0 {
		if !r.HasTS {
			return BadLoad("ttl")
		}
		if age := float64(now.UnixNano())/1e9 - float64(r.TS); age > ttl.Seconds() {
			return BadLoad("ttl")
		}
	}
	if r.ID != e.ID {
		return BadLoad("id_mismatch")
	}
	if !ValidID(r.ID) {
		return BadLoad("inner_id")
	}
	if len(r.Tok) == 0 {
		return BadLoad("token")
	}
	return nil
}

// ReplyNonce returns the nonce that the reply must carry: none below version 2.
func (r *Request) ReplyNonce(e Envelope) string {
	if e.Version < 2 {
		return ""
	}
	return r.Nonce
}

// VerifyMessage checks the signature that a minion with minion_sign_messages adds to its load, over
// the rest of the load, packed anew in the new specification. It reports whether there is one; a
// wrong one gives ErrSignature.
func (r *Request) VerifyMessage(k *PublicKey, sigAlgo string) (signed bool, err error) {
	v, ok := r.Load.Get("sig")
	if !ok {
		return false, nil
	}
	sig, _ := v.Bytes()
	m, err := r.Load.Without("sig").Map()
	if err != nil {
		return true, err
	}
	packed, err := value.PackNew(m)
	if err != nil {
		return true, err
	}
	return true, k.Verify(sigAlgo, packed, sig)
}
