package master

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/value"
	"clustermaster/wire"
)

// pack packs what a test sends.
func pack(v any) []byte { return must(value.Pack(v)) }

// TestErrorReplies is lines 25, 26, 28, 29, 31 and 32 of the conformance list: each row of
// 1-channel.md 7.6 as 3008.3 answers, and after each the next request is served.
func TestErrorReplies(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	k.keys.set("m2", "accept", otherKey().Public().Text())
	k.keys.set("pending", "pend", otherKey().Public().Text())
	c := m.crypt()
	sealed := func(load value.Map, version any, id any) []byte {
		out := dict("enc", "aes", "load", must(c.Seal(pack(load), "")))
		if version != nil {
			out = out.Set("version", version)
		}
		if id != nil {
			out = out.Set("id", id)
		}
		return pack(out)
	}
	good := dict("cmd", "x", "id", "m1", "tok", token(), "nonce", nonce(), "ts", time.Now().Unix())
	aes := must(wire.NewCrypticle(k.cluster.Secrets().AES[0].Key).Seal(pack(good), ""))
	routing := dict("error", "Routing error")
	notDict := "payload and load must be a dict"
	tests := []struct {
		name    string
		payload []byte
		want    any
	}{
		{"no msgpack", []byte{0xc1}, routing},
		{"empty", nil, routing},
		{"trailing bytes", append(pack(dict("enc", "clear", "load", dict())), 0), routing},
		{"number", pack(int64(7)), "bad load"},
		{"text", pack("hello"), "bad load"},
		{"map without enc", pack(dict("load", dict())), "bad load"},
		{"map without load", pack(dict("enc", "clear")), "bad load"},
		{"clear list", pack(dict("enc", "clear", "version", int64(3), "load", []any{int64(1)})),
			notDict},
		{"clear text", pack(dict("enc", "clear", "version", int64(3), "load", "x")), notDict},
		{"clear unknown", pack(dict("enc", "clear", "version", int64(3), "load",
			dict("cmd", "nosuch"))), dict()},
		{"clear without cmd", pack(dict("enc", "clear", "version", int64(3), "load", dict())),
			dict()},
		{"clear private", pack(dict("enc", "clear", "version", int64(3), "load",
			dict("cmd", "__init__"))), dict()},
		{"clear ping", pack(dict("enc", "clear", "version", int64(3), "load",
			dict("cmd", "ping", "x", int64(1)))), dict("cmd", "ping", "x", int64(1))},
		{"enc foo", pack(dict("enc", "foo", "version", int64(3), "load", dict())),
			"Some exception handling minion payload"},
		{"id with NUL", pack(dict("enc", "clear", "version", int64(3), "load",
			dict("cmd", "_auth", "id", "a\x00b"))), "bad load: id contains a null byte"},
		{"id a number", pack(dict("enc", "clear", "version", int64(3), "load",
			dict("cmd", "_auth", "id", int64(5)))), "bad load: id 5 is not a string"},
		{"version nil", pack(dict("enc", "clear", "version", nil, "load", dict("cmd", "ping"))),
			"bad load"},
		{"version 2", pack(dict("enc", "clear", "version", int64(2), "load", dict("cmd", "_auth"))),
			"bad load"},
		{"unknown id", sealed(good, int64(3), "nosuch"), "bad load"},
		{"pending id", sealed(good, int64(3), "pending"), "bad load"},
		{"no outer id", sealed(good, int64(3), nil), "bad load"},
		{"bad outer id", sealed(good, int64(3), "../m1"), "bad load"},
		{"short", pack(dict("enc", "aes", "version", int64(3), "id", "m1", "load", "x")),
			"bad load"},
		{"garbage", pack(dict("enc", "aes", "version", int64(3), "id", "m1", "load",
			bytes.Repeat([]byte{0xff}, 256))), "bad load"},
		{"another's key", sealed(good, int64(3), "m2"), "bad load"},
		{"inner id of another", sealed(good.Without("id").Set("id", "m2"), int64(3), "m1"),
			"bad load"},
		{"no inner id", sealed(good.Without("id"), int64(3), "m1"), "bad load"},
		{"no tok", sealed(good.Without("tok"), int64(3), "m1"), "bad load"},
		{"bad tok", sealed(good.Without("tok").Set("tok", bytes.Repeat([]byte{1}, 256)), int64(3),
			"m1"), "bad load"},
		{"short tok", sealed(good.Without("tok").Set("tok", token()[:255]), int64(3), "m1"),
			"bad load"},
		{"empty tok", sealed(good.Without("tok").Set("tok", ""), int64(3), "m1"), "bad load"},
		{"zero tok", sealed(good.Without("tok").Set("tok", make([]byte, 256)), int64(3), "m1"),
			"bad load"},
		{"load a list", pack(dict("enc", "aes", "version", int64(3), "id", "m1", "load",
			must(c.Seal(pack([]any{}), "")))), notDict},
		{"v2 with the session key", sealed(good, int64(2), nil), "bad load"},
		{"v3 with the AES key", pack(dict("enc", "aes", "version", int64(3), "id", "m1", "load",
			aes)), "bad load"},
	}
	for _, tt := range tests {
		if got := k.value(tt.payload); !same(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
		if got := m.call(dict("cmd", "_file_recv")); got != false {
			t.Errorf("after %s: got %v", tt.name, got)
		}
	}
	if k.keys.offers != 0 || k.keys.get("nosuch") != "" {
		t.Error("a refused request left a trace in the key store")
	}
	k.noEvent()
}

func TestVersions(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.MinimumAuthVersion = 0 })
	k.accept("m1")
	for _, version := range []int{0, 1, 2, 3} {
		if got := k.minion(version, "m1").call(dict("cmd", "_register_resources", "id", "m1",
			"resources", dict())); got != true {
			t.Errorf("version %d: got %v", version, got)
		}
	}
	m := k.minion(3, "m1")
	env := must(value.UnpackMap(m.seal(dict("cmd", "_file_recv"), nonce())))
	for _, v := range []any{"3", int64(9)} {
		if got := k.value(pack(env.Set("version", v))); got == "bad load" {
			t.Errorf("version %v is not served as 3", v)
		}
	}
	// The id in an old minion's request must be an accepted one, and its token right.
	old := k.minion(2, "m1")
	for _, load := range []value.Map{dict("cmd", "_mine_flush", "id", "nosuch"),
		dict("cmd", "_mine_flush", "id", "../m1")} {
		if got := k.value(old.seal(load, nonce())); got != "bad load" {
			t.Errorf("%v: got %v", load, got)
		}
	}
	for _, tok := range [][]byte{nil, {}, []byte("x"), must(wire.TokenSalt(otherKey()))} {
		old.sender.Tok = tok
		for _, version := range []int{0, 1, 2} {
			old.sender.Version = version
			for _, cmd := range []string{"_return", "_syndic_return", "_minion_event", "_pillar",
				"_mine", "_mine_get", "_mine_delete", "_mine_flush",
				"_file_recv", "_master_tops", "_register_resources", "revoke_auth", "minion_pub",
				"minion_publish", "pub_ret", "minion_runner"} {
				if got := k.value(old.seal(dict("cmd", cmd, "id", "m1"),
					nonce())); got != "bad load" {
					t.Errorf("version %d, %s with a token of %d bytes: got %v", version, cmd,
						len(tok), got)
				}
			}
		}
	}
	old.sender.Tok, old.sender.Version = nil, 2
	if got := old.call(dict("cmd", "_master_opts", "id", "m1")).(value.Map); !has(got,
		"file_roots") {
		t.Errorf("what is the same for all is refused without a token: %v", got)
	}
}

// TestTokensEqualLibrary opens the requests of package wire's vectors, which Salt's library made
// and a real master answered. What that one refuses is refused with the same bytes. The rest is
// opened, but for one below version 3 that names a minion and has no token.
func TestTokensEqualLibrary(t *testing.T) {
	t.Parallel()
	var golden struct {
		Keys         map[string]string
		AES, Session string
		Requests     []struct{ Name, Request, Reply string }
	}
	if err := json.Unmarshal(must(os.ReadFile("../../wire/testdata/vectors.json")), &golden); err != nil {
		t.Fatal(err)
	}
	k := newKit(t, func(o *Options, _ *Deps) { o.MinimumAuthVersion = 0 })
	secrets := *k.cluster.Secrets()
	secrets.AES = []cluster.AESEpoch{{Epoch: 1, Key: must(wire.ParseKey(golden.AES))}}
	k.cluster.set(&secrets)
	k.keys.set("m1", "accept", must(wire.ParsePrivateKey([]byte(golden.Keys["minion"]), "")).Public().Text())
	m1, _ := k.Master.keys.ring("m1")
	m1.sessions = []*wire.Crypticle{wire.NewCrypticle(must(wire.ParseKey(golden.Session)))}
	opened, refused := 0, 0
	for _, v := range golden.Requests {
		env, refusal := wire.ParseEnvelope(must(hex.DecodeString(v.Request)))
		if refusal != nil || env.Enc != "aes" {
			continue
		}
		c, refusal := k.open(t.Context(), env, nil)
		reply := must(hex.DecodeString(v.Reply))
		if sealed := len(reply) >= 64 && !bytes.Contains(reply, []byte("bad load")); sealed && v.Name != "v2" {
			if opened++; refusal != nil || c.Cmd != "_return" {
				t.Errorf("%s: %v, not opened as Salt does", v.Name, refusal)
			}
			continue
		}
		if len(reply) == 0 || v.Name == "v2" { // Salt's worker stops answering, or serves it
			reply = pack("bad load")
		}
		if refused++; refusal == nil || !bytes.Equal(refusal.Reply, reply) {
			t.Errorf("%s: %v, want the reply %q", v.Name, refusal, reply)
		}
	}
	if opened < 20 || refused < 20 {
		t.Errorf("%d requests are opened, %d refused", opened, refused)
	}
}

// TestLegacyMinions: listed minions need no token below version 3; a token that they send must be
// right.
func TestLegacyMinions(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) {
		o.MinimumAuthVersion, o.LegacyMinions = 0, []string{"old*"}
	})
	k.accept("m1")
	k.accept("old1")
	for _, tt := range []struct {
		id      string
		version int
		tok     []byte
		served  bool
	}{
		{"old1", 2, nil, true}, {"old1", 0, nil, true}, {"old1", 2, token(), true},
		{"old1", 2, []byte{}, false}, {"old1", 2, must(wire.TokenSalt(otherKey())), false},
		{"old1", 3, nil, false}, {"m1", 2, nil, false}, {"m1", 2, token(), true},
	} {
		m := k.minion(tt.version, tt.id)
		m.sender.Tok = tt.tok
		got := k.value(m.seal(dict("cmd", "_mine_flush", "id", tt.id), nonce()))
		if (got != "bad load") != tt.served {
			t.Errorf("%s, version %d, token of %d bytes: got %v", tt.id, tt.version, len(tt.tok), got)
		}
	}
}

// TestNonce is line 56.
func TestNonce(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.MinimumAuthVersion = 0 })
	k.accept("m1")
	for _, version := range []int{0, 1, 2, 3} {
		m := k.minion(version, "m1")
		n := nonce()
		reply := k.handle(m.seal(dict("cmd", "_file_recv", "id", "m1", "nonce", n), n))
		want := n
		if version < 2 {
			want = ""
		}
		if _, err := wire.OpenReply(m.crypt(), reply, want); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
	}
	// Without a nonce the reply has none either.
	m := k.minion(3, "m1")
	load := dict("cmd", "_file_recv", "id", "m1", "tok", token())
	reply := k.handle(pack(dict("enc", "aes", "version", int64(3), "id", "m1", "load",
		must(m.crypt().Seal(pack(load), "")))))
	if raw, err := wire.OpenReply(m.crypt(), reply, ""); err != nil ||
		!same(must(raw.Unpack()), false) {
		t.Errorf("without nonce: %v, %v", raw, err)
	}
}

// TestServerTTL is line 30. This master's own clock does not count.
func TestServerTTL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		ttl   time.Duration
		ts    any
		ahead time.Duration // the clocks of most masters
		want  string
	}{
		{"too old", 30 * time.Second, int64(-31), 0, "bad load"},
		{"future", 30 * time.Second, int64(3600), 0, ""},
		{"fresh", 30 * time.Second, int64(-5), 0, ""},
		{"missing", 30 * time.Second, nil, 0, "bad load"}, {"off, missing", 0, nil, 0, ""},
		{"off, old", 0, int64(-99999), 0, ""},
		{"too old for most", 30 * time.Second, int64(-5), time.Hour, "bad load"},
		{"fresh for most", 30 * time.Second, int64(-3605), -time.Hour, ""},
	} {
		k := newKit(t, func(o *Options, _ *Deps) { o.RequestServerTTL = tt.ttl })
		k.cluster.ahead = tt.ahead
		m := k.accept("m1")
		load := dict("cmd", "_file_recv", "id", "m1", "tok", token(), "nonce", nonce())
		if age, ok := tt.ts.(int64); ok {
			load = load.Set("ts", time.Now().Unix()+age)
		}
		got, _ := k.value(pack(dict("enc", "aes", "version", int64(3), "id", "m1", "load",
			must(m.crypt().Seal(pack(load), ""))))).(string)
		if got != tt.want {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
}

func TestRotations(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *Options, _ *Deps) { o.MinimumAuthVersion = 0 })
	m, old := k.accept("m1"), k.minion(2, "m1")
	before, oldBefore := m.crypt(), old.crypt()
	ping := func(c *wire.Crypticle, m *fakeMinion) error {
		n := nonce()
		_, err := wire.OpenReply(c,
			k.handle(must(m.sender.SealRequest(c, dict("cmd", "_file_recv", "id", "m1"), n,
				time.Now()))), n)
		return err
	}
	// The key that opened a request seals its reply, for the grace; the AES key that the cluster
	// still lists opens old requests.
	k.cluster.rotate(true, true)
	for name, err := range map[string]error{"old session": ping(before, m),
		"new session": ping(m.crypt(), m), "old aes": ping(oldBefore, old),
		"new aes": ping(old.crypt(), old)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.cluster.retire()
	if ping(before, m) == nil || ping(m.crypt(), m) != nil {
		t.Error("a session key past its grace still opens, or the present one does not")
	}
	// Another acceptance of the id is another key.
	current := m.crypt()
	k.keys.set("m1", "accept", minionKey().Public().Text())
	if ping(current, m) == nil || ping(m.crypt(), m) != nil {
		t.Error("the session key did not change with the acceptance")
	}
	// A deleted key ends everything at once.
	current = m.crypt()
	k.keys.set("m1", "reject", "")
	if ping(current, m) == nil {
		t.Error("a rejected minion is served")
	}
}

func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	m := k.accept("m1")
	for cmd, want := range map[string]any{
		"nosuch": dict(), "__init__": dict(), "run_func": dict(), "_ext_nodes": dict(), "": dict(),
		"verify_minion": "", "minion_pub": dict(),
		"pub_ret": dict(), "minion_publish": dict(), "minion_runner": dict(), "_file_recv": false,
	} {
		if got := m.call(dict("cmd", cmd)); !same(got, want) {
			t.Errorf("%q: got %v, want %v", cmd, got, want)
		}
	}
}

func TestClearCommandsAreOff(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	authentication := dict("error", dict("name", "AuthenticationError", "message",
		"Authentication error occurred."))
	for _, tt := range []struct {
		load value.Map
		want any
	}{
		{dict("cmd", "publish", "tgt", "*", "fun", "test.ping"), authentication},
		{dict("cmd", "runner", "fun", "manage.up"),
			dict("error", dict("name", "UserAuthenticationError", "message",
				`Authentication failure of type "user" occurred`))},
		{dict("cmd", "wheel", "token", "x"),
			dict("error", dict("name", "TokenAuthenticationError", "message",
				`Authentication failure of type "token" occurred.`))},
		{dict("cmd", "runner", "eauth", "pam", "username", "bob"),
			dict("error", dict("name", "EauthAuthenticationError", "message",
				`Authentication failure of type "eauth" occurred for user bob.`))},
		{dict("cmd", "mk_token"), ""}, {dict("cmd", "get_token"), false},
		{dict("cmd", "get_token", "token", "x"), dict()},
	} {
		if got := k.value(pack(dict("enc", "clear", "version", int64(3), "load",
			tt.load))); !same(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.load, got, tt.want)
		}
	}
	if k.subs.count() != 0 {
		t.Error("something was published")
	}
}

// panicking is a file server with a bug.
type panicking struct{}

func (panicking) Serve(context.Context, string, value.Map) (any, error) { panic("bug") }

func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(_ *Options, d *Deps) { d.Files = panicking{} })
	m := k.accept("m1")
	if got := k.value(m.seal(dict("cmd", "_file_list"),
		nonce())); got != "Some exception handling minion payload" {
		t.Errorf("got %v", got)
	}
}

func FuzzHandle(f *testing.F) {
	k := newKit(f, func(o *Options, _ *Deps) { o.MinimumAuthVersion = 0 })
	m := k.accept("m1")
	f.Add([]byte{}, false)
	f.Add(must(wire.AuthRequest{Version: 3, ID: "m1", Key: minionKey(),
		Nonce: nonce()}.Pack()), false)
	for _, load := range []value.Map{
		dict("cmd", "_return", "id", "m1", "jid", "req", "return", true, "fun", "test.ping"),
		dict("cmd", "_minion_event", "id", "m1", "events", []any{dict("tag", "t", "data", dict())},
			"pretag", "x"),
		dict("cmd", "_mine_get", "id", "m1", "tgt", "*", "fun", "a,b"),
		dict("cmd", "_pillar", "id", "m1", "grains", dict("os", "x"), "ver", "2"),
		dict("cmd", "_syndic_return", "id", "m1", "load",
			[]any{dict("jid", "1", "id", "m1", "return", dict("m1", dict("return", int64(1))))}),
	} {
		f.Add(m.seal(load, nonce()), false)
		f.Add(pack(load), true) // the inside: sealed below
	}
	f.Fuzz(func(t *testing.T, payload []byte, inside bool) {
		if inside {
			payload = pack(dict("enc", "aes", "load",
				must(wire.NewCrypticle(k.cluster.Secrets().AES[0].Key).Seal(payload, ""))))
		}
		reply, err := k.Handle(context.Background(), Request{Payload: bytes.Clone(payload)})
		if err != nil || len(reply) == 0 {
			t.Fatalf("no answer: %v", err)
		}
		if v, err := value.Unpack(reply); err == nil &&
			v == "Some exception handling minion payload" && inside {
			t.Fatal("a handler panicked")
		}
	})
}
