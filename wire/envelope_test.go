package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// receive does with a request what a master does before it looks at the token: the keys are those
// of the vectors, the only accepted minion is m1.
func receive(t testing.TB, payload []byte, now time.Time, ttl time.Duration) (Envelope, Request,
	*Refusal) {
	t.Helper()
	e, refusal := ParseEnvelope(payload)
	if refusal != nil || e.Enc == "clear" {
		return e, Request{}, refusal
	}
	key := golden().AES
	if e.Version > 2 {
		if e.ID != "m1" {
			return e, Request{}, BadLoad("unknown_id")
		}
		key = golden().Session
	}
	packed, err := NewCrypticle(mustKey(t, key)).Open(e.Sealed)
	if err != nil {
		return e, Request{}, BadLoad("authentication")
	}
	r, refusal := ParseRequest(packed)
	if refusal != nil {
		return e, r, refusal
	}
	return e, r, r.Check(e, now, ttl)
}

// Each request that a real master refuses is refused with the same bytes; what it serves is served,
// and its reply is sealed as ours. Where its worker stops answering, we refuse. Wrong tokens are
// for serve/master, whose TestTokensEqualLibrary has the same requests.
func TestRequestsEqualLibrary(t *testing.T) {
	for _, v := range golden().Requests {
		t.Run(v.Name, func(t *testing.T) {
			e, r, refusal := receive(t, v.Request, time.Unix(1, 0), 0)
			sealed := len(v.Reply) > 0 && v.Reply[0] == 0xda && len(v.Reply) >= 64 &&
				!bytes.Contains(v.Reply, []byte("bad load"))
			if !sealed && !bytes.Equal(v.Reply, []byte{0x80}) {
				if v.Name == "version nil" {
					if refusal != nil || e.Version != 0 {
						t.Errorf("got version %d, %v, want a request of version 0", e.Version,
							refusal)
					}
					return
				}
				want := []byte(v.Reply)
				if want == nil {
					want = mustPack("bad load")
				}
				if refusal == nil && goldenKey(t, "minion").Public().VerifyToken(r.Tok) != nil {
					return
				}
				if refusal == nil || !bytes.Equal(refusal.Reply, want) {
					t.Errorf("got %v, want the reply %q", refusal, want)
				}
				return
			}
			if refusal != nil {
				t.Fatal(refusal)
			}
			if e.Enc == "clear" {
				return
			}
			key := golden().AES
			if e.Version > 2 {
				key = golden().Session
			}
			c := NewCrypticle(mustKey(t, key))
			val, err := OpenReply(c, v.Reply, r.ReplyNonce(e))
			if err != nil {
				t.Fatalf("reply: %v", err)
			}
			if v.Value != nil && !bytes.Equal(val, v.Value) {
				t.Errorf("reply: got %x, want %x", val, v.Value)
			}
			own, err := SealedReply(c, val, r.ReplyNonce(e))
			if err != nil || len(own) != len(v.Reply) {
				t.Errorf("our reply has %d bytes, theirs %d: %v", len(own), len(v.Reply), err)
			}
			again, err := OpenReply(c, own, r.ReplyNonce(e))
			if err != nil || !bytes.Equal(again, val) {
				t.Errorf("our reply opens to %x, %v", again, err)
			}
			if r.Cmd != "_return" || r.Load.String("cmd") != "_return" {
				t.Errorf("got cmd %q, load %v", r.Cmd, r.Load)
			}
			if _, ok := r.Load.Get("tok"); ok {
				t.Error("tok is in the load")
			}
			if _, ok := r.Load.Get("nonce"); ok {
				t.Error("nonce is in the load")
			}
		})
	}
}

// Conformance 14 and the first row of 7.6.
func TestParseEnvelopeUndecodable(t *testing.T) {
	want := mustPack(value.Map{{Key: "error", Value: "Routing error"}})
	good := mustPack(value.Map{{Key: "enc", Value: "clear"}, {Key: "load", Value: value.Map{}}})
	for name, payload := range map[string][]byte{
		"empty": {}, "trailing": append(good, 0), "cut": good[:len(good)-1],
		"array key": unhex(t, "8190c0"), "text": []byte("GET / HTTP/1.1\r\n\r\n"),
		"zmtp": unhex(t, "ff00000000000000017f"), "deep": bytes.Repeat([]byte{0x91}, 1<<20),
	} {
		if _, refusal := ParseEnvelope(payload); refusal == nil ||
			!bytes.Equal(refusal.Reply, want) || refusal.Reason != "routing" {
			t.Errorf("%s: %v", name, refusal)
		}
	}
}

// Conformance 11: every form of text for every key of the envelope.
func TestParseEnvelopeForms(t *testing.T) {
	forms := map[string]func(s string) value.Raw{
		"raw": func(s string) value.Raw { return mustPack(s) },
		"raw16": func(s string) value.Raw {
			return append(value.Raw{0xda, byte(len(s) >> 8),
				byte(len(s))}, s...)
		},
		"str8": func(s string) value.Raw { return append(value.Raw{0xd9, byte(len(s))}, s...) },
		"bin8": func(s string) value.Raw { return append(value.Raw{0xc4, byte(len(s))}, s...) },
		"bin16": func(s string) value.Raw {
			return append(value.Raw{0xc5, byte(len(s) >> 8),
				byte(len(s))}, s...)
		},
	}
	sealed := strings.Repeat("\xff", 64)
	for name, form := range forms {
		fields := [][2]value.Raw{
			{form("enc"), form("aes")}, {form("load"), form(sealed)}, {form("version"), form("3")},
			{form("id"), form("m1")},
			{form("enc_algo"), form(EncSHA224)}, {form("sig_algo"), form(SigSHA224)},
			{value.Raw{0xc0}, value.Raw{1}}, {form("extra"), value.Raw{0x80}},
		}
		payload := []byte{0x80 | byte(len(fields))}
		for _, f := range fields {
			payload = append(append(payload, f[0]...), f[1]...)
		}
		e, refusal := ParseEnvelope(payload)
		want := Envelope{Enc: "aes", Version: 3, ID: "m1", EncAlgo: EncSHA224, SigAlgo: SigSHA224,
			Sealed: []byte(sealed)}
		if refusal != nil || !reflect.DeepEqual(e, want) {
			t.Errorf("%s: got %+v, %v", name, e, refusal)
		}
	}
}

func TestParseEnvelopeDetails(t *testing.T) {
	clear := func(more ...value.Pair) value.Map {
		return append(value.Map{{Key: "enc", Value: "clear"},
			{Key: "load", Value: value.Map{{Key: "cmd", Value: "ping"}}}}, more...)
	}
	aes := func(more ...value.Pair) value.Map {
		return append(value.Map{{Key: "enc", Value: "aes"}, {Key: "load", Value: []byte{0xff}},
			{Key: "id", Value: "a"}}, more...)
	}
	const badLoad = "a8626164206c6f6164"
	tests := []struct {
		name    string
		in      value.Map
		minimum int
		version int
		reply   string // hex of the refusal, "" for none
	}{
		{"no version", clear(), 0, 0, ""},
		{"minus", clear(value.Pair{Key: "version", Value: -1}), 0, 0, ""},
		{"float", clear(value.Pair{Key: "version", Value: 2.9}), 0, 2, ""},
		{"not a number", clear(value.Pair{Key: "version", Value: nan()}), 0, 0, ""},
		{"huge", clear(value.Pair{Key: "version", Value: ^uint64(0)}), 0, 3, ""},
		{"bytes", clear(value.Pair{Key: "version", Value: []byte{0xff}}), 0, 0, ""},
		{"nil", clear(value.Pair{Key: "version", Value: nil}), 0, 0, ""},
		{"false", clear(value.Pair{Key: "version", Value: false}), 0, 0, ""},
		{"map", clear(value.Pair{Key: "version", Value: value.Map{}}), 0, 0, badLoad},
		{"twice", clear(value.Pair{Key: "version", Value: 1}, value.Pair{Key: "version", Value: 2}),
			0, 2, ""},
		// Conformance 27.
		{"v2 below minimum", clear(value.Pair{Key: "version", Value: 2}), 3, 0, badLoad},
		{"v2 aes below minimum", aes(value.Pair{Key: "version", Value: 2}), 3, 0, badLoad},
		{"no version below minimum", clear(), 2, 0, badLoad},
		{"v3 at minimum", aes(value.Pair{Key: "version", Value: 3}), 3, 3, ""},
		{"v2 at minimum 0", aes(value.Pair{Key: "version", Value: 2}), 0, 2, ""},
		{"minimum before load", value.Map{{Key: "enc", Value: "clear"}, {Key: "load", Value: 1}}, 1,
			0, badLoad},
		{"load too long", value.Map{{Key: "enc", Value: "clear"},
			{Key: "load", Value: value.Map{{Key: "x", Value: strings.Repeat("x", MaxClear)}}}}, 0,
			0, badLoad},
		{"id too long", aes(value.Pair{Key: "version", Value: 3},
			value.Pair{Key: "id", Value: strings.Repeat("a", 256)}), 0, 0, badLoad},
		{"id not UTF-8", aes(value.Pair{Key: "version", Value: 3},
			value.Pair{Key: "id", Value: []byte("a\xff")}), 0, 0, badLoad},
	}
	for _, tt := range tests {
		e, refusal := ParseEnvelopeWithin(EnvelopeLimits{MinimumVersion: tt.minimum},
			mustPack(tt.in))
		switch {
		case tt.reply == "" && (refusal != nil || e.Version != tt.version):
			t.Errorf("%s: got version %d, %v, want %d", tt.name, e.Version, refusal, tt.version)
		case tt.reply != "" && (refusal == nil || hex.EncodeToString(refusal.Reply) != tt.reply ||
			refusal.Error() == ""):
			t.Errorf("%s: got %+v, %v", tt.name, e, refusal)
		}
	}
	e, _ := ParseEnvelope(mustPack(aes(value.Pair{Key: "enc_algo", Value: 1},
		value.Pair{Key: "sig_algo", Value: "x"})))
	if KnownEncryption(e.EncAlgo) || e.SigAlgo != "x" || e.ID != "" {
		t.Errorf("algorithms: got %+v", e)
	}
}

// noMemory lends nothing, and remembers what it was asked for.
type noMemory struct{ asked []int64 }

func (m *noMemory) Hold(n int64) bool {
	m.asked = append(m.asked, n)
	return false
}

// A clear load is decoded only within its limits.
func TestParseEnvelopeWithin(t *testing.T) {
	numbers := make([]any, 40_000) // each takes 16 bytes
	for i := range numbers {
		numbers[i] = i % 100
	}
	dense := mustPack(value.Map{{Key: "enc", Value: "clear"},
		{Key: "load", Value: value.Map{{Key: "cmd", Value: "publish"},
			{Key: "arg", Value: numbers}}}, {Key: "version", Value: 3}})
	if _, refusal := ParseEnvelope(dense); reason(refusal) != "clear_too_dense" ||
		!bytes.Equal(refusal.Reply, mustPack("bad load")) {
		t.Errorf("without room: %v", refusal)
	}
	e, refusal := ParseEnvelopeWithin(EnvelopeLimits{Room: 1 << 20}, dense)
	if arg, _ := e.Clear.Get("arg"); refusal != nil ||
		!reflect.DeepEqual(arg, unpacked(t, mustPack(numbers))) {
		t.Errorf("with room: %v", refusal)
	}
	m := new(noMemory)
	if _, refusal := ParseEnvelopeWithin(EnvelopeLimits{Room: 1 << 20, Memory: m},
		dense); reason(refusal) != "memory" || refusal.Reply != nil {
		t.Errorf("without memory: %v", refusal)
	}
	if len(m.asked) != 1 || m.asked[0] < 16*40_000 || m.asked[0] > 32*40_000 {
		t.Errorf("asked for %v", m.asked)
	}
	// What is sealed is nobody's memory yet, however long it is.
	sealed := mustPack(value.Map{{Key: "enc", Value: "aes"},
		{Key: "load", Value: make([]byte, 4<<20)}, {Key: "version", Value: 3},
		{Key: "id", Value: "m1"}})
	if e, refusal := ParseEnvelopeWithin(EnvelopeLimits{Memory: m}, sealed); refusal != nil ||
		len(e.Sealed) != 4<<20 || len(m.asked) != 1 {
		t.Errorf("sealed: %v, asked for %v", refusal, m.asked)
	}
	// A key in another form of text is found where the decoded load has it.
	id := append([]byte{0x82, 0xa3, 'e', 'n', 'c', 0xa5, 'c', 'l', 'e', 'a', 'r', 0xa4, 'l', 'o',
		'a', 'd', 0x81}, 0xc7, 2, 5, 'i', 'd', 0xa1, 0)
	if _, refusal := ParseEnvelope(id); reason(refusal) != "id_null_byte" {
		t.Errorf("id under an extension: %v", refusal)
	}
}

func unpacked(t *testing.T, b []byte) any {
	t.Helper()
	v, err := value.Unpack(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func nan() float64 { z := 0.0; return z / z }

func TestValidID(t *testing.T) {
	for _, id := range []string{"m1", "web1.example.com", "a b", "Gr\u00fc\u00dfe", "...",
		".hidden", strings.Repeat("a", 255)} {
		if !ValidID(id) {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "/", `a\b`, "a\x00", "../m1", "\xff",
		strings.Repeat("a", 256),
		"a\n", "a\r\nb", "\ta", "a\x1b[2J", "a\x7f", "a\u0085b", "a\u2028b", "a\u2029b"} {
		if ValidID(id) {
			t.Errorf("%q is accepted", id)
		}
	}
}

// Conformance 28 to 30, and what the vectors don't vary.
func TestCheck(t *testing.T) {
	now := time.Unix(1_000_000, 500_000_000)
	v3, v2 := Envelope{Enc: "aes", Version: 3, ID: "m1"}, Envelope{Enc: "aes", Version: 2}
	tok := []byte{1}
	tests := []struct {
		name   string
		e      Envelope
		r      Request
		ttl    time.Duration
		reason string
	}{
		{"good", v3, Request{ID: "m1", Tok: tok}, 0, ""},
		{"other id", v3, Request{ID: "m2", Tok: tok}, 0, "id_mismatch"},
		{"no id", v3, Request{Tok: tok}, 0, "id_mismatch"},
		{"no token", v3, Request{ID: "m1"}, 0, "token"},
		{"old, ttl off", v3, Request{ID: "m1", Tok: tok, HasTS: true, TS: 1}, 0, ""},
		{"31 s old", v3, Request{ID: "m1", Tok: tok, HasTS: true, TS: 1_000_000 - 31},
			30 * time.Second, "ttl"},
		{"29 s old", v3, Request{ID: "m1", Tok: tok, HasTS: true, TS: 1_000_000 - 29},
			30 * time.Second, ""},
		{"an hour ahead", v3, Request{ID: "m1", Tok: tok, HasTS: true, TS: 1_003_600},
			30 * time.Second, ""},
		{"age overflows", v3, Request{ID: "m1", Tok: tok, HasTS: true, TS: -1 << 63},
			30 * time.Second, "ttl"},
		{"no ts", v3, Request{ID: "m1", Tok: tok}, 30 * time.Second, "ttl"},
		{"v2 without anything", v2, Request{}, 30 * time.Second, ""},
		{"v2 bad id", v2, Request{ID: "../m1"}, 0, "inner_id"},
	}
	for _, tt := range tests {
		refusal := tt.r.Check(tt.e, now, tt.ttl)
		if got := reason(refusal); got != tt.reason {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.reason)
		}
	}
}

func reason(r *Refusal) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

func TestParseRequest(t *testing.T) {
	nonce := strings.Repeat("n", 32)
	packed := mustPack(value.Map{
		{Key: "cmd", Value: "x"}, {Key: 7, Value: "seven"}, {Key: "nonce", Value: nonce},
		{Key: "ts", Value: 12.9}, {Key: "tok", Value: []byte{0xff}}, {Key: "id", Value: "m1"},
		{Key: "data", Value: value.Map{{Key: "tok", Value: 1}}},
	})
	r, refusal := ParseRequest(packed)
	if refusal != nil {
		t.Fatal(refusal)
	}
	rest, err := r.Load.Pack()
	want := mustPack(value.Map{{Key: "cmd", Value: "x"}, {Key: 7, Value: "seven"},
		{Key: "ts", Value: 12.9}, {Key: "id", Value: "m1"},
		{Key: "data", Value: value.Map{{Key: "tok", Value: 1}}}})
	if err != nil || !bytes.Equal(rest, want) {
		t.Errorf("load: got %x, %v, want %x", rest, err, want)
	}
	if r.Cmd != "x" || r.ID != "m1" || r.Nonce != nonce || r.TS != 12 || !r.HasTS ||
		!bytes.Equal(r.Tok, []byte{0xff}) {
		t.Errorf("got %+v", r)
	}
	if r.ReplyNonce(Envelope{Version: 2}) != nonce || r.ReplyNonce(Envelope{Version: 1}) != "" {
		t.Error("nonce of the reply")
	}
	for name, tt := range map[string]struct {
		in     any
		reason string
	}{
		"not a map": {[]any{1}, "not_a_map"},
		"nonce cut": {value.Map{{Key: "nonce", Value: nonce[1:]}}, "nonce"},
		"nonce int": {value.Map{{Key: "nonce", Value: 1}}, "nonce"},
		"nonce bytes": {value.Map{{Key: "nonce", Value: bytes.Repeat([]byte{0xff}, 32)}},
			"nonce"},
		"nonce empty":     {value.Map{{Key: "nonce", Value: ""}}, ""},
		"nonce nil":       {value.Map{{Key: "nonce", Value: nil}}, ""},
		"id int":          {value.Map{{Key: "id", Value: 1}}, "id_not_text"},
		"id null byte":    {value.Map{{Key: "id", Value: "\x00"}}, "id_null_byte"},
		"empty":           {value.Map{}, ""},
		"ts text":         {value.Map{{Key: "ts", Value: "1"}}, ""},
		"ts not a number": {value.Map{{Key: "ts", Value: nan()}}, ""},
		"tok int":         {value.Map{{Key: "tok", Value: 1}}, ""},
	} {
		r, refusal := ParseRequest(mustPack(tt.in))
		if reason(refusal) != tt.reason || r.HasTS {
			t.Errorf("%s: got %+v, %v", name, r, refusal)
		}
	}
	if _, refusal := ParseRequest([]byte{0xc1}); reason(refusal) != "malformed" ||
		string(refusal.Reply[1:]) != "bad load" {
		t.Errorf("malformed: %v", refusal)
	}
	if r, _ := ParseRequest(mustPack(value.Map{{Key: "tok", Value: 1},
		{Key: "id", Value: "m1"}})); r.Tok == nil || docRSA().Public().VerifyToken(r.Tok) == nil {
		t.Error("a token of another kind passes")
	}
}

// The load that a minion signs is verified as the master packs it anew.
func TestMinionRequestsEqualLibrary(t *testing.T) {
	k := goldenKey(t, "minion")
	c := NewCrypticle(mustKey(t, golden().Session))
	for _, v := range golden().MinionRequests {
		e, r, refusal := receive(t, v.Request, time.Unix(1795253700, 0), 30*time.Second)
		if refusal != nil {
			t.Errorf("signed %v: %v", v.Signed, refusal)
			continue
		}
		if e.EncAlgo != v.Enc || e.SigAlgo != v.Sig || r.TS != 1795253700 ||
			r.Nonce != golden().Nonce {
			t.Errorf("signed %v: got %+v, %+v", v.Signed, e, r)
		}
		signed, err := r.VerifyMessage(k.Public(), v.Sig)
		if signed != v.Signed || err != nil {
			t.Errorf("signed %v: got %v, %v", v.Signed, signed, err)
		}
		if v.Signed {
			changed := Request{Load: r.Load.Without("jid")}
			if _, err := changed.VerifyMessage(k.Public(), v.Sig); !errors.Is(err, ErrSignature) {
				t.Errorf("changed load: %v", err)
			}
		}
		// Our minion seals the same bytes.
		load, err := value.UnpackMap(v.Load)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := TokenSalt(k)
		if err != nil {
			t.Fatal(err)
		}
		s := Sender{Version: 3, ID: "m1", Tok: tok, EncAlgo: v.Enc, SigAlgo: v.Sig}
		if v.Signed {
			s.SignKey = k
		}
		own, err := s.SealRequest(c, load, golden().Nonce, time.Unix(1795253700, 250_000_000))
		if err != nil {
			t.Fatal(err)
		}
		ours, _ := value.UnpackRawMap(own)
		theirs, _ := value.UnpackRawMap(v.Request)
		for i := range theirs {
			if ours[i].Key != theirs[i].Key || ours[i].Key != "load" &&
				!bytes.Equal(ours[i].Value, theirs[i].Value) {
				t.Errorf("envelope: got %v, want %v", ours[i], theirs[i])
			}
		}
		a, err := c.Open(ours.Bytes("load"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := c.Open(theirs.Bytes("load"))
		if !bytes.Equal(a, b) {
			t.Errorf("signed %v: sealed %x, want %x", v.Signed, a, b)
		}
	}
}

func TestOtherRefusals(t *testing.T) {
	for want, r := range map[string]*Refusal{
		"82a3656e63a5636c656172a46c6f616482a3726574c2ad636c75737465725f7265747279c3": NotReady(),
		"82a3656e63a5636c656172a46c6f616481a3726574ac6261642073696720616c676f":       BadSigAlgo(),
		"82a3656e63a5636c656172a46c6f616481a3726574ac62616420656e6320616c676f":       BadEncAlgo(),
	} {
		if got := hex.EncodeToString(r.Reply); got != want {
			t.Errorf("%s: got %s, want %s", r.Reason, got, want)
		}
	}
}
