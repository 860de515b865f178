package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// Conformance 57.
// A reply is made in the memory that is given, where it fits.
func TestSealedReplyIn(t *testing.T) {
	t.Parallel()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	c := NewCrypticle(key)
	for _, n := range []int{0, 10, 1000, 5000} {
		memory := make([]byte, 3, 2000)
		val := strings.Repeat("x", n)
		reply, err := SealedReplyIn(memory, c, val, docNonce)
		if err != nil {
			t.Fatal(err)
		}
		if inside := contains(memory[:cap(memory)], &reply[0]); inside != (n < 1500) {
			t.Errorf("%d bytes: in the given memory: %v", n, inside)
		}
		got, err := OpenReply(c, reply, docNonce)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := got.Unpack(); err != nil || v != val {
			t.Errorf("%d bytes: %v, %v", n, v, err)
		}
	}
}

// contains says whether p points into b.
func contains(b []byte, p *byte) bool {
	for i := range b {
		if &b[i] == p {
			return true
		}
	}
	return false
}

func TestPrivateReplyEqualsLibrary(t *testing.T) {
	master, minion := goldenKey(t, "master"), goldenKey(t, "minion")
	for _, v := range golden().Pillar {
		e, r, refusal := receive(t, v.Request, time.Unix(1, 0), 0)
		if refusal != nil {
			t.Fatalf("v%d: %v", v.Version, refusal)
		}
		if v.NoNonce {
			got, err := PrivateReply(master, minion.Public(), e.EncAlgo, e.SigAlgo, r.Nonce,
				e.Version, "pillar", value.Map{})
			if err != nil || !bytes.Equal(got, v.Reply) {
				t.Errorf("no nonce: got %q, %v, want %q", got, err, v.Reply)
			}
			continue
		}
		s := Sender{Version: v.Version, EncAlgo: v.Enc, SigAlgo: v.Sig}
		own, err := PrivateReply(master, minion.Public(), e.EncAlgo, e.SigAlgo, r.Nonce, e.Version,
			"pillar", value.Raw(v.Value))
		if err != nil || len(own) != len(v.Reply) {
			t.Errorf("v%d: our reply has %d bytes, theirs %d, %v", v.Version, len(own),
				len(v.Reply), err)
		}
		for name, reply := range map[string][]byte{"theirs": v.Reply, "ours": own} {
			got, err := OpenPrivate(minion, master.Public(), s, reply, "pillar", golden().Nonce)
			if err != nil || !bytes.Equal(got, v.Value) {
				t.Errorf("v%d, %s: got %x, %v, want %x", v.Version, name, got, err, v.Value)
			}
		}
	}
}

func TestOpenPrivateRefuses(t *testing.T) {
	master, minion := goldenKey(t, "master"), goldenKey(t, "minion")
	reply, err := PrivateReply(master, minion.Public(), EncSHA1, SigSHA1, docNonce, 3,
		"pillar", false)
	if err != nil {
		t.Fatal(err)
	}
	other, err := PrivateReply(master, minion.Public(), EncSHA1, SigSHA1, docNonce, 3, "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := PrivateReply(master, minion.Public(), EncSHA1, SigSHA1, "", 1, "pillar",
		value.Map{})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := value.UnpackMap(reply)
	v3 := Sender{Version: 3}
	tests := []struct {
		name   string
		k      *PrivateKey
		master *PublicKey
		reply  []byte
		nonce  string
		want   error
	}{
		{"good", minion, master.Public(), reply, docNonce, nil},
		{"bad load", minion, master.Public(), mustPack("bad load"), docNonce, ErrAuthentication},
		{"malformed", minion, master.Public(), nil, docNonce, value.ErrMalformed},
		{"error map", minion, master.Public(), mustPack(value.Map{{Key: "error", Value: "x"}}),
			docNonce, ErrAuthentication},
		{"other minion", master, master.Public(), reply, docNonce, ErrDecrypt},
		{"other master", minion, minion.Public(), reply, docNonce, ErrSignature},
		{"other nonce", minion, master.Public(), reply, "x", ErrNonce},
		{"no pillar", minion, master.Public(), mustPack(m.Without("pillar")), docNonce,
			ErrAuthentication},
		{"other dictkey", minion, master.Public(), other, docNonce, ErrAuthentication},
		{"not signed", minion, master.Public(), unsigned, docNonce, ErrSignature},
	}
	for _, tt := range tests {
		got, err := OpenPrivate(tt.k, tt.master, v3, tt.reply, "pillar", tt.nonce)
		if !errors.Is(err, tt.want) || (err != nil && got != nil) {
			t.Errorf("%s: got %x, %v, want %v", tt.name, got, err, tt.want)
		}
		if tt.want == nil && !bytes.Equal(got, []byte{0x80}) {
			t.Errorf("%s: false became %x, want an empty map", tt.name, got)
		}
	}
	for _, algo := range [][2]string{{"FOO", SigSHA1}, {EncSHA1, "FOO"}} {
		if b, err := PrivateReply(master, minion.Public(), algo[0], algo[1], docNonce, 3, "pillar",
			nil); !errors.Is(err, ErrAlgorithm) || b != nil {
			t.Errorf("%v: got %x, %v", algo, b, err)
		}
	}
	if b, err := PrivateReply(master, minion.Public(), EncSHA1, SigSHA1, docNonce, 3, "pillar",
		struct{}{}); !errors.Is(err, value.ErrUnpackable) || b != nil {
		t.Errorf("unpackable: got %x, %v", b, err)
	}
}

func TestPublicationEqualsLibrary(t *testing.T) {
	master := goldenKey(t, "master")
	c := NewCrypticle(mustKey(t, golden().AES))
	for _, v := range golden().Publications {
		load, err := value.UnpackMap(v.Load)
		if err != nil {
			t.Fatal(err)
		}
		var k *PrivateKey
		var pub *PublicKey
		if v.Algorithm != "" {
			k, pub = master, master.Public()
		}
		own, err := Publication(c, k, v.Algorithm, load)
		if err != nil {
			t.Fatal(err)
		}
		for name, payload := range map[string][]byte{"theirs": v.Payload, "ours": own} {
			got, err := NewPubReader(c, pub).OpenPublication(payload)
			if err != nil || !reflect.DeepEqual(got, load) {
				t.Errorf("%s, %s: got %v, %v", v.Algorithm, name, got, err)
			}
			_, err = NewPubReader(c, goldenKey(t, "sign").Public()).OpenPublication(payload)
			if v.Algorithm == "" && !errors.Is(err, ErrAlgorithm) || v.Algorithm != "" &&
				!errors.Is(err, ErrSignature) {
				t.Errorf("%s, %s, other master: %v", v.Algorithm, name, err)
			}
			if _, err := NewPubReader(NewCrypticle(Key{}),
				nil).OpenPublication(payload); !errors.Is(err, ErrAuthentication) {
				t.Errorf("%s, %s, other key: %v", v.Algorithm, name, err)
			}
		}
		a, _ := value.UnpackRawMap(own)
		b, _ := value.UnpackRawMap(v.Payload)
		for i := range b {
			if a[i].Key != b[i].Key {
				t.Errorf("%s: keys %v, want %v", v.Algorithm, a, b)
			}
		}
	}
}

// Conformance 18.
func TestPublicationSerial(t *testing.T) {
	c := NewCrypticle(mustKey(t, docKey))
	r := NewPubReader(c, nil)
	payload := mustPack(value.Map{{Key: "enc", Value: "aes"},
		{Key: "load", Value: unhex(t, docSealed[3].sealed)}})
	first, err := r.OpenPublication(payload)
	if err != nil || first.String("fun") != "test.ping" {
		t.Fatalf("first: %v, %v", first, err)
	}
	if _, ok := first.Get("serial"); ok {
		t.Error("serial is left in the load")
	}
	for name, serial := range map[string]any{"same": 1, "lower": 0, "text": "2"} {
		p, err := Publication(c, nil, "",
			value.Map{{Key: "fun", Value: "x"}, {Key: "serial", Value: serial}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.OpenPublication(p); err != nil || len(got) != 0 {
			t.Errorf("%s serial: got %v, %v", name, got, err)
		}
	}
	if again, err := r.OpenPublication(payload); err != nil || len(again) != 0 {
		t.Errorf("second: %v, %v", again, err)
	}
	for _, load := range []value.Map{{{Key: "fun", Value: "x"}, {Key: "serial", Value: 9}},
		{{Key: "fun", Value: "x"}}, {{Key: "fun", Value: "x"}}} {
		p, err := Publication(c, nil, "", load)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.OpenPublication(p); err != nil || got.String("fun") != "x" {
			t.Errorf("%v: got %v, %v", load, got, err)
		}
	}
	if _, err := r.OpenPublication([]byte{0xc0}); !errors.Is(err, value.ErrMalformed) {
		t.Errorf("nil: %v", err)
	}
	if _, err := Publication(c, goldenKey(t, "master"), "FOO", value.Map{}); !errors.Is(err,
		ErrAlgorithm) {
		t.Errorf("unknown algorithm: %v", err)
	}
	if _, err := Publication(c, nil, "", value.Map{{Key: "x", Value: struct{}{}}}); !errors.Is(err,
		value.ErrUnpackable) {
		t.Errorf("unpackable: %v", err)
	}
}

func TestOpenReply(t *testing.T) {
	c := NewCrypticle(mustKey(t, docKey))
	good, err := SealedReply(c, strings.Repeat("x", 70000), docNonce)
	if err != nil {
		t.Fatal(err)
	}
	bare := append([]byte{0xda, 0, 0x60}, unhex(t, docSealed[1].sealed)...)
	odd, err := SealedReply(c, value.Raw{0xc1}, "")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, nonce string
		in          []byte
		value       []byte
		want        error
	}{
		{"long", docNonce, good, mustPack(strings.Repeat("x", 70000)), nil},
		{"V2", docNonce, bare, []byte{0xc3}, nil},
		{"nil", docNonce, []byte{0xc0}, []byte{0xc0}, nil},
		{"empty text", docNonce, []byte{0xa0}, []byte{0xc0}, nil},
		{"empty map", docNonce, []byte{0x80}, []byte{0xc0}, nil},
		{"bad load", docNonce, mustPack("bad load"), nil, ErrAuthentication},
		{"map", docNonce, mustPack(value.Map{{Key: "a", Value: 1}}), nil, ErrNotSealed},
		{"int", docNonce, []byte{1}, nil, ErrNotSealed},
		{"empty", docNonce, nil, nil, value.ErrMalformed},
		{"trailing", docNonce, append(bare[:len(bare):len(bare)], 0), nil, value.ErrMalformed},
		{"other nonce", strings.Repeat("0", 32), bare, nil, ErrNonce},
		{"malformed inside", "", odd, nil, value.ErrMalformed},
	}
	for _, tt := range tests {
		got, err := OpenReply(c, tt.in, tt.nonce)
		if !errors.Is(err, tt.want) || !bytes.Equal(got, tt.value) {
			t.Errorf("%s: got %d bytes, %v, want %d, %v", tt.name, len(got), err, len(tt.value),
				tt.want)
		}
	}
	if b, err := SealedReply(c, struct{}{}, ""); !errors.Is(err, value.ErrUnpackable) || b != nil {
		t.Errorf("unpackable: %x, %v", b, err)
	}
}

// Requests of all versions arrive as they were meant.
func TestSealRequest(t *testing.T) {
	tok, err := TokenSalt(goldenKey(t, "minion"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(100, 0)
	for version := range 4 {
		key := golden().AES
		if version > 2 {
			key = golden().Session
		}
		s := Sender{Version: version, ID: "m1", Tok: tok}
		load := value.Map{{Key: "cmd", Value: "_return"}, {Key: "id", Value: "m1"}}
		b, err := s.SealRequest(NewCrypticle(mustKey(t, key)), load, docNonce, now)
		if err != nil {
			t.Fatal(err)
		}
		e, r, refusal := receive(t, b, now, time.Second)
		if refusal != nil {
			t.Errorf("v%d: %v", version, refusal)
		}
		if e.Version != version || r.ID != "m1" || r.Cmd != "_return" ||
			(r.Nonce == docNonce) != (version > 1) || r.HasTS != (version > 2) || len(load) != 2 {
			t.Errorf("v%d: got %+v, %+v", version, e, r)
		}
	}
	b, err := ClearRequest(value.Map{{Key: "cmd", Value: "ping"}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if e, refusal := ParseEnvelope(b); refusal != nil || e.Clear.String("cmd") != "ping" {
		t.Errorf("clear: %+v, %v", e, refusal)
	}
}

func TestTopic(t *testing.T) {
	if got := Topic("m3006"); got != "bb80758810b7fc09140b929d1f558950eefe67b8" {
		t.Errorf("got %s", got)
	}
}

func TestDeriveSession(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	base := DeriveSession(secret, "m1", [32]byte{1}, 5)
	if base != DeriveSession(secret, "m1", [32]byte{1}, 5) {
		t.Error("not the same twice")
	}
	if got, want := base.String(), goldenSession; got != want {
		t.Errorf("got %s, want %s: every minion would have to sign in again", got, want)
	}
	for name, k := range map[string]Key{
		"secret": DeriveSession(bytes.Repeat([]byte{8}, 32), "m1", [32]byte{1}, 5),
		"id":     DeriveSession(secret, "m2", [32]byte{1}, 5),
		"key":    DeriveSession(secret, "m1", [32]byte{2}, 5),
		"index":  DeriveSession(secret, "m1", [32]byte{1}, 6),
	} {
		if k == base {
			t.Errorf("another %s gives the same key", name)
		}
	}
}

// goldenSession pins DeriveSession over releases.
const goldenSession = "wbo85ZC0Qn/r74BjHVwDzRwBprIaRL5WOfQkvvz/1kPX0UPhU4k58fIAZHvEj8LBSrLQyOB77q8="

func TestTimes(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 38, 24, 128016999, time.FixedZone("", 3600))
	if got := Stamp(at); got != "2026-11-21T09:38:24.128016+00:00" {
		t.Errorf("stamp: got %s", got)
	}
	if got := JID(at); got != "20261121093824128016" {
		t.Errorf("jid: got %s", got)
	}
	for jid, want := range map[string]string{
		"20261121093824128016":     "2026, Nov 21 09:38:24.128016",
		"20260121093824128016_123": "2026, Jan 21 09:38:24.128016",
		"20261321093824128016":     "",
		"req":                      "",
		"20261121093824128016_":    "",
		"2026112109382412801":      "",
		"202611210938241280166":    "",
		"2026112109382412801x":     "",
		"":                         "",
	} {
		if got := JIDTime(jid); got != want {
			t.Errorf("%q: got %q, want %q", jid, got, want)
		}
		if got := IsJID(jid); got != (want != "" || jid == "20261321093824128016") {
			t.Errorf("%q: is a job id: %v", jid, got)
		}
	}
}
