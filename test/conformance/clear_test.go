package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// clearOptions let users give orders on the request port. Salt's master writes keys for users
// unknown to the system only without client_acl_verify.
const clearOptions = `enable_clear_commands: True
autosign_file: DIR/autosign.conf
autoreject_file: DIR/autoreject.conf
client_acl_verify: False
publisher_acl:
  carol:
    - test.*
    - web-a:
      - network.*
      - test_arg.args:
          args: ['one.*']
          kwargs: {a: null}
    - '@runner'
    - '@wheel'
  nobodyinhere: []
publisher_acl_blacklist:
  users: [eve, '^dev9$']
  modules: ['cmd.script*', 'test.exception_with']
external_auth:
  auto:
    alice:
      - test.*
      - web-a:
        - network.*
        - state.sls:
            args: ['app.*']
            kwargs: {saltenv: base}
    bob: ['@runner', '@wheel']
    joe: ['@test', '@key', {'@jobs': [list_jobs]}]
    sue: [{'@runner': ['test.*']}, {'@wheel': ['key.list.*']}, {'@test': [{arg: {args: ['a.*'], kwargs: {k: null}}}]}]
    eve: ['.*']
    '*': [test.version]
token_expire_user_override: {auto: [alice]}
`

// An ordered is one order, given to both masters.
type ordered struct {
	name string
	load value.Map
	// ours is what ours says and does if it differs on purpose. docs/differences.md has the
	// reasons.
	ours string
	// ret means that the call's ret event is waited for. silent marks calls in which Salt's dies
	// without it.
	ret, silent bool
}

// clearMaster is a master that takes orders from users, with two minions that have signed in.
func clearMaster(t *testing.T, k kind, more string) *subject {
	t.Helper()
	m := newMaster(t, k, variant{
		name: "orders", options: clearOptions + more,
		files: map[string]string{"autosign.conf": "web-*\n", "autoreject.conf": "marker*\n"},
	})
	m.start(t)
	// Salt lists several minions with a grain in no fixed order
	for id, os := range map[string]string{"web-a": "Plan9", "web-b": "Inferno"} {
		c := m.signIn(t, id, 3)
		m.send(t, c.seal(t, c.pillarLoad(t).Set("grains", dict("os", os, "id", id))))
	}
	e2e.Eventually(t, 20*time.Second, "keys are written",
		func() error {
			return errors.Join(m.hasKey("root"), m.hasKey("carol"),
				m.hasKey("nobodyinhere"))
		})
	m.events = listen(t, t, m)
	return m
}

// hasKey waits for the file of a user's key.
func (m *subject) hasKey(user string) error {
	_, err := os.Stat(m.path("cache", "."+user+"_key"))
	return err
}

// filled replaces the names of keys and tokens with those of this master.
func (m *subject) filled(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case value.Map:
		out := make(value.Map, len(v))
		for i, p := range v {
			out[i] = value.Pair{Key: p.Key, Value: m.filled(t, p.Value)}
		}
		return out
	case string:
		if user, is := strings.CutPrefix(v, "KEY:"); is {
			if user == "wrong" {
				return strings.Repeat("A", 76)
			}
			return string(readFile(t, m.path("cache", "."+user+"_key")))
		}
		if user, is := strings.CutPrefix(v, "TOKEN:"); is {
			token, _ := unpack(t, m.clear(t, 3, dict("cmd", "mk_token", "eauth", "auto", "username",
				user, "password", "pw-secret"))).(value.Map)
			if token.String("token") == "" {
				t.Fatalf("%s: no token for %s", m.kind, user)
			}
			return token.String("token")
		}
	}
	return v
}

var (
	tokenText = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	marker    = regexp.MustCompile(`"?marker(-[0-9a-f]{8})?"?(, |,)?`)
	local     = regexp.MustCompile(`local"?: ?\[[^]]*\]`)
	stamped   = regexp.MustCompile(`_stamp: [^,}]*, `)
	epoch     = regexp.MustCompile(`\b\d{10}\.\d+(e\+09)?|\b\d\.\d+e\+09`)
	trace     = regexp.MustCompile(`(?s)Traceback \(most recent call last\).*?([A-Za-z.]*(Error|Exception)[^\n"]*)\\n`)
)

// outcome is the result of an order: the reply, and the events that followed.
func (m *subject) outcome(t *testing.T, o ordered) string {
	t.Helper()
	load := m.filled(t, o.load)
	mark := m.events.mark()
	reply := unpack(t, m.clear(t, 3, load))
	if o.ret && !(o.silent && m.salt()) { // a call continues after the reply
		if r, ok := reply.(value.Map); ok && r.String("tag") != "" {
			_, _ = m.events.find(mark, 20*time.Second,
				func(h happening) bool { return h.Tag == r.String("tag")+"/ret" })
		}
	}
	m.events.flush(t, m)
	lines := []string{plainly(t, m, reply)}
	for _, h := range m.events.since(mark, func(h happening) bool {
		return strings.HasPrefix(h.Tag, "salt/job/") || strings.HasPrefix(h.Tag, "salt/run/") ||
			strings.HasPrefix(h.Tag, "salt/wheel/")
	}) {
		delete(h.Data, "_stamp")
		withoutSecrets(h.Data)
		data, err := json.Marshal(h.Data)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, h.Tag+" "+string(data))
	}
	text := strings.Join(lines, "\n")
	text = trace.ReplaceAllString(text, "TRACE $1")
	text = strings.ReplaceAll(text, m.Dir, "DIR")
	text = local.ReplaceAllString(marker.ReplaceAllString(stamped.ReplaceAllString(text, ""), ""),
		"LOCAL")
	return epoch.ReplaceAllString(tokenText.ReplaceAllString(jids.ReplaceAllString(text, "JID"),
		"TOKEN"), "EPOCH")
}

// withoutSecrets removes secrets that Salt's master puts into events.
func withoutSecrets(data map[string]any) {
	for _, secret := range []string{"password", "token"} {
		delete(data, secret)
	}
	if kwargs, ok := data["kwargs"].(map[string]any); ok {
		withoutSecrets(kwargs)
	}
}

// TestClearOrders sends orders of users, and compares replies and events with those of Salt's
// master.
func TestClearOrders(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name, options string
		orders        []ordered
	}{
		{"keys", "", append(keyOrders(), runOrders()...)},
		{"eauth", "", eauthOrders()},
		{"sudo_acl_and_order_masters", "sudo_acl: True\norder_masters: True\n", sudoOrders()},
	} {
		t.Run(mode.name, func(t *testing.T) {
			got := map[kind][]string{}
			for _, k := range kinds() {
				m := clearMaster(t, k, mode.options)
				for _, o := range mode.orders {
					got[k] = append(got[k], m.outcome(t, o))
				}
				m.secretsAreNotTold(t)
				m.Stop(t, 10*time.Second)
			}
			var asked []string
			for _, o := range mode.orders {
				asked = append(asked, worded(o.name, o.load))
			}
			salts := saltsText(t, "orders_"+mode.name, clearOptions+mode.options, asked, got)
			same := 0
			for i, o := range mode.orders {
				mine, want := got[ours][i], salts[i]
				if o.ours != "" {
					if want == o.ours {
						t.Errorf("%s: Salt's is not different any more", o.name)
					}
					want = o.ours
				}
				if mine != want {
					t.Errorf("%s:\nours   %.1500s\n\nSalt's %.1500s\n", o.name, mine, want)
				} else {
					same++
				}
			}
			t.Logf("%d of %d orders as they should be", same, len(mode.orders))
		})
	}
}

// plainly writes a reply to an order; unlike say it does not tell text from bytes, and sorts maps.
func plainly(t *testing.T, m *subject, v any) string {
	t.Helper()
	text := plainValue(t, v)
	return jids.ReplaceAllString(strings.ReplaceAll(text, m.Dir, "DIR"), "JID")
}

func plainValue(t *testing.T, v any) string {
	switch v := v.(type) {
	case value.Map:
		var parts []string
		for _, p := range v {
			val := plainValue(t, p.Value)
			parts = append(parts, plainValue(t, p.Key)+": "+val)
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, plainValue(t, e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []byte:
		if len(v) > 40 {
			return fmt.Sprintf("%d bytes %x", len(v), v[:8])
		}
		return string(v)
	case string:
		return v
	}
	return fmt.Sprint(v)
}

// secretsAreNotTold looks for passwords, tokens and keys in everything ours wrote. Salt's writes
// some.
func (m *subject) secretsAreNotTold(t *testing.T) {
	t.Helper()
	if m.salt() {
		return
	}
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	key := string(readFile(t, m.path("cache", ".root_key")))
	for _, h := range m.events.seen {
		if text := fmt.Sprint(h); strings.Contains(text, "pw-secret") ||
			strings.Contains(text, key) {
			t.Errorf("a secret in an event: %s", text)
		}
	}
	for _, file := range []string{m.Log, m.Output} {
		if text := string(readFile(t, file)); strings.Contains(text, "pw-secret") ||
			strings.Contains(text, key) || tokenText.MatchString(text) {
			t.Errorf("a secret in %s", file)
		}
	}
}
