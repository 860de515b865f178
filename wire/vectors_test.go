package wire

import (
	"crypto/rsa"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"strings"
	"sync"
	"testing"
)

// vectors is testdata/vectors.json: what testdata/vectors.py got out of the real library.
type vectors struct {
	Salt      string
	Keys      map[string]string
	MasterPub string `json:"master pub"`
	AES       string
	Session   string
	Nonce     string
	Token     bin
	Sealed    []struct {
		Packed, Sealed bin
		Nonce          string
	}
	X931   []struct{ Message, Signature bin }
	Signed []struct {
		Algorithm          string
		Message, Signature bin
	}
	Encrypted []struct {
		Algorithm           string
		Message, Ciphertext bin
	}
	Clean        [][2]string
	Fingerprints map[string]string
	SignIn       []struct {
		State          string
		Version        int
		Enc, Sig       string
		Cached         bool
		Nonce          string
		Request, Reply bin
	}
	Requests []struct {
		Name           string
		Request, Reply bin
		Value          bin
	}
	Pillar []struct {
		Version               int
		NoNonce               bool `json:"no nonce"`
		Enc, Sig              string
		Request, Reply, Value bin
	}
	Publications []struct {
		Algorithm     string
		Load, Payload bin
	}
	MinionRequests []struct {
		Signed        bool
		Enc, Sig      string
		Load, Request bin
	} `json:"minion requests"`
}

// bin is bytes written in hexadecimal.
type bin []byte

func (b *bin) UnmarshalText(s []byte) error {
	out, err := hex.DecodeString(string(s))
	*b = out
	return err
}

var golden = sync.OnceValue(func() *vectors {
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		panic(err)
	}
	v := new(vectors)
	if err := json.Unmarshal(text, v); err != nil {
		panic(err)
	}
	return v
})

// goldenKey parses one of the RSA keys in the vectors.
func goldenKey(t testing.TB, name string) *PrivateKey {
	t.Helper()
	k, err := ParsePrivateKey([]byte(golden().Keys[name]), "")
	if err != nil {
		t.Fatalf("key %s: %v", name, err)
	}
	return k
}

func mustKey(t testing.TB, text string) Key {
	t.Helper()
	k, err := ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	docKey   = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc="
	docNonce = "0123456789abcdef0123456789abcdef"
)

// docRSA is the test key of the protocol document, 5.4.
var docRSA = sync.OnceValue(func() *PrivateKey {
	number := func(s string) *big.Int {
		n, ok := new(big.Int).SetString(strings.Join(strings.Fields(s), ""), 16)
		if !ok {
			panic("not a number")
		}
		return n
	}
	p := number(`cbdd99177f25340e4d66dc9b56ceec30ee1dc07a43a21cde4c42c1de93b88b1a5b3ea3721de0139ce3f20edc27060c1f
	643769d42426b53e9d15f948a407b98060970f80e9d5c7fedbea82f5688f81e059106e13b004492f0165b56ed1c0d2b3
	624687bb600f999974ba56f89b6927dc9ee3010d838d25ca43397aaf8c59bddf`)
	q := number(`bd01d82ef863b7fcd344c5f46677bd92132657b06ccb7cad86fd327f852b52537d3a8eefaf9b74bef66ddce40c31c99e
	1b739f48f9a0e0abdad7a4785cb56746ebe882e7e4fe5bd7f2502a7f83ae598717c1ea60b6f0efc75f2d5d401288379f
	2200edaff801a921886b04d34d85997e714b078b3cd6a1648f21e1baf84a2d39`)
	one := big.NewInt(1)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	k := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537},
		D:         new(big.Int).ModInverse(big.NewInt(65537), phi),
		Primes:    []*big.Int{p, q},
	}
	k.Precompute()
	key, err := newPrivateKey(k)
	if err != nil {
		panic(err)
	}
	return key
})

// docPublic is the same key's public half as the document prints it.
const docPublic = `-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAloQSDFLBYZm14cirK1Hx
PKPtYHS5+hsu87cAfYd2TtSmekTXa4iaqVWKzD61WkBvdgIA39MZB6FBIqFxL7Gr
fb9HFAv+UNIKra7BYqxFUNaW7iNuJz1lFkk+hNEISYg3kdoBsr4p6uWn2RFBrl8i
BdWW9J4AdxFvRw1ne79kmEHREzB8kJ6eKL0qQfMELoyTUgLRKoMIukW+uY54iMW7
+aDSdyNalVpfjTCNZfOMwgpngKx3Ptl0LkC+41e34qCcLhLKaeCyHPwCExsbXmMD
ekHqjfChoa9fZHNXSnfpI95LF7nAAhadbNgQRs8QYnKJ/vg/93QpJfV85qGo8NF5
pwIDAQAB
-----END PUBLIC KEY-----
`
