package wire

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
)

// ErrTooLong is returned for a message that does not fit an RSA key.
var ErrTooLong = errors.New("message too long for the key")

// X931 is Salt's "private encrypt": it pads msg as ANSI X9.31 does (without a hash) and raises it
// to the private exponent. It is deterministic. The exponentiation is blinded, and checked before
// it is returned, so neither its timing nor a fault reveals the key.
func (k *PrivateKey) X931(msg []byte) ([]byte, error) {
	size := k.key.Size()
	em, err := padX931(msg, size)
	if err != nil {
		return nil, fmt.Errorf("sign X9.31: %w", err)
	}
	m := new(big.Int).SetBytes(em)
	n := k.key.N
	if m.Cmp(n) >= 0 {
		return nil, fmt.Errorf("sign X9.31: %w", ErrTooLong)
	}
	s, err := k.exponent(m)
	if err != nil {
		return nil, fmt.Errorf("sign X9.31: %w", err)
	}
	if t := new(big.Int).Sub(n, s); t.Cmp(s) < 0 {
		s = t
	}
	return s.FillBytes(make([]byte, size)), nil
}

// exponent returns m^d mod n.
func (k *PrivateKey) exponent(m *big.Int) (*big.Int, error) {
	n, e := k.key.N, big.NewInt(int64(k.key.E))
	var r, inverse *big.Int
	for {
		var err error
		if r, err = rand.Int(rand.Reader, n); err != nil {
			return nil, fmt.Errorf("make blinding factor: %w", err)
		}
		if r.Sign() > 0 {
			if inverse = new(big.Int).ModInverse(r, n); inverse != nil {
				break
			}
		}
	}
	blind := new(big.Int).Exp(r, e, n)
	blind.Mul(blind, m).Mod(blind, n)

	var s *big.Int
	if len(k.key.Primes) == 2 && k.key.Precomputed.Dp != nil {
		p, q := k.key.Primes[0], k.key.Primes[1]
		a := new(big.Int).Exp(blind, k.key.Precomputed.Dp, p)
		s = new(big.Int).Exp(blind, k.key.Precomputed.Dq, q)
		a.Sub(a, s).Mul(a, k.key.Precomputed.Qinv).Mod(a, p)
		s.Add(s, a.Mul(a, q))
	} else {
		s = new(big.Int).Exp(blind, k.key.D, n)
	}
	s.Mul(s, inverse).Mod(s, n)
	if new(big.Int).Exp(s, e, n).Cmp(m) != 0 {
		return nil, errors.New("result does not verify")
	}
	return s, nil
}

// RecoverX931 is Salt's "public decrypt": it returns the message inside an X9.31 signature. A
// signature of another length than the modulus, or not of this key, gives ErrSignature.
func (k *PublicKey) RecoverX931(sig []byte) ([]byte, error) {
	size := k.key.Size()
	if len(sig) != size {
		return nil, fmt.Errorf("recover X9.31 message from %d bytes: %w", len(sig), ErrSignature)
	}
	s := new(big.Int).SetBytes(sig)
	if s.Cmp(k.key.N) >= 0 {
		return nil, fmt.Errorf("recover X9.31 message: %w", ErrSignature)
	}
	x := s.Exp(s, big.NewInt(int64(k.key.E)), k.key.N)
	if x.Bit(0) != 0 || x.Bit(1) != 0 || x.Bit(2) != 1 || x.Bit(3) != 1 { // not 12 modulo 16
		x.Sub(k.key.N, x)
	}
	msg, ok := unpadX931(x.FillBytes(make([]byte, size)))
	if !ok {
		return nil, fmt.Errorf("recover X9.31 message: %w", ErrSignature)
	}
	return msg, nil
}

func padX931(msg []byte, size int) ([]byte, error) {
	switch {
	case len(msg) > size-2:
		return nil, ErrTooLong
	case len(msg) == size-2:
		return append(append([]byte{0x6a}, msg...), 0xcc), nil
	}
	em := append(make([]byte, 0, size), 0x6b)
	for range size - 3 - len(msg) {
		em = append(em, 0xbb)
	}
	return append(append(append(em, 0xba), msg...), 0xcc), nil
}

func unpadX931(em []byte) ([]byte, bool) {
	last := len(em) - 1
	if em[last] != 0xcc {
		return nil, false
	}
	switch em[0] {
	case 0x6a:
		return em[1:last], true
	case 0x6b:
		for i, c := range em[1:last] {
			switch c {
			case 0xbb:
			case 0xba:
				return em[i+2 : last], true
			default:
				return nil, false
			}
		}
	}
	return nil, false
}
