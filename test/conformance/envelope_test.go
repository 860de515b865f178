package conformance

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
	"clustermaster/wire"
)

// Refusals of section 7.6, as 3008.3 gives them.
const (
	routing   = "{error: Routing error}"
	badLoad   = "bad load"
	notAMap   = "payload and load must be a dict"
	failed    = "Some exception handling minion payload"
	noNonce   = "{error: Nonce not included in request}"
	badEnc    = "{enc: clear, load: {ret: bad enc algo}}"
	badSig    = "{enc: clear, load: {ret: bad sig algo}}"
	noAnswer  = "(the worker of Salt's master never answers again, so it isn't asked)"
	sealedNil = "96 bytes" // {} or nil with a nonce
)

// testRefusals is line 25, with everything else that can be wrong with a request (parts of 14, 21,
// 28, 29, 32). It checks the reply, and that the next request is answered.
func testRefusals(t *testing.T, m *subject) {
	c2, c3 := m.signIn(t, "ok-refused-2", 2), m.signIn(t, "ok-refused-3", 3)
	load2, load3 := c2.load(t, "_unknown"), c3.load(t, "_unknown")
	good := c3.seal(t, load3)
	clearOf := func(load any) []byte { return pack(t, envelope("clear", 3, load)) }
	auth := func(edit func(value.Map) value.Map) []byte {
		return clearOf(edit(value.Map{{Key: "cmd", Value: "_auth"},
			{Key: "id", Value: "ok-refused-3"}, {Key: "nonce", Value: newNonce(t)},
			{Key: "pub", Value: c3.Key.Public().Text()}}))
	}
	sealed := func(edit func(value.Map) value.Map) []byte { return c3.seal(t, edit(load3)) }
	outer := func(edit func(value.Map) value.Map) []byte { return c3.seal(t, load3, edit) }
	for _, tt := range []struct {
		name    string
		payload []byte
		want    string // of Salt 3008.3; also ours unless differs is set
		differs string
	}{
		{"a byte that begins nothing", []byte{0xc1}, routing, ""},
		{"half a map", good[:len(good)/2], routing, ""},
		{"empty frame", nil, routing, ""},
		{"trailing byte", append(bytes.Clone(good), 0), routing, ""},
		{"array as map key", []byte{0x81, 0x91, 0x01, 0x01}, routing, ""},
		{"int", pack(t, 5), badLoad, ""},
		{"text", pack(t, "hello"), badLoad, ""},
		{"nil", pack(t, nil), badLoad, ""},
		{"array", pack(t, []any{1, 2}), badLoad, ""},
		{"empty map", pack(t, value.Map{}), badLoad, ""},
		{"no load", pack(t, value.Map{{Key: "enc", Value: "clear"}}), badLoad, ""},
		{"no enc", pack(t, value.Map{{Key: "load", Value: value.Map{}}}), badLoad, ""},
		{"clear, load an array", clearOf([]any{1}), notAMap, ""},
		{"clear, load a text", clearOf("hello"), notAMap, ""},
		{"clear, load nil", clearOf(nil), notAMap, ""},
		{"clear, id with NUL", clearOf(value.Map{{Key: "cmd", Value: "_auth"},
			{Key: "id", Value: "a\x00b"}}), "bad load: id contains a null byte", ""},
		{"clear, id a number", clearOf(value.Map{{Key: "cmd", Value: "_auth"},
			{Key: "id", Value: 5}}), "bad load: id 5 is not a string", ""},
		{"clear, unknown command", clearOf(value.Map{{Key: "cmd", Value: "nosuch"}}), "{}", ""},
		{"clear, no command", clearOf(value.Map{{Key: "a", Value: 1}}), "{}", ""},
		{"clear, private command", clearOf(value.Map{{Key: "cmd", Value: "__init__"}}), "{}", ""},
		{"clear, aes command", clearOf(value.Map{{Key: "cmd", Value: "_return"}}), "{}", ""},
		{"clear ping", clearOf(value.Map{{Key: "cmd", Value: "ping"},
			{Key: "x", Value: []any{1, "y"}}}), "{cmd: ping, x: [1, y]}", ""},
		{"clear publish", clearOf(value.Map{{Key: "cmd", Value: "publish"},
			{Key: "tgt", Value: "*"}, {Key: "fun", Value: "test.ping"},
			{Key: "user", Value: "root"}, {Key: "key", Value: "x"}}),
			"{error: {name: AuthenticationError, message: Authentication error occurred.}}", ""},
		{"enc foo", pack(t, envelope("foo", 3, value.Map{{Key: "cmd", Value: "ping"}})),
			failed, ""},
		{"enc pub", pack(t, envelope("pub", 3, []byte("\x00\xff"))), notAMap, ""},
		{"v3 unknown id", outer(with("id", "nosuch-25")), badLoad, ""},
		{"v3 no id", outer(without("id")), badLoad, ""},
		{"v3 bad id", outer(with("id", "../x")), badLoad, ""},
		{"v3 short", outer(with("load", "abc")), badLoad, ""},
		{"v3 garbage", outer(with("load", bytes.Repeat([]byte{0xa5}, 160))), badLoad, ""},
		{"v3 one bit of the id's own", outer(func(o value.Map) value.Map {
			b := bytes.Clone(o.Bytes("load"))
			b[20] ^= 1
			return o.Set("load", b)
		}), badLoad, ""},
		{"v2 garbage", pack(t, envelope("aes", 2, bytes.Repeat([]byte{0xa5}, 160))), badLoad, ""},
		{"v2 sealed with the session key", c3.sealWith(t, wire.NewCrypticle(c3.got.Session), load2,
			func(value.Map) value.Map { return nil }, func(value.Map) value.Map {
				s, err := wire.NewCrypticle(c3.got.Session).Seal(pack(t, load2), "")
				if err != nil {
					t.Fatal(err)
				}
				return envelope("aes", 2, s)
			}), badLoad, ""},
		{"v3 sealed with the common key", c3.sealWith(t, wire.NewCrypticle(c3.got.AES), load3),
			badLoad, ""},
		{"v3 no token", sealed(without("tok")), badLoad, ""},
		{"v3 token of 255 bytes", sealed(with("tok", c3.tok[:255])), badLoad, ""},
		{"v3 empty token", sealed(with("tok", "")), badLoad, ""},
		{"v3 token of zeros", sealed(with("tok", make([]byte, 256))), badLoad, ""},
		{"v3 token of another key", sealed(with("tok", otherToken(t))), badLoad, ""},
		{"v3 ids differ", sealed(with("id", "ok-refused-2")), badLoad, ""},
		{"v3 inner id a number", sealed(with("id", 5)), "bad load: id 5 is not a string", ""},
		{"v3 inner id with NUL", sealed(with("id", "ok-refused-3\x00")),
			"bad load: id contains a null byte", ""},
		{"v3 load an array", c3.seal(t, []any{1, 2}), notAMap, ""},
		{"v3 no inner id", sealed(without("id")), noAnswer, badLoad},
		{"v3 unknown command", sealed(with("cmd", "nosuch")), sealedNil, ""},
		{"v3 dunder command", sealed(with("cmd", "__init__")), sealedNil, ""},
		{"v3 command not text", sealed(with("cmd", 5)), sealedNil, ""},
		{"v3 _pillar without nonce", c3.seal(t, c3.pillarLoad(t).Without("nonce")), noNonce, ""},
		{"v2 _pillar without nonce", c2.seal(t, c2.pillarLoad(t).Without("nonce")), noNonce, ""},
		{"_auth without id", auth(without("id")), failed, badLoad},
		{"_auth without pub", auth(without("pub")), failed, badLoad},
		{"_auth without nonce", auth(without("nonce")), failed, badLoad},
		{"version nil",
			pack(t, append(envelope("clear", nil, value.Map{{Key: "cmd", Value: "ping"}}),
				value.Pair{Key: "version", Value: nil})), noAnswer, "{cmd: ping}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			switch {
			case m.salt() && want == noAnswer:
				return
			case !m.salt() && tt.differs != "":
				want = tt.differs
			}
			if got := show(t, m.send(t, tt.payload)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := show(t, m.clear(t, 3,
				value.Map{{Key: "cmd", Value: "ping"}})); got != "{cmd: ping}" {
				t.Errorf("the next request got %s", got)
			}
		})
	}
	t.Run("without nonce", func(t *testing.T) {
		load := c3.load(t, "nosuch").Without("nonce")
		if v, err := wire.OpenReply(c3.crypt(), m.send(t, c3.seal(t, load)), ""); err != nil ||
			string(v) != "\x80" {
			t.Errorf("%x, %v", v, err)
		}
	})
}

func otherToken(t testing.TB) []byte {
	t.Helper()
	tok, err := wire.TokenSalt(keyNumber(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// testVersions is line 26. How the version is read shows in the form of the answer to a sign-in,
// and in the key that opens a request.
func testVersions(t *testing.T, m *subject) {
	const signed = "{enc: clear, load: packed{ret: false, nonce: NONCE}, sig: 256 bytes}"
	const unsigned = "{enc: clear, load: {ret: false}}"
	for _, tt := range []struct {
		name    string
		version any
		want    string
	}{
		{"missing", nil, unsigned}, {"0", 0, unsigned}, {"1", 1, unsigned}, {"2", 2, signed},
		{"3", 3, signed}, {"9", 9, signed},
		{"text 3", "3", signed}, {"text abc", "abc", unsigned},
	} {
		load := value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "no-version"},
			{Key: "pub", Value: keyNumber(t, 0).Public().Text()},
			{Key: "nonce", Value: newNonce(t)}}
		if got := show(t, m.clear(t, tt.version, load)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	c := m.signIn(t, "ok-version", 3)
	for _, version := range []any{3, 9, "3"} {
		load := c.load(t, "nosuch")
		if v, err := c.open(m.send(t, c.seal(t, load, with("version", version))),
			load); err != nil || showValue(v) != "{}" {
			t.Errorf("aes of version %v: %v, %v", version, v, err)
		}
	}
	if m.salt() { // its worker would die
		return
	}
	null := append(envelope("clear", nil,
		value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "no-version"},
			{Key: "pub", Value: keyNumber(t, 0).Public().Text()}}),
		value.Pair{Key: "version", Value: nil})
	if got := show(t, m.send(t, pack(t, null))); got != unsigned {
		t.Errorf("nil: got %s, want %s", got, unsigned)
	}
}

// testMinimumVersion is the first half of line 27: by default everything below version 3 is
// refused, whatever it is.
func testMinimumVersion(t *testing.T, m *subject) {
	c := m.signIn(t, "ok-minimum", 3)
	for _, version := range []any{nil, 0, 1, 2} {
		for name, payload := range map[string][]byte{
			"_auth": pack(t, envelope("clear", version,
				value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "ok-minimum"},
					{Key: "pub", Value: c.Key.Public().Text()},
					{Key: "nonce", Value: newNonce(t)}})),
			"ping": pack(t, envelope("clear", version, value.Map{{Key: "cmd", Value: "ping"}})),
			"aes": c.sealWith(t, wire.NewCrypticle(c.got.AES), c.load(t, "nosuch"),
				with("version", version)),
		} {
			if version == nil {
				payload = pack(t, unpack(t, payload).(value.Map).Without("version"))
			}
			if got := show(t, m.send(t, payload)); got != badLoad {
				t.Errorf("%s of version %v: %s", name, version, got)
			}
		}
	}
}

// testLowVersions is the second half of line 27: with minimum_auth_version 0 all are served.
func testLowVersions(t *testing.T, m *subject) {
	for version := range 4 {
		c := m.signIn(t, "ok-low", version)
		if v := c.request(t, "nosuch"); showValue(v) != "{}" {
			t.Errorf("version %d: %v", version, v)
		}
	}
}

// testIDs is line 28.
func testIDs(t *testing.T, m *subject) {
	a, b := m.signIn(t, "ok-a", 3), m.signIn(t, "ok-b", 3)
	for _, tt := range []struct {
		name    string
		payload []byte
	}{
		{"outer a, inner b, key of a", a.seal(t, a.load(t, "nosuch").Set("id", b.ID))},
		{"outer b, inner a, key of a", a.seal(t, a.load(t, "nosuch"), with("id", b.ID))},
		{"outer b, inner b, key of a", a.seal(t, a.load(t, "nosuch").Set("id", b.ID),
			with("id", b.ID))},
	} {
		if got := show(t, m.send(t, tt.payload)); got != badLoad {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

// testToken is line 29. b has its own key, so that a's token is wrong for it.
func testToken(t *testing.T, m *subject) {
	c := m.signIn(t, "ok-token", 3)
	for name, edit := range map[string]func(value.Map) value.Map{"none": without("tok"),
		"nil": with("tok", nil), "of another": with("tok", otherToken(t))} {
		if got := show(t, m.send(t, c.seal(t, edit(c.load(t, "nosuch"))))); got != badLoad {
			t.Errorf("token %s: %s", name, got)
		}
	}
	if v := c.request(t, "nosuch"); showValue(v) != "{}" {
		t.Errorf("the right token: %v", v)
	}
}

// testAge is line 30 on a master with request_server_ttl 30.
func testAge(t *testing.T, m *subject) {
	c := m.signIn(t, "ok-age", 3)
	now := time.Now().Unix()
	for _, tt := range []struct {
		ts   int64
		want string
	}{{now - 32, badLoad}, {now - 25, sealedNil}, {now, sealedNil}, {now + 3600, sealedNil}} {
		if got := show(t,
			m.send(t, c.seal(t, c.load(t, "nosuch").Set("ts", tt.ts)))); got != tt.want {
			t.Errorf("ts %+d s: got %s, want %s", tt.ts-now, got, tt.want)
		}
	}
}

// testAgeless is line 30 on a master without a limit.
func testAgeless(t *testing.T, m *subject) {
	c := m.signIn(t, "ok-ageless", 3)
	for name, load := range map[string]value.Map{"no ts": c.load(t, "nosuch").Without("ts"),
		"an old ts": c.load(t, "nosuch").Set("ts", 1)} {
		if got := show(t, m.send(t, c.seal(t, load))); got != sealedNil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// testClaimedID is line 31. Salt's master makes a session file for the claimed id; ours makes
// nothing.
func testClaimedID(t *testing.T, m *subject) {
	const id = "nosuch-31"
	garbage := append(envelope("aes", 3, bytes.Repeat([]byte{1}, 96)),
		value.Pair{Key: "id", Value: id})
	if got := show(t, m.send(t, pack(t, garbage))); got != badLoad {
		t.Errorf("got %s", got)
	}
	var files []string
	err := filepath.WalkDir(m.Dir, func(path string, _ fs.DirEntry, _ error) error {
		if strings.Contains(filepath.Base(path), id) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.salt() {
		if len(files) != 1 {
			t.Errorf("Salt made %v; the difference that docs/differences.md names is gone", files)
		}
		return
	}
	if len(files) > 0 {
		t.Errorf("made %v", files)
	}
}

// testWrongSeal is line 32.
func testWrongSeal(t *testing.T, m *subject) {
	c := m.signIn(t, "ok-seal", 3)
	old := m.signIn(t, "ok-seal", 2)
	if got := show(t, m.send(t, old.sealWith(t, wire.NewCrypticle(c.got.Session),
		old.load(t, "nosuch")))); got != badLoad {
		t.Errorf("sealed with the session key: %s", got)
	}
	if v := old.request(t, "nosuch"); showValue(v) != "{}" {
		t.Errorf("sealed with the common key: %v", v)
	}
}
