package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// TestClearOrdersOnAllMasters: a key or token that one master gave a user is valid on every master
// and through the balancer, also after a master died. A rotation revokes it everywhere.
func TestClearOrdersOnAllMasters(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3, Extra: `enable_clear_commands: True
auto_accept: True
client_acl_verify: False
publisher_acl: {carol: ['test.*']}
external_auth: {auto: {alice: ['test.*', '@runner', '@wheel']}}
`})
	left := newLeftKey(t) // left to the first master by a Salt master
	file := func(m *e2e.Master, user string) string {
		return filepath.Join(m.Dir, "cache", "."+user+"_key")
	}
	for _, m := range c.Masters {
		if err := os.MkdirAll(filepath.Join(m.Dir, "cache"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file(m, "root"), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Start(t)
	users := []string{"root", "carol"}
	keyAt := func(m *e2e.Master, user string) (string, error) {
		b, err := os.ReadFile(file(m, user))
		return string(b), err
	}
	// written waits until these masters have the same key for a user, and not the given one.
	written := func(user, not string, masters ...*e2e.Master) string {
		t.Helper()
		var key string
		e2e.Eventually(t, 30*time.Second, "the key of "+user+" is in all files", func() error {
			for i, m := range masters {
				have, err := keyAt(m, user)
				if err != nil {
					return err
				}
				if i == 0 {
					key = have
				}
				if _, err := wire.ParseKey(have); err != nil || have != key || have == not {
					return fmt.Errorf("%s: %w, equal %v, old %v", m.ID, err, have == key,
						have == not)
				}
				if info, err := os.Stat(file(m, user)); err != nil || info.Mode() != 0o600 {
					return fmt.Errorf("%s: mode %v, %w", m.ID, info.Mode(), err)
				}
			}
			return nil
		})
		return key
	}
	at := func(m *e2e.Master) *subject { return &subject{Master: m, kind: ours, cfg: "orders"} }
	balancer := &subject{Master: &e2e.Master{Addr: c.Base.Balancer()}, kind: ours}
	web := at(c.Masters[0]).signIn(t, "web-a", 3)
	ask := func(m *subject, load value.Map) value.Map {
		t.Helper()
		reply, ok := unpack(t, m.clear(t, 3, load)).(value.Map)
		if !ok {
			t.Fatalf("%s: no map", m.Addr)
		}
		return reply
	}
	ordered := func(m *subject, load value.Map) string {
		t.Helper()
		inner, _ := ask(m, load).Get("load")
		l, _ := inner.(value.Map)
		return l.String("jid")
	}
	good := func(key, user string, doors ...*subject) {
		t.Helper()
		for _, door := range doors {
			if ordered(door, jobOf("user", user, "key", key)) == "" {
				t.Errorf("the key of %s is not good at %s", user, door.Addr)
			}
			if ordered(door, jobOf("user", user, "key", key[1:]+"A")) != "" {
				t.Errorf("another key is good at %s", door.Addr)
			}
		}
	}
	var doors []*subject
	for _, m := range c.Masters {
		doors = append(doors, at(m))
	}
	doors = append(doors, balancer)

	keys := map[string]string{}
	for _, user := range users {
		keys[user] = written(user, "", c.Masters...)
		good(keys[user], user, doors...)
	}
	if keys["root"] != left {
		t.Error("the key that was left is not kept")
	}
	if keys["root"] == keys["carol"] {
		t.Error("two users have one key")
	}
	// A listener on one master's local bus hears once of an order at another master, and once of a
	// return at a third.
	var buses []*heard
	for _, m := range c.Masters {
		buses = append(buses, hear(t, filepath.Join(m.Dir, "run")))
	}
	order := func(m *subject) string {
		return ordered(m,
			jobOf("user", "root", "key", keys["root"]))
	}
	// a bus hears another master once that master knows of it
	for _, door := range doors[:len(c.Masters)] {
		var tags []string
		e2e.Eventually(t, 20*time.Second, "all hear of orders at "+door.Addr, func() error {
			tags = append(tags, "salt/job/"+order(door)+"/new")
			for _, bus := range buses {
				if !slices.ContainsFunc(tags, func(tag string) bool { return bus.times(tag) > 0 }) {
					return errNotHeard
				}
			}
			return nil
		})
	}
	jid := order(doors[1])
	doors[0].send(t, web.seal(t, web.load(t, "_return",
		dict("id", "web-a", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true,
			"retcode", int64(0), "success", true)...)))
	for i, bus := range buses {
		for _, tag := range []string{"salt/job/" + jid + "/new", "salt/job/" + jid + "/ret/web-a"} {
			bus.wait(t, tag)
			if n := bus.times(tag); n != 1 {
				t.Errorf("%s was heard %d times at %s", tag, n, c.Masters[i].ID)
			}
		}
	}

	var tokens []string
	for _, door := range doors {
		token := ask(door, dict("cmd", "mk_token", "eauth", "auto", "username", "alice", "password",
			"x")).String("token")
		if len(token) != 64 {
			t.Fatalf("%s: token %q", door.Addr, token)
		}
		tokens = append(tokens, token)
	}
	byTokens := func(doors ...*subject) {
		t.Helper()
		for _, door := range doors {
			for _, token := range tokens {
				if name := ask(door, dict("cmd", "get_token", "token",
					token)).String("name"); name != "alice" {
					t.Errorf("%s: a token of %q", door.Addr, name)
				}
				if ordered(door, byToken("alice", "kwargs", dict("token", token))) == "" {
					t.Errorf("a token is not good at %s", door.Addr)
				}
			}
		}
	}
	byTokens(doors...)

	// Guessing takes time: a refusal takes about a second.
	began := time.Now()
	if reply := unpack(t, doors[0].clear(t, 3, dict("cmd", "mk_token", "eauth", "pam", "username",
		"alice", "password", "guess"))); reply != "" {
		t.Errorf("a guess: %v", reply)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("a guess is refused after %v", took)
	}

	// Any master can look up what a runner did on another.
	jid = ask(doors[1], dict("cmd", "runner", "fun", "test.arg", "token", tokens[0], "kwarg",
		dict("arg", []any{"told"}, "kwarg", dict()))).String("jid")
	e2e.Eventually(t, 20*time.Second, "the call is in the job cache", func() error {
		if r := c.Masters[2].Runner(t, "jobs.lookup_jid", jid,
			"--out=json"); !strings.Contains(r.Stdout, "told") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})

	dead := c.Leader(t, c.Masters[0])
	dead.Kill(t)
	living := slices.DeleteFunc(slices.Clone(doors),
		func(d *subject) bool { return d.Addr == dead.Addr })
	rest := c.Others(dead)
	e2e.Eventually(t, 60*time.Second, "the rest serves",
		func() error { return c.Leader(t, rest[0]).Ready() })
	c.WaitReady(t, 60*time.Second, rest...)
	for _, user := range users {
		good(keys[user], user, living...)
	}
	byTokens(living...)

	if r := rest[0].Runner(t, "cluster.rotate_keys"); r.Code != 0 {
		t.Fatalf("rotate: %v", r)
	}
	for _, door := range living { // at once, wherever the order arrives
		if ordered(door, jobOf("user", "root", "key", keys["root"])) != "" {
			t.Errorf("the old key is still good at %s", door.Addr)
		}
	}
	fresh := map[string]string{}
	for _, user := range users {
		fresh[user] = written(user, keys[user], rest...)
		good(fresh[user], user, living...)
	}
	byTokens(living...)

	dead.Run(t)
	c.WaitReady(t, 60*time.Second, c.Masters...)
	for _, user := range users {
		if got := written(user, keys[user], c.Masters...); got != fresh[user] {
			t.Errorf("the master that came back has another key of %s", user)
		}
		good(fresh[user], user, doors...)
	}
}

// newLeftKey is a key in the format of Salt's masters.
func newLeftKey(t *testing.T) string {
	t.Helper()
	k, err := wire.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k.String()
}
