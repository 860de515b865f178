package modules

import (
	"context"
	"crypto/hmac"
	"crypto/md5"  // Salt's functions of that name
	"crypto/sha1" // Salt's functions of that name
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"unicode/utf8"
)

func newHash(name string) (hash.Hash, error) {
	switch strings.ToLower(name) {
	case "md5":
		return md5.New(), nil // see above
	case "sha1":
		return sha1.New(), nil // see above
	case "sha224":
		return sha256.New224(), nil
	case "sha256", "":
		return sha256.New(), nil
	case "sha384":
		return sha512.New384(), nil
	case "sha512":
		return sha512.New(), nil
	}
	return nil, fmt.Errorf("Invalid hash type: %s", name)
}

func digest(name string, b []byte) (string, error) {
	h, err := newHash(name)
	if err != nil {
		return "", err
	}
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// encodeLines is base64 of 57 bytes to a line, with a line break at the end.
func encodeLines(b []byte) string {
	var out strings.Builder
	for line := range slices.Chunk(b, 57) {
		out.WriteString(base64.StdEncoding.EncodeToString(line) + "\n")
	}
	return out.String()
}

func hashFunctions() []function {
	sum := func(name string) function {
		return function{name: "hashutil." + name + "_digest", params: []param{need("instr")},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := c.bytes("instr")
				if err != nil {
					return nil, err
				}
				return digest(name, b)
			}}
	}
	of := func(name string, run func(b []byte) (any, error)) function {
		return function{name: name, params: []param{need("instr")},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := c.bytes("instr")
				if err != nil {
					return nil, err
				}
				return run(b)
			}}
	}
	decode := func(b []byte) (any, error) {
		out, err := decodeBase64(b)
		if err != nil || !utf8.Valid(out) {
			return out, err
		}
		return string(out), nil
	}
	mac := func(kind string, c *call) ([]byte, error) {
		secret, err := c.bytes("shared_secret")
		if err != nil {
			return nil, err
		}
		b, err := c.bytes("string")
		if err != nil {
			return nil, err
		}
		if _, err := newHash(kind); err != nil {
			return nil, err
		}
		h := hmac.New(func() hash.Hash { h, _ := newHash(kind); return h }, secret)
		h.Write(b)
		return h.Sum(nil), nil
	}
	return []function{
		sum("md5"), sum("sha256"), sum("sha512"),
		{name: "hashutil.base64_encodefile", params: []param{need("fname")},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := readFile(c.text("fname"))
				return encodeLines(b), err
			}},
		{name: "hashutil.digest", params: []param{need("instr"), opt("checksum", "md5")},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := c.bytes("instr")
				if err != nil {
					return nil, err
				}
				return c.digest(b)
			}},
		{name: "hashutil.digest_file", params: []param{need("infile"), opt("checksum", "md5")},
			run: func(_ context.Context, c *call) (any, error) {
				b, err := readFile(c.text("infile"))
				if err != nil {
					return nil, fmt.Errorf("File path '%s' not found.", c.text("infile"))
				}
				return c.digest(b)
			}},
		of("hashutil.base64_b64encode", func(b []byte) (any,
			error) {
			return base64.StdEncoding.EncodeToString(b), nil
		}),
		of("hashutil.base64_b64decode", decode),
		of("hashutil.base64_decodestring", decode),
		of("hashutil.base64_encodestring", func(b []byte) (any, error) {
			return encodeLines(b),
				nil
		}),
		{name: "hashutil.hmac_signature", params: []param{need("string"), need("shared_secret"),
			need("challenge_hmac")}, run: func(_ context.Context, c *call) (any, error) {
			challenge, err := c.bytes("challenge_hmac")
			if err != nil {
				return nil, err
			}
			sum, err := mac("sha256", c)
			return hmac.Equal([]byte(base64.StdEncoding.EncodeToString(sum)), challenge), err
		}},
		{name: "hashutil.hmac_compute", params: []param{need("string"), need("shared_secret")},
			run: func(_ context.Context, c *call) (any, error) {
				sum, err := mac("sha256", c)
				return hex.EncodeToString(sum), err
			}},
		{name: "hashutil.github_signature", params: []param{need("string"), need("shared_secret"),
			need("challenge_hmac")}, run: func(_ context.Context, c *call) (any, error) {
			kind, challenge, ok := strings.Cut(c.text("challenge_hmac"), "=")
			if !ok {
				return nil, errors.New("challenge_hmac is not of the form hash=value")
			}
			sum, err := mac(kind, c)
			return hmac.Equal([]byte(hex.EncodeToString(sum)), []byte(challenge)), err
		}},
	}
}

// decodeBase64 is Python's base64.b64decode: it skips characters outside the alphabet, and stops at
// the padding.
func decodeBase64(b []byte) ([]byte, error) {
	var letters []byte
	pads, ended := 0, false
	for _, c := range b {
		switch {
		case c == '=':
			if pads++; len(letters)%4 >= 2 && len(letters)%4+pads >= 4 {
				ended = true
			}
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '/':
			letters, pads = append(letters, c), 0
		}
		if ended {
			break
		}
	}
	switch rest := len(letters) % 4; {
	case rest == 1:
		return nil,
			fmt.Errorf("Invalid base64-encoded string: number of data characters (%d) cannot be 1 more than a multiple of 4", len(letters)) // Python's text
	case rest != 0 && !ended:
		return nil, errors.New("Incorrect padding") // Python's text
	}
	return base64.RawStdEncoding.DecodeString(string(letters))
}

// digest hashes with the algorithm in the argument checksum, one of the three that
// Salt's function supports.
func (c *call) digest(b []byte) (any, error) {
	switch name := c.text("checksum"); name {
	case "md5", "sha256", "sha512":
		return digest(name, b)
	default:
		return nil, fmt.Errorf("Hash func '%s' is not supported.", name)
	}
}
