package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
	"clustermaster/value/valuetest"
)

// seeds adds every message of the vectors to a fuzz target.
func seeds(f *testing.F) {
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
	for _, s := range []string{"ddffffffff", "8190c0", "c7184e00", "d64f92a101c0",
		"cb7ff8000000000001", "d6ff00000000", "81c401ff01", "d9", "df00000002"} {
		f.Add(unhex(f, s))
	}
}

// requests puts a message wherever a stranger can.
func requests(message []byte) [][]byte {
	clear := mustPack(value.Map{{Key: "enc", Value: "clear"},
		{Key: "load", Value: value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "m1"},
			{Key: "autosign_grains", Value: value.Raw(message)}}}, {Key: "version", Value: 3}})
	return [][]byte{
		message, clear, mustPack(value.Map{{Key: "enc", Value: "clear"},
			{Key: "load", Value: value.Raw(message)}, {Key: "version", Value: 3}}),
		mustPack(value.Map{{Key: "enc", Value: "clear"},
			{Key: "load", Value: value.Map{{Key: "id", Value: value.Raw(message)}}}}),
		mustPack(value.Map{{Key: "enc", Value: "aes"}, {Key: "load", Value: "x"},
			{Key: "version", Value: value.Raw(message)}, {Key: "id", Value: value.Raw(message)}}),
		append(append([]byte{0x82, 0xa3, 'e', 'n', 'c'}, message...), mustPack("load")...),
	}
}

// FuzzInspect measures what a request of anybody's makes the master allocate before anything is
// proved: at most four times its length.
func FuzzInspect(f *testing.F) {
	seeds(f)
	for _, n := range []int{300, 5000, 40000} {
		for _, m := range valuetest.Dense(n) {
			for _, b := range requests(m) {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		valuetest.Within(t, 4*int64(len(b)), func() { _, _ = ParseEnvelope(b) })
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
			if _, err := c.OpenNonce(signed, docNonce); err != nil &&
				!errors.Is(err, ErrAuthentication) && !errors.Is(err, ErrNonce) {
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
		valuetest.Bounded(t, b, func() { e, refusal = ParseEnvelope(b) })
		if refusal != nil {
			if _, err := value.Unpack(refusal.Reply); err != nil || refusal.Reason == "" ||
				!reflect.DeepEqual(e, Envelope{}) {
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
		valuetest.Bounded(t, b, func() { r, refusal = ParseRequest(b) })
		if refusal != nil {
			if _, err := value.Unpack(refusal.Reply); err != nil || refusal.Reason == "" ||
				!reflect.DeepEqual(r, Request{}) {
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
			if r.Check(e, time.Unix(1, 0), time.Second) == nil && v > 2 &&
				(r.ID != "m1" || r.Tok == nil) {
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
			if _, err := OpenPrivate(minion, master, Sender{Version: version}, b, "pillar",
				"never sent"); err == nil && version > 1 {
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
		if m, err := k.Public().RecoverX931(sig); err != nil &&
			(m != nil || !errors.Is(err, ErrSignature)) {
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
