package conformance

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// target is the master of testBadInput. No other test uses it, so its counters and its log are
// about this test alone.
var target = variant{name: "target", options: strict.options, files: strict.files}

// testBadInput sends each kind of bad input several times. Each sender gets its refusal or loses
// the connection, a counter shows the number, the log has a line for the first one, and nothing
// else is affected.
func testBadInput(t *testing.T, m *subject) {
	const times = 20
	honest := m.signIn(t, "ok-honest", 3)
	other := m.signIn(t, "ok-other", 3)
	events := listen(t, t, m)
	key := func(load value.Map) []byte { return honest.seal(t, load) }
	files, keys, mark := m.tree(t), keyList(t, m), events.mark()
	counters := m.counters(t)

	// These wait for their end while the rest continues.
	var halfOpen []net.Conn
	for i := range times {
		for _, port := range []int{e2e.RequestPort, e2e.PublishPort} {
			halfOpen = append(halfOpen, m.say(t, port, greeting[:i%len(greeting)]))
		}
	}
	want := map[string]int{`minion_closed_total{endpoint="request",reason="handshake"}`: times,
		`minion_closed_total{endpoint="publish",reason="handshake"}`: times}
	for _, tt := range []struct {
		reason  string
		payload func() []byte
		want    string
	}{
		{"routing", func() []byte { return []byte{0xc1} }, routing},
		{"no_envelope", func() []byte { return pack(t, []any{1, "x"}) }, badLoad},
		{"unknown_id", func() []byte {
			return pack(t, append(envelope("aes", 3, bytes.Repeat([]byte{7}, 96)),
				value.Pair{Key: "id", Value: "claimed"}))
		}, badLoad},
		{"session_key", func() []byte {
			return honest.seal(t, honest.load(t, "_pillar"),
				with("id", other.ID))
		}, badLoad},
		{"id_mismatch", func() []byte { return key(honest.load(t, "_pillar").Set("id", other.ID)) },
			badLoad},
		{"token", func() []byte { return key(honest.load(t, "_pillar").Set("tok", otherToken(t))) },
			badLoad},
		{"ttl",
			func() []byte {
				return key(honest.load(t, "_pillar").Set("ts",
					time.Now().Unix()-3600))
			}, badLoad},
		{"minimum_version",
			func() []byte {
				return pack(t,
					envelope("clear", 2, value.Map{{Key: "cmd", Value: "_auth"}}))
			}, badLoad},
		{"clear_command",
			func() []byte {
				return pack(t,
					envelope("clear", 3, value.Map{{Key: "cmd", Value: "nosuch"}}))
			}, "{}"},
		{"unknown_command", func() []byte { return key(honest.load(t, "__init__")) }, sealedNil},
		{"auth_pub", func() []byte {
			return pack(t, envelope("clear", 3,
				value.Map{{Key: "cmd", Value: "_auth"}, {Key: "id", Value: "claimed"}}))
		}, badLoad},
	} {
		for range times {
			if got := show(t, m.send(t, tt.payload())); got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.reason, got, tt.want)
			}
		}
		want[`requests_refused_total{reason="`+tt.reason+`"}`] = times
	}
	for _, tt := range []struct {
		reason string
		port   int
		bytes  string
	}{
		{"garbage", e2e.RequestPort, "GET / HTTP/1.1\r\n\r\n"},
		{"garbage", e2e.PublishPort, "\x82\xa4head\x80\xa4body"},
		{"too_large", e2e.RequestPort, greeting +
			"\x04\x19\x05READY\x0bSoCket-TYpe\x00\x00\x00\x03REQ" + // names ignore case
			"\x01\x00\x02\x40\x00\x00\x00\x00\x00\x00\x00"},
		{"unexpected", e2e.RequestPort, greeting +
			"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"},
	} {
		for range times {
			conn := m.say(t, tt.port, tt.bytes)
			if !closedIn(conn, 10*time.Second) {
				t.Errorf("%s on port %d: still connected", tt.reason, tt.port)
			}
		}
		want[fmt.Sprintf(`minion_closed_total{endpoint="%s",reason="%s"}`,
			map[int]string{e2e.RequestPort: "request",
				e2e.PublishPort: "publish"}[tt.port], tt.reason)] = times
	}

	// With all that and the half-open connections present, an honest minion is served.
	if v := honest.request(t, "_file_envs"); showValue(v) != "[base]" {
		t.Errorf("an honest minion gets %v", v)
	}
	for _, conn := range halfOpen {
		if !closedIn(conn, 30*time.Second) {
			t.Error("a half-open connection stays")
		}
	}
	after := m.counters(t)
	log := string(readFile(t, m.Log))
	for name, n := range want {
		if got := after[name] - counters[name]; got != n {
			t.Errorf("%s grew by %d, want %d", name, got, n)
		}
		_, reason, _ := strings.Cut(strings.TrimSuffix(name, `"}`), `reason="`)
		// One line per reason (or for connections one per endpoint) in ten seconds.
		if lines := strings.Count(log, "reason="+reason+" "); strings.HasPrefix(name, "requests") &&
			(lines < 1 || lines > 3) {
			t.Errorf("%d lines of the log say %s", lines, reason)
		}
	}
	if lines := strings.Count(log, "close minion connection"); lines < 2 || lines > 8 {
		t.Errorf("%d lines of the log are about closed connections", lines)
	}
	if got := m.tree(t); !slices.Equal(got, files) {
		t.Errorf("files are now\n%q, were\n%q", got, files)
	}
	if got := keyList(t, m); got != keys {
		t.Errorf("keys are now %s, were %s", got, keys)
	}
	events.flush(t, m)
	if list := events.since(mark,
		func(h happening) bool {
			return !strings.HasPrefix(fmt.Sprint(h.Data["id"]),
				"marker")
		}); len(list) > 0 {
		t.Errorf("events %v", list)
	}
}

// greeting is that of a client with ZMTP 3.1 and no security.
var greeting = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL" + strings.Repeat("\x00", 16) +
	"\x00" + strings.Repeat("\x00", 31)

// say connects and sends bytes; the connection ends with the test.
func (m *subject) say(t testing.TB, port int, text string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", hostPort(m.Addr, port), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// closedIn reports whether the peer closes the connection in time.
func closedIn(conn net.Conn, limit time.Duration) bool {
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return false
	}
	_, err := io.Copy(io.Discard, conn)
	return !isTimeout(err)
}

// counters are the master's metrics with whole numbers, without the prefix of their names.
func (m *subject) counters(t testing.TB) map[string]int {
	t.Helper()
	values := map[string]int{}
	for line := range strings.Lines(m.Metrics(t)) {
		var n int
		name, val, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscan(val, &n); err == nil {
			values[strings.TrimPrefix(name, "clustermaster_")] = n
		}
	}
	return values
}

// tree lists the master's files, except its stores and the files about its own state.
func (m *subject) tree(t testing.TB) (list []string) {
	t.Helper()
	err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err == nil && d.IsDir() && (d.Name() == "clustermaster" || d.Name() == "health"):
			return fs.SkipDir
		}
		list = append(list, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// keyList is the output of salt-key -L.
func keyList(t testing.TB, m *subject) string {
	t.Helper()
	keys, err := m.Keys(t)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(keys)
}
