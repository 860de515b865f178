package wire

import (
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// everyday is a return as it comes from a minion, and all that is needed to serve it.
type everyday struct {
	payload, packed, sealed []byte
	session                 *Crypticle
	pub                     *PublicKey
	tok                     []byte
}

func newEveryday(t testing.TB) everyday {
	t.Helper()
	d := everyday{session: NewCrypticle(mustKey(t, golden().Session)),
		pub: goldenKey(t, "minion").Public()}
	var err error
	if d.tok, err = TokenSalt(goldenKey(t, "minion")); err != nil {
		t.Fatal(err)
	}
	s := Sender{Version: 3, ID: "m1", Tok: d.tok, EncAlgo: EncSHA1, SigAlgo: SigSHA1}
	d.payload, err = s.SealRequest(d.session, value.Map{
		{Key: "cmd", Value: "_return"}, {Key: "id", Value: "m1"}, {Key: "success", Value: true},
		{Key: "return", Value: strings.Repeat("line of output\n", 100)}, {Key: "retcode", Value: 0},
		{Key: "jid", Value: "20261121093500438490"}, {Key: "fun", Value: "cmd.run"},
		{Key: "fun_args", Value: []any{"ls"}}, {Key: "user", Value: "root"},
		{Key: "_stamp", Value: "2026-11-21T09:35:00.793179+00:00"},
	}, docNonce, time.Unix(1795253700, 0))
	if err != nil {
		t.Fatal(err)
	}
	e, refusal := ParseEnvelope(d.payload)
	if refusal != nil {
		t.Fatal(refusal)
	}
	d.sealed = e.Sealed
	if d.packed, err = d.session.Open(d.sealed); err != nil {
		t.Fatal(err)
	}
	return d
}

// The budgets of allocations on the way of every request.
func TestAllocations(t *testing.T) {
	d := newEveryday(t)
	nilReply := value.Raw{0xc0}
	load := value.Map{{Key: "fun", Value: "test.ping"}, {Key: "tgt", Value: "*"}}
	if err := d.pub.VerifyToken(d.tok); err != nil {
		t.Fatal(err)
	}
	own := make([]byte, len(d.sealed))
	for _, tt := range []struct {
		name   string
		budget float64
		run    func() error
	}{
		{"Seal", 1, func() error { _, err := d.session.Seal(d.packed, docNonce); return err }},
		{"Open", 1, func() error { _, err := d.session.Open(d.sealed); return err }},
		{"OpenInPlace", 0, func() error {
			copy(own, d.sealed)
			_,
				err := d.session.OpenInPlace(own)
			return err
		}},
		{"ParseEnvelope", 1, func() error { _, r := ParseEnvelope(d.payload); return asError(r) }},
		{"ParseRequest", 3, func() error { _, r := ParseRequest(d.packed); return asError(r) }},
		{"VerifyToken again", 0, func() error { return d.pub.VerifyToken(d.tok) }},
		{"SealedReplyIn", 1, func() error {
			_, err := SealedReplyIn(own[:0], d.session, nilReply,
				docNonce)
			return err
		}},
		{"SealedReply", 2, func() error {
			_,
				err := SealedReply(d.session, nilReply, docNonce)
			return err
		}},
		{"Publication unsigned", 8, func() error {
			_,
				err := Publication(d.session, nil, "", load)
			return err
		}},
	} {
		if err := tt.run(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := testing.AllocsPerRun(200, func() { _ = tt.run() }); got > tt.budget &&
			!underRace {
			t.Errorf("%s: %v allocations, budget %v", tt.name, got, tt.budget)
		}
	}
}

func asError(r *Refusal) error {
	if r == nil {
		return nil
	}
	return r
}

func BenchmarkSeal(b *testing.B) {
	d := newEveryday(b)
	b.SetBytes(int64(len(d.packed)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = d.session.Seal(d.packed, docNonce)
	}
}

func BenchmarkOpen(b *testing.B) {
	d := newEveryday(b)
	b.SetBytes(int64(len(d.sealed)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = d.session.Open(d.sealed)
	}
}

func BenchmarkNewCrypticle(b *testing.B) {
	d := newEveryday(b)
	k := mustKey(b, golden().Session)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = NewCrypticle(k).Open(d.sealed)
	}
}

// A whole return: envelope, opening, load, token, reply.
func BenchmarkReturn(b *testing.B) {
	d := newEveryday(b)
	b.ReportAllocs()
	for b.Loop() {
		e, refusal := ParseEnvelope(d.payload)
		if refusal != nil {
			b.Fatal(refusal)
		}
		packed, err := d.session.Open(e.Sealed)
		if err != nil {
			b.Fatal(err)
		}
		r, refusal := ParseRequest(packed)
		if refusal != nil || r.Check(e, time.Unix(0, 0), 0) != nil ||
			d.pub.VerifyToken(r.Tok) != nil {
			b.Fatal("refused")
		}
		if _, err := SealedReply(d.session, nil, r.ReplyNonce(e)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGrant(b *testing.B) {
	g := Grant{
		Master: goldenKey(b, "master"), Minion: goldenKey(b, "minion").Public(), PublishPort: 4505,
		AES: mustKey(b, golden().AES), Session: mustKey(b, golden().Session),
	}
	var err error
	if g.Signature, err = KeySignature(g.Master, g.AES); err != nil {
		b.Fatal(err)
	}
	s := SignIn{ID: "m1", Nonce: docNonce, EncAlgo: EncSHA1, SigAlgo: SigSHA1}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Reply(s, 3); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	d := newEveryday(b)
	b.SetBytes(int64(len(d.packed)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = value.Unpack(d.packed)
	}
}

func BenchmarkParseRequest(b *testing.B) {
	d := newEveryday(b)
	b.SetBytes(int64(len(d.packed)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = ParseRequest(d.packed)
	}
}

func BenchmarkX931(b *testing.B) {
	k := goldenKey(b, "master")
	b.Run("sign", func(b *testing.B) {
		for b.Loop() {
			_, _ = k.X931([]byte("salt"))
		}
	})
	sig, err := k.X931([]byte("salt"))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("recover", func(b *testing.B) {
		for b.Loop() {
			_, _ = k.Public().RecoverX931(sig)
		}
	})
}

func BenchmarkPrivateReply(b *testing.B) {
	master, minion := goldenKey(b, "master"), goldenKey(b, "minion").Public()
	val := value.Map{{Key: "hello", Value: "world"}}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = PrivateReply(master, minion, EncSHA1, SigSHA1, docNonce, 3, "pillar", val)
	}
}
