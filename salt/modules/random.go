package modules

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"clustermaster/value"
)

// maxRandom bounds the length of a random text.
const maxRandom = 1 << 20

func randomFunctions() []function {
	return []function{
		{name: "random.seed", params: []param{opt("range", int64(10)), opt("hash", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				from := c.any("hash")
				if from == nil {
					from = c.who.ID
				}
				r, err := seeded(from)
				if err != nil {
					return nil, err
				}
				n, err := c.whole("range")
				if err != nil {
					return nil, err
				}
				return r.below(n)
			}},
		{name: "random.rand_int", params: []param{opt("start", int64(1)), opt("end", int64(10)),
			opt("seed", nil)}, run: func(_ context.Context, c *call) (any, error) {
			first, err := c.whole("start")
			if err != nil {
				return nil, err
			}
			last, err := c.whole("end")
			if err != nil {
				return nil, err
			}
			r, err := c.source()
			if err != nil {
				return nil, err
			}
			n, err := r.below(last - first + 1)
			return first + n, err
		}},
		{name: "random.get_str", params: []param{
			opt("length", int64(20)), opt("chars", nil), opt("lowercase", true),
			opt("uppercase", true), opt("digits", true), opt("punctuation", true),
			opt("whitespace", false), opt("printable", false),
		}, run: randomText},
		{name: "random.str_encode", params: []param{need("value"), opt("encoder", "base64")},
			run: func(_ context.Context, c *call) (any, error) {
				if c.text("encoder") != "base64" {
					return nil, errors.New("You must specify a valid encoder")
				}
				b, err := c.bytes("value")
				return base64.StdEncoding.EncodeToString(b), err
			}},
		{name: "random.hash", params: []param{need("value"), opt("algorithm", "sha512")},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := c.bytes("value")
				if err != nil {
					return nil, err
				}
				return digest(c.text("algorithm"), b)
			}},
		{name: "random.sample", params: []param{need("value"), need("size"), opt("seed", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				r, err := c.source()
				if err != nil {
					return nil, err
				}
				k, err := c.whole("size")
				if err != nil {
					return nil, err
				}
				list, err := c.members("value")
				if err != nil {
					return nil, err
				}
				return sample(r, list, k)
			}},
		{name: "random.shuffle", params: []param{need("value"), opt("seed", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				r, err := c.source()
				if err != nil {
					return nil, err
				}
				list, err := c.members("value")
				if err != nil {
					return nil, err
				}
				return sample(r, list, int64(len(list)))
			}},
	}
}

// members are the elements of a list, or the characters of a text.
func (c *call) members(name string) ([]any, error) {
	switch v := c.any(name).(type) {
	case []any:
		return v, nil
	case string:
		var out []any
		for _, r := range v {
			out = append(out, string(r))
		}
		return out, nil
	default:
		return nil, fmt.Errorf("%s must be a list, not %s", name, value.Repr(v))
	}
}

// source returns a source of numbers: Python's sequence for a seed, otherwise an unpredictable one.
func (c *call) source() (drawer, error) {
	if s := c.any("seed"); s != nil {
		return seeded(s)
	}
	return system{}, nil
}

// drawer draws a number from 0 up to, but not including, n.
type drawer interface {
	below(n int64) (int64, error)
}

type system struct{}

func (system) below(n int64) (int64, error) {
	if n <= 0 {
		return 0, errors.New("empty range")
	}
	v, err := rand.Int(rand.Reader, big.NewInt(n))
	if err != nil {
		return 0, err
	}
	return v.Int64(), nil
}

// sample is Python's random.sample.
func sample(r drawer, list []any, k int64) (any, error) {
	n := int64(len(list))
	if k < 0 || k > n {
		return nil, errors.New("Sample larger than population or is negative")
	}
	out := make([]any, 0, k)
	setSize := int64(21)
	if k > 5 {
		setSize += int64(math.Pow(4, math.Ceil(math.Log(float64(k*3))/math.Log(4))))
	}
	if n <= setSize {
		pool := slices.Clone(list)
		for i := range k {
			j, err := r.below(n - i)
			if err != nil {
				return nil, err
			}
			out = append(out, pool[j])
			pool[j] = pool[n-i-1]
		}
		return out, nil
	}
	taken := make(map[int64]bool, k)
	for range k {
		j, err := r.below(n)
		for ; err == nil && taken[j]; j, err = r.below(n) {
		}
		if err != nil {
			return nil, err
		}
		taken[j] = true
		out = append(out, list[j])
	}
	return out, nil
}

const (
	lower       = "abcdefghijklmnopqrstuvwxyz"
	upper       = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits      = "0123456789"
	punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	whitespace  = " \t\n\r\v\f"
)

func randomText(_ context.Context, c *call) (any, error) {
	chars := c.text("chars")
	if chars == "" {
		for _, set := range []struct{ name, chars string }{
			{"lowercase", lower}, {"uppercase", upper}, {"digits", digits},
			{"punctuation", punctuation}, {"whitespace", whitespace},
			{"printable", digits + lower + upper + punctuation + whitespace},
		} {
			if c.is(set.name) {
				chars += set.chars
			}
		}
	}
	n, err := c.whole("length")
	if err != nil {
		return nil, err
	}
	if n = max(n, 0); chars == "" || n > maxRandom {
		return nil, fmt.Errorf("length %d is too long, or no characters are left to choose from", n)
	}
	letters := []rune(chars)
	var b strings.Builder
	for range n {
		i, err := (system{}).below(int64(len(letters)))
		if err != nil {
			return nil, err
		}
		b.WriteRune(letters[i])
	}
	return b.String(), nil
}
