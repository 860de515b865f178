package modules

import (
	"context"
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // Salt's functions of that name
	"crypto/sha1" //nolint:gosec // Salt's functions of that name
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
)

func newHash(name string) (hash.Hash, error) {
	switch strings.ToLower(name) {
	case "md5":
		return md5.New(), nil //nolint:gosec // see above
	case "sha1":
		return sha1.New(), nil //nolint:gosec // see above
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
		return function{name: "hashutil." + name + "_digest", params: []param{need("instr")}, run: func(_ context.Context, c *call) (any, error) {
			return digest(name, raw(c.any("instr")))
		}}
	}
	of := func(name string, run func(b []byte) (any, error)) function {
		return function{name: name, params: []param{need("instr")}, run: func(_ context.Context, c *call) (any, error) { return run(raw(c.any("instr"))) }}
	}
	decode := func(b []byte) (any, error) {
		out, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(b)), ""))
		return string(out), err
	}
	return []function{
		sum("md5"), sum("sha256"), sum("sha512"),
		{name: "hashutil.base64_encodefile", params: []param{need("fname")}, run: func(_ context.Context, c *call) (any, error) {
			b, err := readFile(c.text("fname"))
			return encodeLines(b), err
		}},
		{name: "hashutil.digest", params: []param{need("instr"), opt("checksum", "md5")}, run: func(_ context.Context, c *call) (any, error) {
			return c.digest(raw(c.any("instr")))
		}},
		{name: "hashutil.digest_file", params: []param{need("infile"), opt("checksum", "md5")}, run: func(_ context.Context, c *call) (any, error) {
			b, err := readFile(c.text("infile"))
			if err != nil {
				return nil, fmt.Errorf("File path '%s' not found.", c.text("infile"))
			}
			return c.digest(b)
		}},
		of("hashutil.base64_b64encode", func(b []byte) (any, error) { return base64.StdEncoding.EncodeToString(b), nil }),
		of("hashutil.base64_b64decode", decode),
		of("hashutil.base64_decodestring", decode),
		of("hashutil.base64_encodestring", func(b []byte) (any, error) { return encodeLines(b), nil }),
		{name: "hashutil.hmac_signature", params: []param{need("string"), need("shared_secret"), need("challenge_hmac")}, run: func(_ context.Context, c *call) (any, error) {
			mac := hmac.New(sha256.New, raw(c.any("shared_secret")))
			mac.Write(raw(c.any("string")))
			return hmac.Equal([]byte(base64.StdEncoding.EncodeToString(mac.Sum(nil))), raw(c.any("challenge_hmac"))), nil
		}},
		{name: "hashutil.hmac_compute", params: []param{need("string"), need("shared_secret")}, run: func(_ context.Context, c *call) (any, error) {
			mac := hmac.New(sha256.New, raw(c.any("shared_secret")))
			mac.Write(raw(c.any("string")))
			return hex.EncodeToString(mac.Sum(nil)), nil
		}},
		{name: "hashutil.github_signature", params: []param{need("string"), need("shared_secret"), need("challenge_hmac")}, run: func(_ context.Context, c *call) (any, error) {
			kind, challenge, ok := strings.Cut(c.text("challenge_hmac"), "=")
			if _, err := newHash(kind); err != nil || !ok {
				return nil, errors.New("challenge_hmac is no hash=value")
			}
			mac := hmac.New(func() hash.Hash { h, _ := newHash(kind); return h }, raw(c.any("shared_secret")))
			mac.Write(raw(c.any("string")))
			return hmac.Equal([]byte(hex.EncodeToString(mac.Sum(nil))), []byte(challenge)), nil
		}},
	}
}

// digest hashes with the argument checksum; Salt's function knows three.
func (c *call) digest(b []byte) (any, error) {
	switch name := c.text("checksum"); name {
	case "md5", "sha256", "sha512":
		return digest(name, b)
	default:
		return nil, fmt.Errorf("Hash func '%s' is not supported.", name)
	}
}
