package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"

	"clustermaster/value"
)

// answerAs answers a sign-in as the master of the vectors did.
func answerAs(t *testing.T, state string, s SignIn, version int) []byte {
	t.Helper()
	var ret any
	switch state {
	case "accepted":
		pub, err := ParsePublicKey(s.Pub)
		if err != nil {
			t.Fatal(err)
		}
		g := Grant{
			Master: goldenKey(t, "master"), Minion: pub, PublishPort: 4505,
			AES: mustKey(t, golden().AES), Session: mustKey(t, golden().Session),
		}
		b, err := g.Reply(s, version)
		if err != nil {
			t.Fatal(err)
		}
		return b
	case "pending", "new":
		ret = true
	default:
		ret = false
	}
	b, err := AuthReply(goldenKey(t, "master"), s, version, ret)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A real minion's sign-in is read, a real master's answer opened, and ours has the same bytes where
// they are not random.
func TestSignInEqualsLibrary(t *testing.T) {
	minion := goldenKey(t, "minion")
	for _, v := range golden().SignIn {
		e, refusal := ParseEnvelope(v.Request)
		if refusal != nil {
			t.Fatalf("%+v: %v", v, refusal)
		}
		s, refusal := ParseSignIn(e)
		if refusal != nil {
			t.Fatalf("%+v: %v", v, refusal)
		}
		if s.ID != v.State || s.EncAlgo != v.Enc || s.SigAlgo != v.Sig ||
			s.Pub != minion.Public().Text() || (s.Token != nil) != v.Cached {
			t.Errorf("%s v%d: got %+v", v.State, v.Version, s)
		}
		if v.Version >= 2 && s.Nonce != v.Nonce || v.Version < 2 && s.Nonce != "" {
			t.Errorf("%s v%d: got nonce %q", v.State, v.Version, s.Nonce)
		}
		a := AuthRequest{Version: v.Version, ID: v.State, Key: minion, Nonce: v.Nonce,
			EncAlgo: v.Enc, SigAlgo: v.Sig}
		if v.Cached {
			a.Master, a.Token = goldenKey(t, "master").Public(), golden().Token
		}
		own := answerAs(t, v.State, s, v.Version)
		for name, reply := range map[string][]byte{"theirs": v.Reply, "ours": own} {
			got, err := OpenAuthReply(a, reply)
			if err != nil {
				t.Errorf("%s v%d, %s: %v", v.State, v.Version, name, err)
				continue
			}
			want := AuthAnswer{Master: a.Master, Ret: v.State == "pending" || v.State == "new"}
			if v.State == "accepted" {
				want = AuthAnswer{
					Accepted: true, Master: a.Master, PublishPort: 4505, HasSession: true,
					AES: mustKey(t, golden().AES), Session: mustKey(t, golden().Session),
				}
				if a.Master == nil && got.Master != nil &&
					got.Master.Text() == goldenKey(t, "master").Public().Text() {
					got.Master = nil // trusted on first use
				}
			}
			if got != want {
				t.Errorf("%s v%d, %s: got %+v, want %+v", v.State, v.Version, name, got, want)
			}
		}
		if v.State != "accepted" {
			if !bytes.Equal(own, v.Reply) {
				t.Errorf("%s v%d: got %x, want %x", v.State, v.Version, own, v.Reply)
			}
		} else if !bytes.Equal(masked(t, own), masked(t, v.Reply)) {
			t.Errorf("%s v%d: got %q, want %q", v.State, v.Version, masked(t, own),
				masked(t, v.Reply))
		}
		// Our minion's request has the same form too.
		request, err := a.Pack()
		if err != nil {
			t.Fatal(err)
		}
		again, refusal := ParseEnvelope(request)
		if refusal != nil {
			t.Fatal(refusal)
		}
		mine, refusal := ParseSignIn(again)
		if refusal != nil || again.Version != v.Version {
			t.Fatalf("version %d, %v", again.Version, refusal)
		}
		if (mine.Token == nil) != (s.Token == nil) || mine.Pub != s.Pub || mine.Nonce != s.Nonce ||
			mine.EncAlgo != s.EncAlgo {
			t.Errorf("our request: %+v, want %+v", mine, s)
		}
	}
}

// masked returns an accepting reply with its random parts zeroed.
func masked(t *testing.T, reply []byte) []byte {
	t.Helper()
	m, err := value.UnpackMap(reply)
	if err != nil {
		t.Fatal(err)
	}
	zero := func(m value.Map, keys ...string) {
		for _, k := range keys {
			if b := m.Bytes(k); b != nil {
				m.Set(k, make([]byte, len(b)))
			}
		}
	}
	if load := m.Bytes("load"); load != nil {
		in, err := value.UnpackMap(load)
		if err != nil {
			t.Fatal(err)
		}
		zero(in, "token", "aes", "session")
		zero(m, "sig")
		m.Set("load", mustPack(in))
	} else {
		zero(m, "token", "aes", "session")
	}
	return mustPack(m)
}

func TestParseSignInRefuses(t *testing.T) {
	key := goldenKey(t, "minion").Public().Text()
	good := value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "m1"},
		{Key: "pub", Value: key}, {Key: "nonce", Value: docNonce}}
	pub := func(text string) value.Map {
		return append(good.Without("pub"),
			value.Pair{Key: "pub", Value: text})
	}
	nonce := func(text string) value.Map {
		return append(good.Without("nonce"), value.Pair{Key: "nonce", Value: text})
	}
	tests := []struct {
		name    string
		load    value.Map
		version int
		reason  string
	}{
		{"good", good, 3, ""},
		{"no id", good.Without("id"), 3, "auth_id"},
		{"no pub", good.Without("pub"), 3, "auth_pub"},
		{"no nonce", good.Without("nonce"), 2, "auth_nonce"},
		{"no nonce in v1", good.Without("nonce"), 1, ""},
		{"empty nonce", nonce(""), 3, "auth_nonce"},
		{"short nonce", nonce(docNonce[1:]), 3, "auth_nonce"},
		{"long nonce", nonce(docNonce + "0"), 2, "auth_nonce"},
		{"nonce of 32 characters and more bytes", nonce(docNonce[1:] + "\u00fc"), 3, "auth_nonce"},
		{"nonce with a line break", nonce(docNonce[1:] + "\n"), 3, "auth_nonce"},
		{"pub bytes", append(good.Without("pub"), value.Pair{Key: "pub", Value: []byte{0xff}}), 3,
			"auth_pub"},
		{"pub empty", pub(""), 3, "auth_pub_not_a_key"},
		{"pub text", pub("not a key"), 1, "auth_pub_not_a_key"},
		{"pub of 8 KiB", pub(key + strings.Repeat("\n", 8<<10-len(key))), 3, ""},
		{"pub of more", pub(key + strings.Repeat("\n", 8<<10-len(key)+1)), 3, "auth_pub_length"},
		{"pub CRLF", pub(strings.ReplaceAll(key, "\n", "\r\n") + "\r\n"), 3, ""},
		{"pub behind text", pub("id: x\n" + key), 3, "auth_pub_not_a_key"},
		{"pub before text", pub(key + "\nfoo:\n  cmd.run: []"), 3, "auth_pub_not_a_key"},
		{"pub behind text that begins one", pub("-----BEGIN x\n\x1b[2J: x\n" + key), 3, "auth_pub_not_a_key"},
		{"pub behind a damaged one", pub("-----BEGIN x-----\n!\n-----END x-----\n" + key), 3,
			"auth_pub_not_a_key"},
		{"pub twice", pub(key + "\n" + key), 3, "auth_pub_not_a_key"},
		{"pub with headers", pub(strings.Replace(key, "\n", "\nfoo: bar\n\n", 1)), 3,
			"auth_pub_not_a_key"},
		{"pub elliptic", pub(ellipticKey(t)), 3, "auth_pub_not_a_key"},
		{"pub of 512 bits", pub(publicKey(t, 512)), 3, "auth_pub_not_a_key"},
		{"pub of 1023 bits", pub(publicKey(t, 1023)), 3, "auth_pub_not_a_key"},
		{"pub of 1024 bits", pub(publicKey(t, 1024)), 3, ""},
		{"pub of 16384 bits", pub(publicKey(t, 16384)), 3, ""},
		{"pub of 16385 bits", pub(publicKey(t, 16385)), 3, "auth_pub_not_a_key"},
		{"nonce int", append(good.Without("nonce"), value.Pair{Key: "nonce", Value: 1}), 3,
			"auth_nonce"},
	}
	for _, tt := range tests {
		_, refusal := ParseSignIn(Envelope{Enc: "clear", Version: tt.version, Clear: tt.load})
		if reason(refusal) != tt.reason {
			t.Errorf("%s: got %v, want %q", tt.name, refusal, tt.reason)
		}
	}
	s, _ := ParseSignIn(Envelope{Version: 3,
		Clear: append(good, value.Pair{Key: "enc_algo", Value: 1},
			value.Pair{Key: "sig_algo", Value: nil}, value.Pair{Key: "autosign_grains",
				Value: value.Map{{Key: "role", Value: "web"}}},
			value.Pair{Key: "token", Value: "text"})})
	if KnownEncryption(s.EncAlgo) || KnownSignature(s.SigAlgo) ||
		s.AutosignGrains.String("role") != "web" || string(s.Token) != "text" {
		t.Errorf("got %+v", s)
	}
}

// publicKey is the text of a public key with a modulus of so many bits, which need not be a product
// of two primes.
func publicKey(t *testing.T, bits int) string {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return publicText(t, &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537})
}

func ellipticKey(t *testing.T) string {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return publicText(t, &k.PublicKey)
}

func publicText(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return CleanKey(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
}

// A reply to a sign-in repeats the nonce and is signed as publications are, over the sealed load
// alone. A nonce that holds a load sealed with the AES key, which every accepted minion has, would
// make the reply a publication; one of 32 characters leaves no place for it.
func TestSignInReplyIsNoPublication(t *testing.T) {
	master := goldenKey(t, "master")
	crypt := NewCrypticle(mustKey(t, golden().AES))
	good := value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "m1"},
		{Key: "pub", Value: goldenKey(t, "minion").Public().Text()}}
	sealed, err := crypt.sealValue(nil, value.Map{{Key: "fun", Value: "cmd.run"}}, "", false)
	if err != nil {
		t.Fatal(err)
	}
	for name, nonce := range map[string]string{"sealed": string(sealed),
		"256 bytes": strings.Repeat("x", 256), "signature": string(sealed[len(sealed)-32:])} {
		if _, refusal := ParseSignIn(Envelope{Version: 3,
			Clear: append(good, value.Pair{Key: "nonce",
				Value: nonce})}); reason(refusal) != "auth_nonce" {
			t.Errorf("%s: got %v", name, refusal)
		}
	}
	s, refusal := ParseSignIn(Envelope{Version: 3,
		Clear: append(good, value.Pair{Key: "nonce", Value: docNonce})})
	if refusal != nil {
		t.Fatal(refusal)
	}
	for _, ret := range []any{true, false, "full"} {
		b, err := AuthReply(master, s, 3, ret)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := value.UnpackMap(b)
		if err != nil {
			t.Fatal(err)
		}
		load := reply.Bytes("load")
		// Before the HMAC of 32 bytes stand at least the 16 of the IV and a block of 16.
		if len(load) >= 64 {
			t.Errorf("%v: %d signed bytes have place for a sealed load", ret, len(load))
		}
		if _, err := crypt.Open(load); err == nil {
			t.Errorf("%v: the reply opens as a publication", ret)
		}
	}
}

// Conformance 34 to 37.
func TestSignInAlgorithms(t *testing.T) {
	master, minion := goldenKey(t, "master"), goldenKey(t, "minion")
	g := Grant{Master: master, Minion: minion.Public(), PublishPort: 4505,
		AES: mustKey(t, golden().AES), Session: mustKey(t, golden().Session)}
	for version := range 4 {
		for _, token := range [][]byte{nil, {1, 2, 3}} {
			b, err := g.Reply(SignIn{ID: "m1", Nonce: docNonce, EncAlgo: "FOO", SigAlgo: SigSHA1,
				Token: token}, version)
			if err != nil || !bytes.Equal(b, BadEncAlgo().Reply) {
				t.Errorf("v%d enc: got %q, %v", version, b, err)
			}
			s := SignIn{ID: "m1", Nonce: docNonce, EncAlgo: EncSHA1, SigAlgo: "FOO", Token: token}
			b, err = g.Reply(s, version)
			if version < 2 {
				if err != nil || bytes.Equal(b, BadSigAlgo().Reply) {
					t.Errorf("v%d needs no signature: got %q, %v", version, b, err)
				}
				continue
			}
			if err != nil || !bytes.Equal(b, BadSigAlgo().Reply) {
				t.Errorf("v%d sig: got %q, %v", version, b, err)
			}
			if b, err = AuthReply(master, s, version, true); err != nil ||
				!bytes.Equal(b, BadSigAlgo().Reply) {
				t.Errorf("v%d sig, pending: got %q, %v", version, b, err)
			}
			a := AuthRequest{Version: version, Key: minion, Nonce: docNonce}
			if _, err := OpenAuthReply(a, b); !errors.Is(err, ErrRefusedAlgorithm) {
				t.Errorf("v%d: minion says %v", version, err)
			}
		}
	}
	// A token that does not decrypt is left out.
	s := SignIn{ID: "m1", Nonce: docNonce, EncAlgo: EncSHA1, SigAlgo: SigSHA1,
		Token: []byte("garbage")}
	b, err := g.Reply(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	a := AuthRequest{Version: 3, ID: "m1", Key: minion, Nonce: docNonce}
	if _, err := OpenAuthReply(a, b); err != nil {
		t.Error(err)
	}
	a.Master, a.Token = master.Public(), []byte("mine")
	if _, err := OpenAuthReply(a, b); !errors.Is(err, ErrToken) {
		t.Errorf("token missing: %v", err)
	}
	g.Signature = []byte("kept")
	b, err = g.Reply(s, 0)
	if err != nil || !bytes.Contains(b, []byte("kept")) {
		t.Errorf("kept signature: %v", err)
	}
}

// What a minion refuses, 6.5.
func TestOpenAuthReplyRefuses(t *testing.T) {
	master, minion, sign := goldenKey(t, "master"), goldenKey(t, "minion"), goldenKey(t, "sign")
	grant := Grant{Master: master, Minion: minion.Public(), PublishPort: 4505,
		AES: mustKey(t, golden().AES), Session: mustKey(t, golden().Session)}
	ask := AuthRequest{Version: 3, ID: "m1", Key: minion, Nonce: docNonce}
	reply := func(g Grant) []byte {
		b, err := g.Reply(SignIn{ID: "m1", Nonce: docNonce, EncAlgo: EncSHA1, SigAlgo: SigSHA1}, 3)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	inner := func(k *PrivateKey, change func(value.Map) value.Map) []byte {
		outer, _ := value.UnpackMap(reply(grant))
		m, _ := value.UnpackMap(outer.Bytes("load"))
		b, err := SignedAuth(k, SigSHA1, change(m))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	with := func(change func(*AuthRequest)) AuthRequest { a := ask; change(&a); return a }
	vouch := func(k *PrivateKey, text string) Grant {
		sig, err := k.Sign(SigSHA1, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		g := grant
		g.PubSig = base64.StdEncoding.EncodeToString(sig)
		return g
	}
	cached := with(func(a *AuthRequest) { a.Master = sign.Public() })
	verifying := with(func(a *AuthRequest) { a.VerifySign = sign.Public() })
	pubText := master.Public().Text()
	unsigned, _ := UnsignedAuth(value.Map{{Key: "ret", Value: true}})
	unsignedOuter, _ := value.UnpackMap(reply(grant))
	other := grant
	other.AES[0] ^= 1
	other.Signature, _ = KeySignature(master, grant.AES)

	tests := []struct {
		name  string
		a     AuthRequest
		reply []byte
		want  error
	}{
		{"good", ask, reply(grant), nil},
		{"bad load", ask, mustPack("bad load"), ErrSignIn},
		{"not msgpack", ask, []byte{0xc1}, ErrSignIn},
		{"unsigned pending", ask, unsigned, ErrSignature},
		{"load not packed", ask, mustPack(value.Map{{Key: "enc", Value: "clear"},
			{Key: "load", Value: "x"}, {Key: "sig", Value: "x"}}), ErrSignIn},
		{"no outer signature", ask, mustPack(unsignedOuter.Without("sig")), ErrSignature},
		{"outer signature of another", ask, inner(sign, func(m value.Map) value.Map { return m }),
			ErrSignature},
		{"other nonce", ask, inner(master,
			func(m value.Map) value.Map { return m.Set("nonce", "x") }), ErrNonce},
		{"other AES signature", ask, reply(other), ErrSignature},
		{"no AES signature", ask, inner(master,
			func(m value.Map) value.Map { return m.Without("sig") }), ErrSignature},
		{"no session", ask, inner(master,
			func(m value.Map) value.Map { return m.Without("session") }), ErrSignIn},
		{"no session in v2", with(func(a *AuthRequest) { a.Version = 2 }),
			inner(master, func(m value.Map) value.Map { return m.Without("session") }), nil},
		{"garbage session", ask, inner(master,
			func(m value.Map) value.Map { return m.Set("session", []byte{1}) }), ErrDecrypt},
		{"garbage aes", ask, inner(master,
			func(m value.Map) value.Map { return m.Set("aes", []byte{1}) }), ErrDecrypt},
		{"no port", ask,
			inner(master, func(m value.Map) value.Map { return m.Without("publish_port") }),
			ErrSignIn},
		{"port 0", ask,
			inner(master, func(m value.Map) value.Map { return m.Set("publish_port", 0) }),
			ErrSignIn},
		{"garbage master key", ask, inner(master,
			func(m value.Map) value.Map { return m.Set("pub_key", "x") }), ErrPEM},
		{"changed master key", cached, reply(grant), ErrMasterKey},
		{"changed master key, pending", cached, inner(master, func(value.Map) value.Map {
			return value.Map{{Key: "ret", Value: true}, {Key: "nonce", Value: docNonce}}
		}), ErrSignature},
		{"pub_sig unasked", ask, reply(vouch(sign, pubText)), ErrPubSig},
		{"pub_sig missing", verifying, reply(grant), ErrPubSig},
		{"pub_sig good", verifying, reply(vouch(sign, pubText)), nil},
		{"pub_sig of another", verifying, reply(vouch(master, pubText)), ErrPubSig},
		{"pub_sig over another", verifying, reply(vouch(sign, "x")), ErrPubSig},
		{"pub_sig not base64", verifying,
			inner(master, func(m value.Map) value.Map { return m.Set("pub_sig", "!") }), ErrPubSig},
		{"changed master key, vouched for",
			with(func(a *AuthRequest) { a.VerifySign, a.Master = sign.Public(), sign.Public() }),
			reply(vouch(sign, pubText)), nil},
		{"same master key, not verified",
			with(func(a *AuthRequest) { a.VerifySign, a.Master = sign.Public(), master.Public() }),
			reply(vouch(master, "x")), nil},
		{"same master key, always verified",
			with(func(a *AuthRequest) {
				a.VerifySign, a.Master, a.AlwaysVerify = sign.Public(),
					master.Public(), true
			}), reply(vouch(master, "x")), ErrPubSig},
		{"v1 bad load", with(func(a *AuthRequest) { a.Version = 1 }), mustPack("bad load"),
			ErrSignIn},
		{"v1 signed", with(func(a *AuthRequest) { a.Version = 1 }), reply(grant), ErrSignIn},
		{"v1 bad algorithm", with(func(a *AuthRequest) { a.Version = 1 }), BadEncAlgo().Reply,
			ErrRefusedAlgorithm},
	}
	for _, tt := range tests {
		got, err := OpenAuthReply(tt.a, tt.reply)
		if !errors.Is(err, tt.want) || (tt.want == nil) != (err == nil) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if err != nil && got != (AuthAnswer{}) {
			t.Errorf("%s: got %+v beside the error", tt.name, got)
		}
		if err == nil && got.Master.Text() != pubText {
			t.Errorf("%s: got master %q", tt.name, got.Master.Text())
		}
	}
}
