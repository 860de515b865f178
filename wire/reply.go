package wire

import "fmt"

// ClearReply packs the reply to a clear command, and the whole reply to an accepted sign-in of version 0 or 1.
func ClearReply(v any) ([]byte, error) { return Pack(v) }

// SealedReply packs the reply to an aes request: the byte string that holds the sealed value. The nonce is the request's,
// or "" if it had none or its version is below 2.
func SealedReply(c *Crypticle, value any, nonce string) ([]byte, error) {
	return c.sealValue(nil, value, nonce, true)
}

// SealedReplyIn is SealedReply in memory of the caller: the reply lies somewhere in the capacity of buf, if that is large
// enough, else in new memory.
func SealedReplyIn(buf []byte, c *Crypticle, value any, nonce string) ([]byte, error) {
	return c.sealValue(buf[:0], value, nonce, true)
}

// UnsignedAuth packs a refusing or pending answer to a sign-in of version 0 or 1, and "bad sig algo" and "bad enc algo"
// for all versions.
func UnsignedAuth(load Map) ([]byte, error) { return Pack(unsignedAuth(load)) }

func unsignedAuth(load Map) Map { return Map{{"enc", encClear}, {"load", load}} }

// SignedAuth packs any answer to a sign-in of version 2 or 3; load must hold the request's nonce. If sigAlgo is unknown the
// result is the unsigned "bad sig algo", as with Salt.
func SignedAuth(k *PrivateKey, sigAlgo string, load Map) ([]byte, error) {
	if !KnownSignature(sigAlgo) {
		return BadSigAlgo().Reply, nil
	}
	packed, err := Pack(load)
	if err != nil {
		return nil, fmt.Errorf("pack sign-in reply: %w", err)
	}
	sig, err := k.Sign(sigAlgo, packed)
	if err != nil {
		return nil, fmt.Errorf("sign sign-in reply: %w", err)
	}
	return AppendPack(make([]byte, 0, len(packed)+len(sig)+40),
		Map{{"enc", encClear}, {"load", packed}, {"sig", sig}})
}

// PrivateReply packs the reply to _pillar (dictkey "pillar"): the value under a key made for it, which only target can
// decrypt, and from version 2 on signed together with the nonce. A value false is sent as an empty map. From version 2 on a
// request without a nonce gets Salt's error map as its reply. An unknown algorithm is ErrAlgorithm.
func PrivateReply(k *PrivateKey, target *PublicKey, encAlgo, sigAlgo, nonce string, version int, dictkey string, value any) ([]byte, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	sealedKey, err := target.Encrypt(encAlgo, []byte(key.String()))
	if err != nil {
		return nil, fmt.Errorf("encrypt key of private reply: %w", err)
	}
	if value == false {
		value = Map{}
	}
	if version >= 2 {
		if nonce == "" {
			return Pack(Map{{"error", "Nonce not included in request"}})
		}
		data, err := Pack(Map{{"key", sealedKey}, {dictkey, value}, {"nonce", nonce}})
		if err != nil {
			return nil, fmt.Errorf("pack private reply: %w", err)
		}
		sig, err := k.Sign(sigAlgo, data)
		if err != nil {
			return nil, fmt.Errorf("sign private reply: %w", err)
		}
		value = Map{{"data", data}, {"sig", sig}}
	}
	sealed, err := NewCrypticle(key).sealValue(nil, value, "", false)
	if err != nil {
		return nil, fmt.Errorf("private reply: %w", err)
	}
	return AppendPack(make([]byte, 0, len(sealed)+len(sealedKey)+len(dictkey)+20), Map{{"key", sealedKey}, {dictkey, sealed}})
}

// Publication packs a publication: the load sealed with the AES key of all minions, and signed unless k is nil. The load
// must not hold a serial when more than one master publishes.
func Publication(c *Crypticle, k *PrivateKey, sigAlgo string, load Map) ([]byte, error) {
	sealed, err := c.sealValue(nil, load, "", false)
	if err != nil {
		return nil, fmt.Errorf("publication: %w", err)
	}
	out := Map{{"enc", encAES}, {"load", sealed}}
	if k != nil {
		sig, err := k.Sign(sigAlgo, sealed)
		if err != nil {
			return nil, fmt.Errorf("sign publication: %w", err)
		}
		out = append(out, Pair{"sig_algo", sigAlgo}, Pair{"sig", sig})
	}
	return AppendPack(make([]byte, 0, packedGuess(out)), out)
}
