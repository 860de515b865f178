package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// first offers a key and returns the answer: "accept", or the value of ret.
func (m *subject) first(t testing.TB, id string, edit ...func(value.Map) value.Map) any {
	t.Helper()
	c := m.newClient(t, id, 3)
	if err := c.auth(t, edit...); err != nil {
		t.Errorf("%s: %v: %s", id, err, show(t, c.reply))
	}
	if c.got.Accepted {
		return "accept"
	}
	return c.got.Ret
}

// testStub is line 40, with autosign_timeout 2 (minutes).
func testStub(t *testing.T, m *subject) {
	stub := m.write(t, "", "pki", "minions_autosign", "stub-1")
	if got := m.first(t, "stub-1"); got != "accept" {
		t.Errorf("with a stub: %v", got)
	}
	if _, err := os.Stat(stub); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stub is still there: %v", err)
	}
	m.changeKey(t, "-d", "stub-1")
	if got := m.first(t, "stub-1"); got != true {
		t.Errorf("a second time: %v", got)
	}
	for name, age := range map[string]time.Duration{"old": 3 * time.Minute, "young": time.Minute} {
		stub := m.write(t, "", "pki", "minions_autosign", "stub-"+name)
		then := time.Now().Add(-age)
		if err := os.Chtimes(stub, then, then); err != nil {
			t.Fatal(err)
		}
		want := any("accept")
		if name == "old" {
			want = true
		}
		if got := m.first(t, "stub-"+name); got != want {
			t.Errorf("%s stub: %v", name, got)
		}
		if _, err := os.Stat(stub); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the %s stub is still there: %v", name, err)
		}
	}
	if got := m.first(t, "../minions_autosign/x"); got != false {
		t.Errorf("an id that leads elsewhere: %v", got)
	}
}

// testAutosignFile is line 41.
func testAutosignFile(t *testing.T, m *subject) {
	for id, want := range map[string]any{"ok-1-41": "accept", "re41x": "accept", "re41xy": true,
		"are41x": true, "else-41": true} {
		if got := m.first(t, id); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
	file := m.path("autosign.conf")
	for _, mode := range []fs.FileMode{0o646, 0o664} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if got := m.first(t, fmt.Sprintf("ok-%o-41", mode)); got != true {
			t.Errorf("file of mode %o: %v", mode, got)
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := m.first(t, "ok-again-41"); got != "accept" {
		t.Errorf("file made safe again: %v", got)
	}
}

// testAutosignGrains is line 42.
func testAutosignGrains(t *testing.T, m *subject) {
	for name, tt := range map[string]struct {
		grains any
		want   any
	}{
		"match":         {value.Map{{Key: "role", Value: "db"}}, "accept"},
		"no match":      {value.Map{{Key: "role", Value: "mail"}}, true},
		"other grain":   {value.Map{{Key: "rank", Value: "web"}}, true},
		"comment":       {value.Map{{Key: "role", Value: "# allowed roles"}}, true},
		"path as grain": {value.Map{{Key: "../autosign.conf", Value: "ok-*"}}, true},
		"none":          {value.Map{}, true},
	} {
		id := "grains-" + newNonce(t)[:6]
		if got := m.first(t, id, with("autosign_grains", tt.grains)); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// testAutoreject is line 43.
func testAutoreject(t *testing.T, m *subject) {
	if got := m.first(t, "waiting-43"); got != true {
		t.Fatalf("at first: %v", got)
	}
	m.appendTo(t, "autoreject.conf", "waiting-43")
	if got := m.first(t, "waiting-43"); got != false {
		t.Errorf("then: %v", got)
	}
	e2e.Eventually(t, 5*time.Second, "moved", func() error {
		if got := m.folders(t, "waiting-43"); got != "minions_rejected" {
			return fmt.Errorf("key is in %s", got)
		}
		return nil
	})
	// If two files disagree, the rejection wins.
	m.appendTo(t, "autoreject.conf", "ok-43")
	if got := m.first(t, "ok-43"); got != false {
		t.Errorf("in both files: %v", got)
	}
}

// testMaxMinions is line 44. Salt counts minions whose grains contain the address of a publish
// connection, ours counts those that signed in. So the clients do both.
func testMaxMinions(t *testing.T, m *subject) {
	// A separate loopback address: Salt counts 127.0.0.1 among the addresses of the master's
	// machine.
	const from = "127.3.3.3"
	subscribeFrom(t, net.ParseIP(from), m.Addr, "")
	for _, id := range []string{"ok-44-1", "ok-44-2"} {
		c := m.signIn(t, id, 3)
		m.send(t, c.seal(t, c.pillarLoad(t).Set("grains",
			value.Map{{Key: "ipv4", Value: []any{from}}, {Key: "id", Value: id}})))
	}
	c := m.newClient(t, "ok-44-3", 3)
	c.AuthRequest.Master = m.key
	if err := c.auth(t); err != nil || show(t, c.reply) != formOf(3, "full") {
		t.Errorf("a third: %v, %s", err, show(t, c.reply))
	}
	if got := m.folders(t, "ok-44-3"); got != "" {
		t.Errorf("its key is in %s", got)
	}
	for _, id := range []string{"ok-44-1", "ok-44-2"} {
		if got := m.first(t, id); got != "accept" {
			t.Errorf("%s, who is connected: %v", id, got)
		}
	}
}

// testOpenMode is line 45.
func testOpenMode(t *testing.T, m *subject) {
	c := m.signIn(t, "open-45", 3)
	changed := m.newClient(t, "open-45", 3)
	changed.Key = keyNumber(t, 1)
	if err := changed.auth(t); err != nil || !changed.got.Accepted {
		t.Fatalf("changed key: %v, %s", err, show(t, changed.reply))
	}
	e2e.Eventually(t, 5*time.Second, "file replaced", func() error {
		if got := string(readFile(t, m.path("pki", "minions",
			"open-45"))); wire.CleanKey(got) != changed.Key.Public().Text() {
			return errors.New("the old key is still there")
		}
		return nil
	})
	if got := m.folders(t, "open-45"); got != "minions" {
		t.Errorf("key is in %s", got)
	}
	// The old key no longer opens anything: its token belongs to another key.
	if got := show(t, m.send(t, c.seal(t, c.load(t, "nosuch")))); got != badLoad {
		t.Errorf("request with the old key: %s", got)
	}
	c = m.newClient(t, "open-45", 3)
	if err := c.auth(t, with("pub", "")); m.salt() &&
		(err != nil || show(t, c.reply) != formOf(3, false)) || !m.salt() &&
		show(t, c.reply) != badLoad {
		t.Errorf("empty key: %v, %s", err, show(t, c.reply))
	}
	if got := m.first(t, "a/b"); got != false {
		t.Errorf("invalid id: %v", got)
	}
}
