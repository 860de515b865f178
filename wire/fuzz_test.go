package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// seeds adds every message of the vectors to a fuzz target.
func seeds(f *testing.F) {
	for _, v := range packValues() {
		if b, err := Pack(v); err == nil && len(b) < 4096 {
			f.Add(b)
		}
	}
	g := golden()
	for _, v := range g.Requests {
		f.Add([]byte(v.Request))
		f.Add([]byte(v.Reply))
	}
	for _, v := range g.SignIn[:12] {
		f.Add([]byte(v.Request))
		f.Add([]byte(v.Reply))
	}
	for _, v := range g.Pillar[:6] {
		f.Add([]byte(v.Reply))
	}
	for _, v := range g.Publications {
		f.Add([]byte(v.Payload))
	}
	for _, v := range docSealed {
		f.Add(unhex(f, v.packed))
		f.Add(unhex(f, v.sealed))
	}
	for _, s := range []string{"ddffffffff", "8190c0", "c7184e00", "d64f92a101c0", "cb7ff8000000000001", "d6ff00000000", "81c401ff01", "d9", "df00000002"} {
		f.Add(unhex(f, s))
	}
}

// allocated returns the bytes that fn allocates, about.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// bounded fails if fn allocates more than a constant times the input's length. The slack is for other goroutines.
func bounded(t *testing.T, in []byte, fn func()) {
	t.Helper()
	if got, limit := allocated(fn), uint64(1<<20+100*len(in)); got > limit {
		t.Errorf("%d bytes of input allocate %d", len(in), got)
	}
}

// slack is what other goroutines of the test may allocate meanwhile.
const slack = 16 << 10

// within fails if fn allocates more than limit, each time that it is tried.
func within(t *testing.T, limit int64, fn func()) {
	t.Helper()
	var got uint64
	for range 5 {
		if got = allocated(fn); got <= uint64(limit+slack) {
			return
		}
	}
	t.Errorf("%d bytes were allocated, more than %d", got, limit)
}

// dense are messages that take much more memory than their length when they are decoded without care; each is about n bytes long.
func dense(n int) map[string][]byte {
	head := func(code byte, n int) []byte {
		return []byte{code, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	constant := func(inside []byte) []byte {
		b := append([]byte{0x92, 0xa1, 'x'}, inside...)
		return append(append(head(0xc9, len(b)), extConst), b...)
	}
	claims := func(code byte, size, levels int) (b []byte) {
		for range levels {
			b = append(b, head(code, max(0, n-len(b)-5)/size)...)
		}
		return b
	}
	fill := func(b []byte, with ...byte) []byte {
		return append(b, bytes.Repeat(with, max(0, n-len(b))/len(with))...)
	}
	// Each array claims all the bytes that the constant has left; the next constant lies within.
	var heads [][]byte
	left := n
	for range MaxDepth / 4 {
		heads = append(heads, head(0xdd, left), []byte{0x92, 0xa1, 'x'}, append(head(0xc9, left+8), extConst))
		left += 14
	}
	slices.Reverse(heads)
	nested := append(bytes.Join(heads, nil), bytes.Repeat([]byte{0xc0}, n)...)
	list := func(code byte, element ...byte) []byte { // well-formed
		return append(head(code, n/len(element)), bytes.Repeat(element, n/len(element))...)
	}
	return map[string][]byte{
		"nested array32 in constants":  nested,
		"array32 claims in a constant": constant(fill(claims(0xdd, 1, MaxDepth-3), 0xc0)),
		"map32 claims in a constant":   constant(fill(claims(0xdf, 2, MaxDepth-3), 0xc0)),
		"constants of empty arrays":    list(0xdd, constant([]byte{0x90})...),
		"map of empty maps":            list(0xdf, 0x00, 0x80),
		"array of empty arrays":        list(0xdd, 0x90),
		"array of empty maps":          list(0xdd, 0x80),
		"map of nil":                   list(0xdf, 0xc0, 0xc0),
		"array of short texts":         list(0xdd, 0xa2, 'x', 'y'),
		"array of integers":            list(0xdd, 0xcd, 1, 0),
		"duplicate keys":               list(0xdf, 0xa1, 'k', 0x90),
		"raw claim":                    fill(head(0xdb, n*2), 'x'),
		"bin claim":                    fill(head(0xc6, math.MaxInt32), 'x'),
		"array claim":                  fill(head(0xdd, math.MaxInt32), 0xc0),
		"map claim":                    fill(head(0xdf, math.MaxInt32), 0xc0),
		"constant claim":               fill(append(head(0xc9, n*4), extConst), 0xc0),
	}
}

// requests puts a message wherever a stranger can.
func requests(message []byte) [][]byte {
	clear := mustPack(Map{{"enc", "clear"}, {"load", Map{{"cmd", "_auth"}, {"id", "m1"}, {"autosign_grains", Raw(message)}}}, {"version", 3}})
	return [][]byte{
		message, clear, mustPack(Map{{"enc", "clear"}, {"load", Raw(message)}, {"version", 3}}), mustPack(Map{{"enc", "clear"}, {"load", Map{{"id", Raw(message)}}}}),
		mustPack(Map{{"enc", "aes"}, {"load", "x"}, {"version", Raw(message)}, {"id", Raw(message)}}),
		append(append([]byte{0x82, 0xa3, 'e', 'n', 'c'}, message...), mustPack("load")...),
	}
}

// FuzzInspect measures what a request of anybody's makes the master allocate before anything is proved: at most four times its
// length.
func FuzzInspect(f *testing.F) {
	seeds(f)
	for _, n := range []int{300, 5000, 40000} {
		for _, m := range dense(n) {
			for _, b := range requests(m) {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		within(t, 4*int64(len(b)), func() { _, _ = ParseEnvelope(b) })
	})
}

func FuzzUnpack(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var v any
		var err error
		bounded(t, b, func() { v, err = Unpack(b) })
		weight, weighErr := Weigh(b)
		if (err == nil) != (weighErr == nil) {
			t.Fatalf("unpack says %v, Weigh %v", err, weighErr)
		}
		if err == nil {
			within(t, weight, func() { v, err = Unpack(b) })
		}
		if err != nil {
			if v != nil || !errors.Is(err, ErrMalformed) {
				t.Fatalf("got %v beside %v", v, err)
			}
			return
		}
		packed, err := Pack(v)
		if err != nil {
			t.Fatalf("pack %#v: %v", v, err)
		}
		again, err := Unpack(packed)
		if err != nil {
			t.Fatalf("unpack %x: %v", packed, err)
		}
		repacked, err := Pack(again)
		if err != nil || !bytes.Equal(repacked, packed) {
			t.Fatalf("packed %x, then %x, %v", packed, repacked, err)
		}
		fresh, err := PackNew(v)
		if err != nil {
			t.Fatalf("pack new %#v: %v", v, err)
		}
		if again, err = Unpack(fresh); err != nil {
			t.Fatalf("unpack %x: %v", fresh, err)
		}
		if repacked, err = Pack(again); err != nil || !bytes.Equal(repacked, packed) {
			t.Fatalf("through the new specification: %x, want %x, %v", repacked, packed, err)
		}
	})
}

func FuzzUnpackRawMap(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m RawMap
		var err error
		bounded(t, b, func() { m, err = UnpackRawMap(b) })
		full, fullErr := UnpackMap(b)
		if (err == nil) != (fullErr == nil) {
			t.Fatalf("raw says %v, full %v", err, fullErr)
		}
		var entries Map
		entriesErr := Raw(b).Entries(func(key, value Raw) { entries = append(entries, Pair{key, value}) })
		if (entriesErr == nil) != (fullErr == nil) {
			t.Fatalf("entries say %v, full %v", entriesErr, fullErr)
		}
		if err != nil {
			if m != nil || !errors.Is(err, ErrMalformed) || !errors.Is(entriesErr, ErrMalformed) {
				t.Fatalf("got %v beside %v, %v", m, err, entriesErr)
			}
			return
		}
		for i, e := range entries {
			k, kErr := e.Key.(Raw).Unpack()
			v, vErr := e.Value.(Raw).Unpack()
			if kErr != nil || vErr != nil || !bytes.Equal(mustPack(Map{{k, v}}), mustPack(Map{full[i]})) {
				t.Fatalf("entry %d is %v %v, want %v (%v, %v)", i, k, v, full[i], kErr, vErr)
			}
		}
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		again, err := UnpackRawMap(packed)
		if err != nil || !reflect.DeepEqual(again, m) && len(m) > 0 {
			t.Fatalf("again %v, %v, want %v", again, err, m)
		}
		decoded, err := m.Map()
		if err != nil {
			t.Fatal(err)
		}
		if a, b := mustPack(decoded), mustPack(full); !bytes.Equal(a, b) {
			t.Fatalf("raw %x, full %x", a, b)
		}
		for _, p := range m {
			if v, ok := m.Get(p.Key); !p.Other() && (!ok || v == nil) {
				t.Fatalf("key %q is lost", p.Key)
			}
		}
	})
}

func FuzzOpen(f *testing.F) {
	seeds(f)
	c := NewCrypticle(Key{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := c.Open(b); err == nil || p != nil {
			t.Fatalf("opened %x", p) // nothing in the corpus has this key
		}
		// The MAC hides the rest from strangers; put a right one there.
		if n := len(b) / 16 * 16; n >= 32 {
			e := c.engine()
			signed := append(append([]byte(nil), b[:n]...), e.tag(b[:n])...)
			p, err := c.Open(signed)
			if err != nil && (!errors.Is(err, ErrAuthentication) || p != nil) {
				t.Fatalf("got %x, %v", p, err)
			}
			if _, err := c.OpenNonce(signed, docNonce); err != nil && !errors.Is(err, ErrAuthentication) && !errors.Is(err, ErrNonce) {
				t.Fatal(err)
			}
		}
		for _, nonce := range []string{"", docNonce} {
			sealed, err := c.Seal(b, nonce)
			if err != nil {
				t.Fatal(err)
			}
			p, err := c.OpenNonce(sealed, nonce)
			if err != nil || !bytes.Equal(p, b) {
				t.Fatalf("sealed %x, opened %x, %v", b, p, err)
			}
		}
	})
}

func FuzzParseEnvelope(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Envelope
		var refusal *Refusal
		bounded(t, b, func() { e, refusal = ParseEnvelope(b) })
		if refusal != nil {
			if _, err := Unpack(refusal.Reply); err != nil || refusal.Reason == "" || !reflect.DeepEqual(e, Envelope{}) {
				t.Fatalf("refusal %+v, %v, beside %+v", refusal, err, e)
			}
			return
		}
		switch {
		case e.Version < 0 || e.Version > 3:
			t.Fatalf("version %d", e.Version)
		case e.Enc == "aes" && e.Version > 2 && !ValidID(e.ID):
			t.Fatalf("id %q", e.ID)
		case e.Enc != "aes" && e.Enc != "clear":
			t.Fatalf("enc %q", e.Enc)
		case e.Enc == "clear":
			if s, refusal := ParseSignIn(e); refusal == nil && e.Version > 1 {
				if _, err := AuthReply(docRSA(), s, e.Version, true); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Request
		var refusal *Refusal
		bounded(t, b, func() { r, refusal = ParseRequest(b) })
		if refusal != nil {
			if _, err := Unpack(refusal.Reply); err != nil || refusal.Reason == "" || !reflect.DeepEqual(r, Request{}) {
				t.Fatalf("refusal %+v, %v, beside %+v", refusal, err, r)
			}
			return
		}
		if _, err := r.Load.Map(); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Load.Get("tok"); ok || (r.Nonce != "" && len(r.Nonce) != 32) {
			t.Fatalf("got %+v", r)
		}
		for v := range 4 {
			e := Envelope{Version: v, ID: "m1"}
			if r.Check(e, time.Unix(1, 0), time.Second) == nil && v > 2 && (r.ID != "m1" || r.Tok == nil) {
				t.Fatalf("accepted %+v", r)
			}
		}
		if _, err := r.VerifyMessage(docRSA().Public(), SigSHA1); err == nil {
			if _, ok := r.Load.Get("sig"); ok {
				t.Fatal("a signature verifies")
			}
		}
	})
}

// FuzzMinion feeds a minion, which must survive any master.
func FuzzMinion(f *testing.F) {
	seeds(f)
	minion, master := goldenKey(f, "minion"), goldenKey(f, "master").Public()
	c := NewCrypticle(Key{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for version := range 4 {
			a := AuthRequest{Version: version, Key: minion, Nonce: "never sent"}
			if got, err := OpenAuthReply(a, b); err == nil && version > 1 {
				t.Fatalf("accepted %+v", got)
			}
			if _, err := OpenPrivate(minion, master, Sender{Version: version}, b, "pillar", "never sent"); err == nil && version > 1 {
				t.Fatal("opened a private reply")
			}
		}
		if v, err := OpenReply(c, b, docNonce); err == nil && !v.IsNil() {
			t.Fatalf("opened a reply: %x", v)
		}
		if m, err := NewPubReader(c, nil).OpenPublication(b); err == nil {
			t.Fatalf("opened a publication: %v", m)
		}
	})
}

func FuzzKeyTexts(f *testing.F) {
	for name, text := range golden().Keys {
		if name != "big" {
			f.Add(text)
		}
	}
	f.Add(docPublic)
	for _, v := range golden().Clean {
		f.Add(v[0])
	}
	f.Fuzz(func(t *testing.T, text string) {
		clean := CleanKey(text)
		if again := CleanKey(clean); again != clean {
			t.Fatalf("cleaned %q, again %q", clean, again)
		}
		if k, err := ParsePublicKey(text); err == nil {
			if again, err := ParsePublicKey(k.Text()); err != nil || again.Text() != k.Text() {
				t.Fatalf("public key %q: %v", k.Text(), err)
			}
		}
		passphrase := "open sesame"
		if strings.Contains(text, "ENCRYPTED PRIVATE KEY") {
			passphrase = "" // one changed bit asks for a million iterations
		}
		if k, err := ParsePrivateKey([]byte(text), passphrase); err == nil {
			if again, err := ParsePrivateKey(k.PEM(), ""); err != nil || !again.key.Equal(k.key) {
				t.Fatalf("private key: %v", err)
			}
		}
		if _, err := Fingerprint(text, "sha256"); err != nil {
			t.Fatal(err)
		}
		if k, err := ParseKey(text); err == nil && k.String() != text {
			t.Fatalf("key %q", text)
		}
		JIDTime(text)
	})
}

func FuzzRecoverX931(f *testing.F) {
	f.Add(unhex(f, docT1), []byte("salt"))
	f.Add(unhex(f, docT2), []byte{})
	f.Add(make([]byte, 256), []byte{0xbb, 0xba})
	k := docRSA()
	f.Fuzz(func(t *testing.T, sig, message []byte) {
		if m, err := k.Public().RecoverX931(sig); err != nil && (m != nil || !errors.Is(err, ErrSignature)) {
			t.Fatalf("got %x, %v", m, err)
		}
		if len(message) > 254 {
			message = message[:254]
		}
		em, err := padX931(message, 256)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := unpadX931(em); !ok || !bytes.Equal(got, message) || len(em) != 256 {
			t.Fatalf("padded %x, unpadded %x", em, got)
		}
	})
}
