package modules

import (
	"crypto/sha512"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
)

// mersenne is MT19937 as in Python's module random. With it, a formula that spreads work by a
// minion's id gives the same result as in Salt.
type mersenne struct {
	state [624]uint32
	at    int
}

// seeded initializes it as random.seed does for a text or a whole number.
func seeded(v any) (*mersenne, error) {
	var n *big.Int
	switch v := v.(type) {
	case string:
		sum := sha512.Sum512([]byte(v))
		n = new(big.Int).SetBytes(append([]byte(v), sum[:]...))
	case int64:
		n = new(big.Int).Abs(big.NewInt(v))
	case uint64:
		n = new(big.Int).SetUint64(v)
	default:
		return nil, fmt.Errorf("seed of type %T: a text or a whole number is needed", v)
	}
	var key []uint32
	mask := big.NewInt(0xffffffff)
	for n.Sign() > 0 {
		key = append(key, uint32(new(big.Int).And(n, mask).Uint64()))
		n.Rsh(n, 32)
	}
	if len(key) == 0 {
		key = []uint32{0}
	}
	m := &mersenne{}
	m.byArray(key)
	return m, nil
}

func (m *mersenne) seed(s uint32) {
	m.state[0] = s
	for i := 1; i < len(m.state); i++ {
		m.state[i] = 1812433253*(m.state[i-1]^m.state[i-1]>>30) + uint32(i)
	}
	m.at = len(m.state)
}

func (m *mersenne) byArray(key []uint32) {
	m.seed(19650218)
	s := &m.state
	i, j := 1, 0
	step := func() {
		if i++; i >= len(s) {
			s[0], i = s[len(s)-1], 1
		}
	}
	for range max(len(s), len(key)) {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + key[j] + uint32(j)
		step()
		if j++; j >= len(key) {
			j = 0
		}
	}
	for range len(s) - 1 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		step()
	}
	s[0] = 0x80000000
}

func (m *mersenne) next() uint32 {
	s := &m.state
	if m.at >= len(s) {
		for i := range s {
			y := s[i]&0x80000000 | s[(i+1)%len(s)]&0x7fffffff
			v := s[(i+397)%len(s)] ^ y>>1
			if y&1 != 0 {
				v ^= 0x9908b0df
			}
			s[i] = v
		}
		m.at = 0
	}
	y := s[m.at]
	m.at++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// below is Random._randbelow.
func (m *mersenne) below(n int64) (int64, error) {
	if n <= 0 {
		return 0, errors.New("empty range")
	}
	k := bits.Len64(uint64(n))
	for {
		if r := int64(m.bits(k)); r < n {
			return r, nil
		}
	}
}

// bits is Random.getrandbits for up to 63 bits.
func (m *mersenne) bits(k int) uint64 {
	if k <= 32 {
		return uint64(m.next() >> (32 - k))
	}
	low := uint64(m.next())
	return uint64(m.next()>>(64-k))<<32 | low
}
