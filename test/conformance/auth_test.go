package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// Forms of the answers to a sign-in.
const (
	formAccept  = "{enc: clear, load: packed{enc: pub, pub_key: PEM, publish_port: 4505, aes: 256 bytes, session: 256 bytes, sig: 256 bytes, nonce: NONCE}, sig: 256 bytes}"
	formToken   = "{enc: clear, load: packed{enc: pub, pub_key: PEM, publish_port: 4505, token: 256 bytes, aes: 256 bytes, session: 256 bytes, sig: 256 bytes, nonce: NONCE}, sig: 256 bytes}"
	formAccept0 = "{enc: pub, pub_key: PEM, publish_port: 4505, aes: 256 bytes, session: 256 bytes, sig: 256 bytes}"
	formToken0  = "{enc: pub, pub_key: PEM, publish_port: 4505, token: 256 bytes, aes: 256 bytes, session: 256 bytes, sig: 256 bytes}"
)

// formOf is the form of a negative or pending answer.
func formOf(version int, ret any) string {
	if version < 2 {
		return fmt.Sprintf("{enc: clear, load: {ret: %v}}", ret)
	}
	return fmt.Sprintf("{enc: clear, load: packed{ret: %v, nonce: NONCE}, sig: 256 bytes}", ret)
}

// folders are the lists that contain an id's key.
func (m *subject) folders(t testing.TB, id string) string {
	t.Helper()
	var in []string
	for _, f := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied"} {
		_, err := os.Stat(m.path("pki", f, id))
		switch {
		case err == nil:
			in = append(in, f)
		case !errors.Is(err, fs.ErrNotExist):
			t.Fatal(err)
		}
	}
	return strings.Join(in, " ")
}

// changeKey runs salt-key.
func (m *subject) changeKey(t testing.TB, args ...string) {
	t.Helper()
	if r := m.Key(t, append(args, "-y")...); r.Code != 0 {
		t.Fatalf("%v", r)
	}
}

// offer is a row of section 6.2: an offered key and everything that follows from it. Rows of one id
// build on each other.
type offer struct {
	id     string
	key    int
	want   any    // "accept", true, false
	event  string // act and result; "" for none
	lists  string // of the id's key, afterwards
	before func(t *testing.T, m *subject, id string)
}

// testSignIn is line 33: the table of 6.2 for every version. Ids carry the version, because each
// version starts with new ones.
func (s *suite) testSignIn(t *testing.T, m *subject) {
	events := s.listen(t, m)
	m.masterKey(t)
	// Rejected keys, for all versions at once: the command takes seconds on Salt's master.
	for version := range 4 {
		m.newClient(t, fmt.Sprintf("rejected-%d", version), version).auth(t)
	}
	m.changeKey(t, "-r", "rejected-?")

	for _, row := range []struct {
		name   string
		offers []offer
	}{
		{"1 invalid ids", []offer{
			{id: "a/b", want: false}, {id: `a\b`, want: false}, {id: "", want: false},
			{id: ".", want: false}, {id: "..", want: false}, {id: "../minions/x", want: false},
		}},
		{"4 rejected", []offer{
			{id: "rejected-V", want: false, event: "reject false", lists: "minions_rejected"},
			{id: "rejected-V", key: 1, want: false, event: "reject false",
				lists: "minions_rejected"},
		}},
		{"5 accepted", []offer{
			{id: "ok-V", want: "accept", event: "accept true", lists: "minions"},
			{id: "ok-V", want: "accept", event: "accept true", lists: "minions"},
			{id: "ok-V", key: 1, want: false, event: "denied false",
				lists: "minions minions_denied"},
			{id: "ok-V", want: "accept", event: "accept true", lists: "minions minions_denied"},
		}},
		{"6 autoreject", []offer{
			{id: "no-V", want: false, event: "reject false", lists: "minions_rejected"},
		}},
		{"6, 7 pending", []offer{
			{id: "pending-V", want: true, event: "pend true", lists: "minions_pre"},
			{id: "pending-V", want: true, event: "pend true", lists: "minions_pre"},
			{id: "pending-V", key: 1, want: false, event: "denied false",
				lists: "minions_pre minions_denied"},
			{id: "pending-V", want: true, event: "pend true", lists: "minions_pre minions_denied"},
		}},
		{"7 pending, autosign", []offer{
			{id: "late-V", want: true, event: "pend true", lists: "minions_pre"},
			{id: "late-V", key: 1, want: false, event: "denied false",
				lists: "minions_pre minions_denied",
				before: func(t *testing.T, m *subject,
					id string) {
					m.appendTo(t, "autosign.conf", id)
				}},
			{id: "late-V", want: "accept", event: "accept true", lists: "minions minions_denied"},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for version := range 4 {
				for i, o := range row.offers {
					o.id = strings.Replace(o.id, "V", fmt.Sprint(version), 1)
					if o.before != nil {
						o.before(t, m, o.id)
					}
					o.check(t, m, events, version, i)
				}
			}
		})
	}
	t.Run("10 not a key", func(t *testing.T) { testNotAKey(t, m, events) })
	t.Run("line breaks in ids", func(t *testing.T) { testLineBreaks(t, m, events) })
}

func (o offer) check(t *testing.T, m *subject, events *stream, version, step int) {
	t.Helper()
	what := fmt.Sprintf("version %d, offer %d of %q", version, step+1, o.id)
	c := m.newClient(t, o.id, version)
	c.AuthRequest.Master, c.Key = m.key, keyNumber(t, o.key)
	mark := events.mark()
	err := c.auth(t)
	if err != nil {
		t.Errorf("%s: the minion refuses the answer: %v", what, err)
	}
	form := formOf(version, o.want)
	if o.want == "accept" {
		form = formAccept
		if version < 2 {
			form = formAccept0
		}
	}
	if got := show(t, c.reply); got != form {
		t.Errorf("%s: got\n%s, want\n%s", what, got, form)
	}
	if o.event == "" {
		events.flush(t, m)
		if list := events.since(mark, auth(o.id)); len(list) > 0 {
			t.Errorf("%s: events %v", what, list)
		}
	} else {
		h := events.wait(t, mark, 10*time.Second, what, auth(o.id))
		if got := fmt.Sprint(h.Data["act"], " ", h.Data["result"]); got != o.event ||
			h.Data["pub"] != c.Key.Public().Text() || h.Data["_stamp"] == nil || len(h.Data) != 5 {
			t.Errorf("%s: event is %v, want %s", what, h, o.event)
		}
	}
	if o.lists == "" && !wire.ValidID(o.id) {
		return
	}
	e2e.Eventually(t, 5*time.Second, what+": key files", func() error {
		if got := m.folders(t, o.id); got != o.lists {
			return fmt.Errorf("in %q, want %q", got, o.lists)
		}
		return nil
	})
}

// appendTo adds a line to a file of the master.
func (m *subject) appendTo(t testing.TB, name, text string) {
	t.Helper()
	// Replaced at once: the master may be reading.
	next := m.write(t, string(readFile(t, m.path(name)))+text+"\n", name+".next")
	if err := os.Rename(next, m.path(name)); err != nil {
		t.Fatal(err)
	}
}

// testNotAKey: with Salt's master a text that is not a key becomes pending all the same, and is
// useless once accepted. Ours refuses it at once.
func testNotAKey(t *testing.T, m *subject, events *stream) {
	for _, pub := range []string{"not a key", ""} {
		id := "odd-" + fmt.Sprint(len(pub))
		c := m.newClient(t, id, 3)
		mark := events.mark()
		err := c.auth(t, with("pub", pub))
		if !m.salt() {
			events.flush(t, m)
			if list := events.since(mark, auth(id)); show(t, c.reply) != badLoad || len(list) > 0 ||
				m.folders(t, id) != "" {
				t.Errorf("%q: %s, events %v, key in %q", pub, show(t, c.reply), list,
					m.folders(t, id))
			}
			continue
		}
		if err != nil || show(t, c.reply) != formOf(3, true) {
			t.Errorf("%q: %v, %s", pub, err, show(t, c.reply))
		}
		if h := events.wait(t, mark, 10*time.Second, id, auth(id)); h.Data["act"] != "pend" {
			t.Errorf("%q: %v", pub, h)
		}
		c = m.newClient(t, "ok-"+id, 3)
		if err := c.auth(t, with("pub", pub)); err != nil || show(t, c.reply) != formOf(3, false) {
			t.Errorf("%q accepted: %v, %s", pub, err, show(t, c.reply))
		}
	}
}

// testLineBreaks: Salt's master takes an id with a control character as a key's name. For ours the
// id is not valid.
func testLineBreaks(t *testing.T, m *subject, events *stream) {
	id := "web\nbreak"
	c := m.newClient(t, id, 3)
	mark := events.mark()
	want := m.salt()
	if err := c.auth(t); err != nil || show(t, c.reply) != formOf(3, want) {
		t.Errorf("%v, %s", err, show(t, c.reply))
	}
	events.flush(t, m)
	if list := events.since(mark, auth(id)); len(list) > 0 != want ||
		m.folders(t, id) != map[bool]string{true: "minions_pre"}[want] {
		t.Errorf("events %v, key in %q", list, m.folders(t, id))
	}
}

// testSigAlgo is line 34, testEncAlgo line 35.
func testSigAlgo(t *testing.T, m *subject) {
	for version := 2; version <= 3; version++ {
		for _, id := range []string{"ok-algo", "pending-algo", "no-algo"} {
			c := m.newClient(t, id, version)
			if err := c.auth(t, with("sig_algo", "FOO")); show(t, c.reply) != badSig ||
				!errors.Is(err, wire.ErrRefusedAlgorithm) {
				t.Errorf("version %d, %s: %s, %v", version, id, show(t, c.reply), err)
			}
		}
	}
}

func testEncAlgo(t *testing.T, m *subject) {
	master := m.masterKey(t)
	for _, token := range []bool{false, true} {
		c := m.newClient(t, "ok-algo", 3)
		if token {
			c.AuthRequest.Master, c.Token = master, []byte("a token")
		}
		err := c.auth(t, with("enc_algo", "FOO"))
		want := badEnc
		if m.salt() && !token {
			want = failed
		}
		if got := show(t, c.reply); got != want ||
			(want == badEnc && !errors.Is(err, wire.ErrRefusedAlgorithm)) {
			t.Errorf("token %v: %s, %v", token, got, err)
		}
	}
}

// testSHA224 is line 36: all four RSA fields of the answer, and the signature of a pending one.
func testSHA224(t *testing.T, m *subject) {
	c := m.newClient(t, "ok-sha224", 3)
	c.AuthRequest.Master, c.Token = m.masterKey(t), []byte("a token of some length")
	c.EncAlgo, c.SigAlgo = wire.EncSHA224, wire.SigSHA224
	if err := c.auth(t); err != nil || !c.got.Accepted || show(t, c.reply) != formToken {
		t.Fatalf("%v, %s", err, show(t, c.reply))
	}
	outer := unpack(t, c.reply).(value.Map)
	load := outer.Bytes("load")
	inner := unpack(t, load).(value.Map)
	for _, field := range []string{"aes", "session", "token"} {
		if _, err := c.Key.Decrypt(wire.EncSHA1, inner.Bytes(field)); err == nil {
			t.Errorf("%s decrypts with SHA-1 too", field)
		}
		if _, err := c.Key.Decrypt(wire.EncSHA224, inner.Bytes(field)); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
	if m.key.Verify(wire.SigSHA1, load, outer.Bytes("sig")) == nil {
		t.Error("the signature verifies with SHA-1")
	}
	p := m.newClient(t, "pending-sha224", 3)
	p.AuthRequest.Master, p.SigAlgo = m.key, wire.SigSHA224
	if err := p.auth(t); err != nil || p.got.Ret != true {
		t.Errorf("pending: %v, %s", err, show(t, p.reply))
	}
}

// testGarbledToken is line 37. A good token comes back.
func testGarbledToken(t *testing.T, m *subject) {
	for version, want := range []string{formToken0, formToken0, formToken, formToken} {
		c := m.newClient(t, "ok-garbled", version)
		c.AuthRequest.Master, c.Token = m.masterKey(t), []byte("a token")
		if err := c.auth(t); err != nil || show(t, c.reply) != want {
			t.Errorf("version %d: %v, %s", version, err, show(t, c.reply))
		}
	}
	for name, token := range map[string]any{"random": make([]byte, 256), "short": "abc",
		"empty": ""} {
		c := m.newClient(t, "ok-garbled", 3)
		if err := c.auth(t, with("token", token)); err != nil || show(t, c.reply) != formAccept {
			t.Errorf("%s: %v, %s", name, err, show(t, c.reply))
		}
	}
}

// testKeyForms is line 38.
func testKeyForms(t *testing.T, m *subject) {
	c := m.newClient(t, "ok-forms", 3)
	plain := c.Key.Public().Text()
	for _, pub := range []string{plain, strings.ReplaceAll(plain, "\n", "\r\n"), plain + "\n",
		"\n" + strings.ReplaceAll(plain, "\n", "\r\n") + "\r\n\r\n"} {
		if err := c.auth(t, with("pub", pub)); err != nil || !c.got.Accepted {
			t.Errorf("%q: %v, %s", pub[:30], err, show(t, c.reply))
		}
	}
	if got := m.folders(t, c.ID); got != "minions" {
		t.Errorf("key is in %s", got)
	}
}

// testPubSig is line 39: pub_sig verifies over the key's cleaned text with the algorithm of the
// request.
func testPubSig(t *testing.T, m *subject) {
	for _, algo := range []string{wire.SigSHA1, wire.SigSHA224} {
		c := m.newClient(t, "ok-first", 3)
		c.SigAlgo, c.AlwaysVerify = algo, true
		if err := c.auth(t); err != nil || !c.got.Accepted {
			t.Fatalf("%s: %v, %s", algo, err, show(t, c.reply))
		}
		c.VerifySign = nil
		if err := c.auth(t); !errors.Is(err, wire.ErrPubSig) {
			t.Errorf("a minion that doesn't verify: %v", err)
		}
	}
}

func readFile(t testing.TB, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
