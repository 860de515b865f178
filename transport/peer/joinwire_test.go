package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"clustermaster/transport/peer/peerpb"
)

// goldenK is JoinKey(testSecret, "kc") as another implementation computes it:
// python-cryptography 50 on OpenSSL, Argon2id with iterations 3, lanes 4,
// memory_cost 65536 and salt SHA-256("clustermaster join key v1\x00kc").
const goldenK = "fb5d709cc167f51aec6755f43db678c4e1c7629d78d5c7204041623cea4b108a"

// The proofs, byte for byte, as Python's hmac and hashlib make them.
func TestProofGolden(t *testing.T) {
	t.Parallel()
	k := make([]byte, joinKeySize)
	for i := range k {
		k[i] = byte(i)
	}
	tr := transcript{
		exporter: [32]byte(bytes.Repeat([]byte{0x11}, 32)),
		hellos:   hashHellos([]byte("joiner's hello"), []byte("member's")),
	}
	for label, want := range map[string]string{
		joinerLabel: "054c9e41212bcc524feae66a434b348450535872132ff90761940bf6c9429c3e",
		memberLabel: "05760a5eed2cea3fd44448a337d3888b31d59a5df89eea5ea8de10f8e28001fc",
	} {
		if got := hex.EncodeToString(tr.proof(k, label)); got != want {
			t.Errorf("%s: %s, want %s", label, got, want)
		}
	}
}

func TestHelloShape(t *testing.T) {
	t.Parallel()
	good := func() *peerpb.JoinHello {
		return &peerpb.JoinHello{
			Protocol: joinProtocol, Id: "m1", Addr: "10.0.0.1:4520", Incarnation: "00ff",
			ClusterId: "kc",
			Version:   "1", Spki: make([]byte, 32), Nonce: make([]byte, 32),
		}
	}
	for _, tc := range []struct {
		name  string
		spoil func(*peerpb.JoinHello)
		ok    bool
	}{
		{"good", func(*peerpb.JoinHello) {}, true},
		{"IPv6", func(h *peerpb.JoinHello) { h.Addr = "[2001:db8::1]:4520" }, true},
		{"another protocol", func(h *peerpb.JoinHello) { h.Protocol++ }, false},
		{"no id", func(h *peerpb.JoinHello) { h.Id = "" }, false},
		{"id with slash", func(h *peerpb.JoinHello) { h.Id = "a/b" }, false},
		{"id is ..", func(h *peerpb.JoinHello) { h.Id = ".." }, false},
		{"long id", func(h *peerpb.JoinHello) { h.Id = strings.Repeat("x", 256) }, false},
		{"no port", func(h *peerpb.JoinHello) { h.Addr = "10.0.0.1" }, false},
		{"port 0", func(h *peerpb.JoinHello) { h.Addr = "10.0.0.1:0" }, false},
		{"port name", func(h *peerpb.JoinHello) { h.Addr = "10.0.0.1:http" }, false},
		{"no host", func(h *peerpb.JoinHello) { h.Addr = ":4520" }, false},
		{"no incarnation", func(h *peerpb.JoinHello) { h.Incarnation = "" }, false},
		{"incarnation not hex", func(h *peerpb.JoinHello) { h.Incarnation = "xyz" }, false},
		{"no cluster_id", func(h *peerpb.JoinHello) { h.ClusterId = "" }, false},
		{"long version", func(h *peerpb.JoinHello) { h.Version = strings.Repeat("x", 65) }, false},
		{"short key", func(h *peerpb.JoinHello) { h.Spki = h.Spki[:31] }, false},
		{"short nonce", func(h *peerpb.JoinHello) { h.Nonce = nil }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := good()
			tc.spoil(m)
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			h, _, err := parseHello(b)
			if (err == nil) != tc.ok || (err != nil &&
				(!errors.Is(err, errJoinHello) || h != Hello{})) {
				t.Errorf("%+v, %v; want ok %t", h, err, tc.ok)
			}
		})
	}
}

func FuzzHello(f *testing.F) {
	key := [32]byte{1}
	b, err := packHello(helloOf("m1"), key, true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, want, err := parseHello(b)
		if err != nil {
			if h != (Hello{}) || want {
				t.Fatalf("an error with %+v", h)
			}
			return
		}
		again, err := packHello(h, h.SPKI, want)
		if err != nil {
			t.Fatalf("%+v does not pack: %v", h, err)
		}
		h2, want2, err := parseHello(again)
		h2.Nonce = h.Nonce
		if err != nil || h2 != h || want2 != want {
			t.Fatalf("%+v became %+v, %v", h, h2, err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 'h', 'i', 'x'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		frame, err := readFrame(r, 1024)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := writeFrame(&out, frame); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), b[:len(b)-r.Len()]) {
			t.Fatalf("%x became %x", b, out.Bytes())
		}
	})
}

func FuzzClusterKey(f *testing.F) {
	f.Add("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", []byte("sig"))
	f.Fuzz(func(t *testing.T, pub string, sig []byte) {
		var c clusterKey
		c.pub = pub
		if checkClusterKey(&peerpb.JoinSignature{ClusterPub: pub, Signature: sig}, c.is,
			[]byte("msg")) == nil {
			t.Fatalf("accepted a signature of nobody: %q %x", pub, sig)
		}
	})
}
