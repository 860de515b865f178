package wire

import (
	"fmt"

	"clustermaster/value"
)

// ClearReply packs the reply to a clear command, and the whole reply to an accepted sign-in of
// version 0 or 1.
func ClearReply(v any) ([]byte, error) { return value.Pack(v) }

// SealedReply packs the reply to an aes request: the byte string with the sealed value. The nonce
// is the request's, or "" if it had none or its version is below 2.
func SealedReply(c *Crypticle, val any, nonce string) ([]byte, error) {
	return c.sealValue(nil, val, nonce, true)
}

// SealedReplyIn is SealedReply with memory of the caller: the reply uses the capacity of buf if
// that is large enough, else new memory.
func SealedReplyIn(buf []byte, c *Crypticle, val any, nonce string) ([]byte, error) {
	return c.sealValue(buf[:0], val, nonce, true)
}

// UnsignedAuth packs a refusing or pending answer to a sign-in of version 0 or 1, and "bad sig
// algo" and "bad enc algo" for all versions.
func UnsignedAuth(load value.Map) ([]byte, error) { return value.Pack(unsignedAuth(load)) }

func unsignedAuth(load value.Map) value.Map {
	return value.Map{{Key: "enc", Value: encClear}, {Key: "load", Value: load}}
}

// SignedAuth packs any answer to a sign-in of version 2 or 3; load must hold the request's nonce.
// As in Salt, an unknown sigAlgo gives the unsigned "bad sig algo".
func SignedAuth(k *PrivateKey, sigAlgo string, load value.Map) ([]byte, error) {
	if !KnownSignature(sigAlgo) {
		return BadSigAlgo().Reply, nil
	}
	packed, err := value.Pack(load)
	if err != nil {
		return nil, fmt.Errorf("pack sign-in reply: %w", err)
	}
	sig, err := k.Sign(sigAlgo, packed)
	if err != nil {
		return nil, fmt.Errorf("sign sign-in reply: %w", err)
	}
	return value.AppendPack(make([]byte, 0, len(packed)+len(sig)+40),
		value.Map{{Key: "enc", Value: encClear}, {Key: "load", Value: packed},
			{Key: "sig", Value: sig}})
}

// PrivateReply packs the reply to _pillar (dictkey "pillar"): the value under a new key that only
// target can decrypt, and from version 2 on signed together with the nonce. It sends a value false
// as an empty map. From version 2 on a request without a nonce gets Salt's error map. An unknown
// algorithm gives ErrAlgorithm.
func PrivateReply(k *PrivateKey, target *PublicKey, encAlgo, sigAlgo, nonce string, version int,
	dictkey string, val any) ([]byte, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	sealedKey, err := target.Encrypt(encAlgo, []byte(key.String()))
	if err != nil {
		return nil, fmt.Errorf("encrypt key of private reply: %w", err)
	}
	if val == false {
		val = value.Map{}
	}
	if version >= 2 {
		if nonce == "" {
			return value.Pack(value.Map{{Key: "error", Value: "Nonce not included in request"}})
		}
		data, err := value.Pack(value.Map{{Key: "key", Value: sealedKey},
			{Key: dictkey, Value: val}, {Key: "nonce", Value: nonce}})
		if err != nil {
			return nil, fmt.Errorf("pack private reply: %w", err)
		}
		sig, err := k.Sign(sigAlgo, data)
		if err != nil {
			return nil, fmt.Errorf("sign private reply: %w", err)
		}
		val = value.Map{{Key: "data", Value: data}, {Key: "sig", Value: sig}}
	}
	sealed, err := NewCrypticle(key).sealValue(nil, val, "", false)
	if err != nil {
		return nil, fmt.Errorf("private reply: %w", err)
	}
	return value.AppendPack(make([]byte, 0, len(sealed)+len(sealedKey)+len(dictkey)+20),
		value.Map{{Key: "key", Value: sealedKey}, {Key: dictkey, Value: sealed}})
}

// Publication packs a publication: the load sealed with the AES key of all minions, and signed
// unless k is nil. The load must not hold a serial when more than one master publishes.
func Publication(c *Crypticle, k *PrivateKey, sigAlgo string, load value.Map) ([]byte, error) {
	sealed, err := c.sealValue(nil, load, "", false)
	if err != nil {
		return nil, fmt.Errorf("publication: %w", err)
	}
	out := value.Map{{Key: "enc", Value: encAES}, {Key: "load", Value: sealed}}
	if k != nil {
		sig, err := k.Sign(sigAlgo, sealed)
		if err != nil {
			return nil, fmt.Errorf("sign publication: %w", err)
		}
		out = append(out, value.Pair{Key: "sig_algo", Value: sigAlgo},
			value.Pair{Key: "sig", Value: sig})
	}
	return value.AppendPack(make([]byte, 0, PackedGuess(out)), out)
}
