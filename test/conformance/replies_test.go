package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// publish runs `salt --async`, whose job needs no answer, and returns the jid.
func publish(t testing.TB, m *e2e.Master, args ...string) string {
	t.Helper()
	r := m.Salt(t, append([]string{"--async"}, args...)...)
	_, jid, ok := strings.Cut(strings.TrimSpace(r.Stdout), "Executed command with job ID: ")
	if r.Code != 0 || !ok {
		t.Fatalf("%v", r)
	}
	return jid
}

// testFiltering is line 8 on a master with zmq_filtering.
func testFiltering(t *testing.T, m *subject) {
	for _, id := range []string{"ok-8-a", "ok-8-b", "ok-8-c"} {
		c := m.signIn(t, id, 3)
		m.send(t, c.seal(t, c.pillarLoad(t).Set("grains",
			value.Map{{Key: "os", Value: "Plan9"}, {Key: "id", Value: id}})))
	}
	all := subscribe(t, m.Addr, "")
	two := subscribe(t, m.Addr, wire.BroadcastTopic, wire.Topic("ok-8-b"))
	for _, tt := range []struct {
		target []string
		topics []string
	}{
		{[]string{"ok-8-[ab]"}, []string{wire.Topic("ok-8-a"), wire.Topic("ok-8-b")}},
		{[]string{"-E", "ok-8-(b|c)"}, []string{wire.Topic("ok-8-b"), wire.Topic("ok-8-c")}},
		{[]string{"-L", "ok-8-c,ok-8-a"}, []string{wire.Topic("ok-8-a"), wire.Topic("ok-8-c")}},
		{[]string{"-G", "os:Plan9"}, []string{wire.BroadcastTopic}},
		{[]string{"-C", "G@os:Plan9 or ok-8-a"}, []string{wire.BroadcastTopic}},
	} {
		publish(t, m.Master, append(tt.target, "test.ping")...)
		var got []string
		var payload []byte
		for range tt.topics {
			frames := all.next(t, 5*time.Second)
			if len(frames) != 2 || (payload != nil && !bytes.Equal(payload, frames[1])) {
				t.Fatalf("%v: %s, or another payload", tt.target, framing(frames))
			}
			got, payload = append(got, string(frames[0])), frames[1]
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(tt.topics))
		if !slices.Equal(got, want) {
			t.Errorf("%v: topics %q, want %q", tt.target, got, want)
		}
		if slices.Contains(want, wire.BroadcastTopic) ||
			slices.Contains(want, wire.Topic("ok-8-b")) {
			if frames := two.next(t, 5*time.Second); !bytes.Equal(frames[1], payload) {
				t.Errorf("%v: the minion of one id hears something else", tt.target)
			}
		}
	}
	for _, s := range []*subscriber{all, two} {
		select {
		case frames := <-s.got:
			t.Errorf("one copy too many: %s", framing(frames))
		default:
		}
	}
}

// testNonces is line 56.
func testNonces(t *testing.T, m *subject) {
	for version := range 4 {
		c := m.signIn(t, "ok-56", version)
		load := c.load(t, "_minion_event", value.Pair{Key: "id", Value: c.ID},
			value.Pair{Key: "tag", Value: "t56"}, value.Pair{Key: "data", Value: "x"},
			value.Pair{Key: "tok", Value: c.tok})
		reply := m.send(t, c.seal(t, load))
		// with a nonce: 32 more
		want := map[bool]string{false: "64 bytes", true: "96 bytes"}[version > 1]
		if v, err := c.open(reply, load); err != nil || v != nil || show(t, reply) != want {
			t.Errorf("version %d: %v, %v, %s", version, v, err, show(t, reply))
		}
		if version > 1 {
			if _, err := c.open(reply, load.Set("nonce", newNonce(t))); err == nil {
				t.Errorf("version %d: the reply has not the request's nonce", version)
			}
		}
	}
}

// testPillarReplies is line 57.
func testPillarReplies(t *testing.T, m *subject) {
	master := m.masterKey(t)
	for _, tt := range []struct {
		version  int
		enc, sig string
	}{{0, "", ""}, {2, "", ""}, {2, wire.EncSHA224, wire.SigSHA224}, {3, wire.EncSHA1,
		wire.SigSHA1}, {3, wire.EncSHA224, wire.SigSHA224}} {
		c := m.signIn(t, "ok-57", tt.version)
		load := c.pillarLoad(t).Set("tok", c.tok)
		reply := m.send(t, c.seal(t, load, func(o value.Map) value.Map {
			if o = o.Without("enc_algo", "sig_algo"); tt.enc != "" {
				o = append(o, value.Pair{Key: "enc_algo", Value: tt.enc},
					value.Pair{Key: "sig_algo", Value: tt.sig})
			}
			return o
		}))
		c.EncAlgo, c.SigAlgo = tt.enc, tt.sig
		v, err := wire.OpenPrivate(c.Key, master, c.sender(), reply, "pillar", load.String("nonce"))
		if err != nil || showRaw(v) != "{}" {
			t.Errorf("version %d, %s, %s: %s, %v in %s", tt.version, tt.enc, tt.sig, showRaw(v),
				err, show(t, reply))
		}
		if tt.version > 1 {
			if got := show(t,
				m.send(t, c.seal(t, c.pillarLoad(t).Without("nonce")))); got != noNonce {
				t.Errorf("version %d without nonce: %s", tt.version, got)
			}
		}
	}
}

func showRaw(r value.Raw) string {
	v, err := r.Unpack()
	if err != nil {
		return err.Error()
	}
	return showValue(v)
}

// testLarge is line 58: 5 MB of mine in a request and in a reply, and a pillar of 5 MB.
func testLarge(t *testing.T, m *subject) {
	c := m.signIn(t, "ok-58", 3)
	text := strings.Repeat("0123456789abcdef", 5<<20/16)
	if v := c.request(t, "_mine", value.Pair{Key: "data",
		Value: value.Map{{Key: "big.text", Value: text}}}); v != true {
		t.Errorf("_mine: %v", v)
	}
	v := c.request(t, "_mine_get", value.Pair{Key: "tgt", Value: "ok-58"},
		value.Pair{Key: "fun", Value: "big.text"}, value.Pair{Key: "tgt_type", Value: "glob"})
	if got, ok := v.(value.Map); !ok || got.String("ok-58") != text {
		t.Errorf("_mine_get: %.200v", v)
	}
	m.write(t, "base: {ok-58: [large]}\n", "pillar/top.sls")
	m.write(t, "large: "+text+"\n", "pillar/large.sls")
	defer m.write(t, "base: {}\n", "pillar/top.sls")
	for _, version := range []int{2, 3} {
		c := m.signIn(t, "ok-58", version)
		load := c.pillarLoad(t).Set("tok", c.tok)
		raw, err := wire.OpenPrivate(c.Key, m.masterKey(t), c.sender(), m.send(t, c.seal(t, load)),
			"pillar", load.String("nonce"))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := value.UnpackMap(raw); err != nil || v.String("large") != text {
			t.Errorf("_pillar of version %d: %d bytes, %v", version, len(raw), err)
		}
	}
}

// published opens a publication without a minion's checks: the load with its serial.
func published(t testing.TB, aes wire.Key, payload []byte) (outer, load value.Map) {
	t.Helper()
	outer = unpack(t, payload).(value.Map)
	p, err := wire.NewCrypticle(aes).Open(outer.Bytes("load"))
	if err != nil {
		t.Fatalf("open publication: %v", err)
	}
	return outer, unpack(t, p).(value.Map)
}

// job waits for the publication of a job and skips those before it: a master that lost subscribers
// sends their jobs again to those that come.
func (s *subscriber) job(t testing.TB, aes wire.Key, jid string) (outer, load value.Map) {
	t.Helper()
	for {
		frames := s.next(t, 5*time.Second)
		if outer, load = published(t, aes, frames[len(frames)-1]); load.String("jid") == jid {
			return outer, load
		}
	}
}

// testSerial is line 60. Salt's single master counts; its cluster and ours don't. Ours keeps its
// AES key over a restart.
func testSerial(t *testing.T, m *subject) {
	var last int64
	var aes wire.Key
	for round := range 2 {
		if round > 0 {
			if code, took := m.Stop(t, 20*time.Second); code != 0 {
				t.Fatalf("ended with %d after %v", code, took)
			}
			m.start(t)
		}
		c := m.signIn(t, "ok-60", 3)
		switch {
		case round == 0:
			aes = c.got.AES
		case m.salt():
			last, aes = 0, c.got.AES
		case c.got.AES != aes:
			t.Error("another AES key after a restart")
		}
		s := subscribe(t, m.Addr, "")
		for range 2 {
			jid := publish(t, m.Master, "-L", "ok-60", "test.arg", "x", "a=1")
			outer, load := s.job(t, aes, jid)
			want := "{fun: test.arg, arg: [x, {__kwarg__: true, a: 1}], tgt: [ok-60], jid: " + jid +
				", ret: , tgt_type: list, user: root"
			if m.salt() {
				n, _ := load.Get("serial")
				serial, ok := n.(int64)
				if !ok || serial <= last {
					t.Errorf("serial %v after %d", n, last)
				}
				last = serial
				want += fmt.Sprintf(", serial: %d", serial)
			}
			if got := showValue(load); got != want+"}" {
				t.Errorf("load is\n%s, want\n%s}", got, want)
			}
			if got := showValue(outer.Without("load")); got != "{enc: aes, sig_algo: PKCS1v15-SHA1, sig: 256 bytes}" {
				t.Errorf("publication is %s", got)
			}
			if err := m.masterKey(t).Verify(wire.SigSHA1, outer.Bytes("load"),
				outer.Bytes("sig")); err != nil {
				t.Error(err)
			}
		}
	}
}

// testForeignGreeting is line 69 as far as it concerns our ports: a peer that does not speak ZMTP,
// or has the wrong socket, is disconnected.
func testForeignGreeting(t *testing.T, m *subject) {
	for _, port := range []int{e2e.RequestPort, e2e.PublishPort} {
		for name, hello := range map[string]string{"tcp transport": "\x82\xa4head\x80\xa4body\x81\xa3enc\xa5clear", "HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"} {
			conn, err := net.DialTimeout("tcp", hostPort(m.Addr, port), 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, hello); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := conn.SetReadDeadline(start.Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Errorf("port %d, %s: still connected after 5 s", port, name)
			}
			conn.Close()
		}
	}
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error) // as io.Copy returns it
	return ok && n.Timeout()
}

// testStartReplies is the other half of line 62: a minion's requests between its sign-in and its
// first job get the same answers from both masters.
func (s *suite) testStartReplies(t *testing.T) {
	base := pair("saltenv", "base")
	for _, tt := range []struct {
		name string
		cmd  string
		load []value.Pair
		want string // "" if only Salt's master knows
	}{
		{"legacy start event", "_minion_event",
			[]value.Pair{pair("pretag", nil), pair("tag", "minion_start"),
				pair("data", "Minion ok-62 started")}, "<nil>"},
		{"start event", "_minion_event",
			[]value.Pair{pair("pretag", nil), pair("tag", "salt/minion/ok-62/start"),
				pair("data", "Minion ok-62 started")}, "<nil>"},
		{"resources", "_register_resources",
			[]value.Pair{pair("resources", value.Map{}), pair("resource_grains", value.Map{})},
			"true"},
		{"master_opts", "_master_opts", nil, ""},
		{"master_opts of one env", "_master_opts", []value.Pair{pair("env_only", true)}, ""},
		{"file_envs", "_file_envs", nil, "[base]"},
		{"file_list", "_file_list", []value.Pair{base, pair("prefix", "")},
			"[deep/a.txt, top.sls]"},
		{"dir_list", "_dir_list", []value.Pair{base, pair("prefix", "")}, ""},
		{"symlink_list", "_symlink_list", []value.Pair{base, pair("prefix", "")}, "{}"},
		{"file_list_emptydirs", "_file_list_emptydirs",
			[]value.Pair{base, pair("prefix", "")}, "[]"},
		{"file_hash", "_file_hash", []value.Pair{base, pair("path", "top.sls")}, ""},
		{"file_hash of none", "_file_hash", []value.Pair{base, pair("path", "nosuch.sls")}, ""},
		{"serve_file", "_serve_file", []value.Pair{base, pair("path", "deep/a.txt"),
			pair("loc", 0)}, ""},
		{"serve_file, past the end", "_serve_file",
			[]value.Pair{base, pair("path", "deep/a.txt"), pair("loc", 10)}, ""},
		{"serve_file of none", "_serve_file",
			[]value.Pair{base, pair("path", "nosuch.sls"), pair("loc", 0)}, ""},
		{"master_tops", "_master_tops",
			[]value.Pair{pair("opts", value.Map{{Key: "id", Value: "ok-62"},
				{Key: "grains", Value: value.Map{}}})}, "{}"},
		{"mine", "_mine", []value.Pair{pair("data", value.Map{{Key: "f", Value: "v"}})}, "true"},
		{"mine_get", "_mine_get", []value.Pair{pair("tgt", "ok-62"), pair("fun", "f"),
			pair("tgt_type", "glob")}, "{ok-62: v}"},
		{"mine_get of two", "_mine_get",
			[]value.Pair{pair("tgt", "ok-62"), pair("fun", []any{"f", "g"}),
				pair("tgt_type", "glob")}, "{f: {ok-62: v}}"},
		{"mine_delete", "_mine_delete", []value.Pair{pair("fun", "f")}, "true"},
		{"mine_flush", "_mine_flush", nil, "true"},
		{"return of a state run", "_return",
			[]value.Pair{pair("success", true), pair("return", true), pair("retcode", 0),
				pair("jid", "req"), pair("fun", "state.highstate"), pair("fun_args", []any{})},
			"<nil>"},
		{"unknown", "_nosuch", nil, "{}"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			values := map[kind]any{}
			for _, k := range kinds() {
				c := s.master(t, k, lenient).signIn(t, "ok-62", 3)
				values[k] = c.request(t, tt.cmd, tt.load...)
				if l, ok := values[k].([]any); ok { // lists of files have no order
					slices.SortFunc(l, func(a, b any) int {
						return strings.Compare(fmt.Sprint(a),
							fmt.Sprint(b))
					})
				}
				if got := showValue(values[k]); tt.want != "" && got != tt.want {
					t.Errorf("%s: got %s, want %s", k, got, tt.want)
				}
			}
			if theirs, ok := values[theirs]; ok &&
				!reflect.DeepEqual(sorted(values[ours]), sorted(theirs)) {
				t.Errorf("ours says\n%v\nSalt says\n%v", values[ours], theirs)
			}
		})
	}
}

// sorted orders the keys of maps, which both masters may send in any order.
func sorted(v any) any {
	m, ok := v.(value.Map)
	if !ok {
		return v
	}
	m = slices.Clone(m)
	for i := range m {
		m[i].Value = sorted(m[i].Value)
	}
	slices.SortFunc(m, func(a, b value.Pair) int {
		return strings.Compare(fmt.Sprint(a.Key),
			fmt.Sprint(b.Key))
	})
	return m
}
