package master

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"clustermaster/salt/target"
	"clustermaster/serve/acl"
	"clustermaster/serve/origin"
	"clustermaster/value"
	"clustermaster/wire"
)

// fakeUserKeys are keys by user.
type fakeUserKeys map[string]string

func (k fakeUserKeys) Key(user string) (string, bool) { key, ok := k[user]; return key, ok }

// keyOf is a user's key in the kit for orders.
func keyOf(user string) string { return strings.Repeat(user, 76)[:76] }

// fakeAuth confirms whoever has the password or token "good"; alice may order test functions, bob
// runs everything, rest nothing.
type fakeAuth struct{ broken bool }

func (a fakeAuth) identity(name string) (Identity, error) {
	lists := map[string][]any{"alice": {"test.*"}, "bob": {"@runner", "@wheel"}, "eve": {".*"}}
	if a.broken {
		return Identity{Name: name}, nil // without rights, which must not mean all
	}
	return Identity{Name: name, Eauth: "pam", Rights: acl.FromList(lists[name])}, nil
}

func (a fakeAuth) Authenticate(_ context.Context, _ string, creds value.Map) (Identity, error) {
	if creds.String("password") != "good-password" {
		return Identity{}, errors.New("refused")
	}
	return a.identity(creds.String("username"))
}

func (a fakeAuth) ByToken(_ context.Context, token string) (Identity, error) {
	name, ok := strings.CutPrefix(token, "good-token-")
	if !ok {
		return Identity{}, errors.New("refused")
	}
	return a.identity(name)
}

func (a fakeAuth) MakeToken(ctx context.Context, source string, creds value.Map) (value.Map,
	error) {
	id, err := a.Authenticate(ctx, source, creds)
	return dict("name", id.Name, "token", "good-token-"+id.Name), err
}

func (a fakeAuth) Token(_ context.Context, token string) (value.Map, bool) {
	return dict("token", token), strings.HasPrefix(token, "good-token-")
}

// fakeRunners notes what it is asked to run. block holds a wheel function up.
type fakeRunners struct {
	mu    sync.Mutex
	calls []RunOrder
	by    origin.Origin // of the last call
	block chan struct{}
	err   error
}

func (r *fakeRunners) note(ctx context.Context, o RunOrder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by, _ = origin.Of(ctx)
	r.calls = append(r.calls, o)
}

// last is what was run since it was last asked.
func (r *fakeRunners) last() (list []RunOrder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, r.calls = r.calls, nil
	return list
}

func (r *fakeRunners) StartRunner(ctx context.Context, o RunOrder) (jid, tag string, err error) {
	r.note(ctx, o)
	return "1", "salt/run/1", r.err
}

func (r *fakeRunners) RunWheel(ctx context.Context, o RunOrder) Ran {
	r.note(ctx, o)
	if r.block != nil {
		<-r.block
	}
	return Ran{JID: "1", Tag: "salt/wheel/1", Return: "done", Success: true}
}

// counted counts the questions about minions' data.
type counted struct {
	target.Source
	mu sync.Mutex
	n  int
}

func (c *counted) AcceptedIDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.Source.AcceptedIDs()
}

// orderKit is a master that takes orders of users, with two minions.
type orderKit struct {
	*kit
	runners *fakeRunners
	targets *counted
}

func newOrderKit(t testing.TB, change func(*Options, *Deps)) *orderKit {
	t.Helper()
	k := &orderKit{runners: &fakeRunners{}}
	k.kit = newKit(t, func(o *Options, d *Deps) {
		o.ClearCommands, o.MasterUser, o.PublishRetry = true, "salt", false
		k.targets = &counted{Source: d.Targets}
		d.Targets = k.targets
		d.ACL = must(acl.New(acl.Options{
			PublisherACL: dict("carol", []any{"test.*", "@runner", "@wheel"}, "none", []any{}),
			Blacklist:    dict("users", []any{"eve"}, "modules", []any{"cmd.script"}),
			SudoACL:      true,
		}))
		d.UserKeys = fakeUserKeys{"salt": keyOf("salt"), "carol": keyOf("carol"),
			"dave": keyOf("dave"), "none": keyOf("none"), "empty": ""}
		d.Auth, d.Runners = fakeAuth{}, k.runners
		if change != nil {
			change(o, d)
		}
	})
	k.accept("m1")
	k.accept("m2")
	return k
}

func (k *orderKit) order(load value.Map) any {
	k.t.Helper()
	return k.value(pack(dict("enc", "clear", "version", int64(3), "load", load)))
}

// errorOf is the name in a reply that is an error map.
func errorOf(reply any) string {
	m, _ := reply.(value.Map)
	v, _ := m.Get("error")
	e, _ := v.(value.Map)
	return e.String("name")
}

func publishOf(pairs ...any) value.Map {
	load := dict("cmd", "publish", "tgt", "m1", "fun", "test.ping", "arg", []any{}, "tgt_type",
		"glob", "ret", "", "jid", "", "kwargs", dict(), "user", "root")
	for i := 0; i < len(pairs); i += 2 {
		load = load.Set(pairs[i].(string), pairs[i+1])
	}
	return load
}

// TestKeyHolders is the table of what a key is good for; the master runs as the user salt.
func TestKeyHolders(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, nil)
	const authentication, authorization = "AuthenticationError", "AuthorizationError"
	for _, tt := range []struct {
		user, keyOf, fun string
		publish          string // the error, or "" for a job in the name of user
		runner           string // the error, or the name in which the function runs
	}{
		{"root", "salt", "cmd.run", "", "root"},
		{"salt", "salt", "cmd.run", "", "salt"},
		{"somebody", "salt", "cmd.run", "", "somebody"},
		{"carol", "salt", "cmd.run", "", "carol"},
		// sudo_acl: her rights, which are about minions
		{"sudo_carol", "salt", "test.ping", "", "UserAuthenticationError"},
		{"sudo_carol", "salt", "cmd.run", authorization, "UserAuthenticationError"},
		{"sudo_mallory", "salt", "test.ping", authentication, "UserAuthenticationError"},
		{"carol", "carol", "test.ping", "", "UserAuthenticationError"},
		{"carol", "carol", "cmd.run", authorization, "UserAuthenticationError"},
		{"root", "carol", "test.ping", authentication, "UserAuthenticationError"},
		{"salt", "carol", "test.ping", authentication, "UserAuthenticationError"},
		{"sudo_carol", "carol", "test.ping", authentication, "UserAuthenticationError"},
		{"sudo_root", "carol", "test.ping", authentication, "UserAuthenticationError"},
		{"dave", "carol", "test.ping", authentication, "UserAuthenticationError"},
		{"carol", "dave", "test.ping", authentication, "UserAuthenticationError"},
		// a key without a right
		{"dave", "dave", "test.ping", authentication, "UserAuthenticationError"},
		{"none", "none", "test.ping", authentication, "UserAuthenticationError"}, // an empty list
		{"empty", "empty", "test.ping", authentication, "UserAuthenticationError"},
		{"empty", "", "test.ping", authentication, "UserAuthenticationError"},
		{"root", "", "test.ping", authentication, "UserAuthenticationError"},
		{"eve", "salt", "test.ping", authorization, "UserAuthenticationError"},
		{"root", "salt", "cmd.script", authorization, "root"},
	} {
		name := fmt.Sprintf("%s with the key of %q", tt.user, tt.keyOf)
		key := ""
		if tt.keyOf != "" {
			key = keyOf(tt.keyOf)
		}
		before := k.subs.count()
		reply := k.order(publishOf("user", tt.user, "key", key, "fun", tt.fun))
		if got := errorOf(reply); got != tt.publish ||
			(k.subs.count() > before) != (tt.publish == "") {
			t.Errorf("%s orders %s: %v, published %d", name, tt.fun, reply, k.subs.count()-before)
		}
		if tt.publish == "" {
			if load := k.read(k.subs.get(before)); load.String("user") != tt.user {
				t.Errorf("%s: published as %s", name, load.String("user"))
			}
		}
		reply = k.order(dict("cmd", "runner", "fun", "test.arg", "user", tt.user, "key", key))
		ran := k.runners.last()
		if got := errorOf(reply); got != "" && (got != tt.runner || len(ran) != 0) || got == "" &&
			(len(ran) != 1 || ran[0].User != tt.runner) {
			t.Errorf("%s calls a runner: %v, ran %v, want %s", name, reply, ran, tt.runner)
		}
	}
	// Without a name only the master's key is anybody's.
	if got := errorOf(k.order(dict("cmd", "wheel", "fun", "key.list_all", "key",
		keyOf("carol")))); got != "UserAuthenticationError" {
		t.Errorf("carol's key without a name: %s", got)
	}
	if reply := k.order(dict("cmd", "wheel", "fun", "key.list_all", "key",
		keyOf("salt"))); errorOf(reply) != "" || k.runners.last()[0].User != "salt" {
		t.Errorf("the master's key without a name: %v", reply)
	}
}

func TestClearRunCalls(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, func(_ *Options, d *Deps) {
		// without sudo_acl
		d.ACL = must(acl.New(acl.Options{Blacklist: dict("users", []any{"eve"})}))
	})
	for _, tt := range []struct {
		name string
		load value.Map
		err  string
		want RunOrder
	}{
		{"arg and kwarg", dict("cmd", "runner", "fun", "a.b", "key", keyOf("salt"), "user", "root",
			"kwarg", dict("arg", []any{"x"}, "kwarg", dict("k", "v"))), "",
			RunOrder{Fun: "a.b", Args: []any{"x"}, Kwargs: dict("k", "v"), User: "root"}},
		{"by name", dict("cmd", "runner", "fun", "a.b", "key", keyOf("salt"), "user", "sudo_x",
			"kwarg", dict("k", "v")), "",
			RunOrder{Fun: "a.b", Kwargs: dict("k", "v"), ByName: true, User: "salt"}},
		{"wheel, by name", dict("cmd", "wheel", "fun", "key.accept", "match", "m1", "key",
			keyOf("salt"), "user", "root"), "",
			RunOrder{Fun: "key.accept", Kwargs: dict("cmd", "wheel", "match", "m1"), ByName: true,
				User: "root"}},
		{"wheel, arg and kwarg", dict("cmd", "wheel", "fun", "key.accept", "arg", []any{"m1"},
			"kwarg", dict(), "token", "good-token-bob"), "",
			RunOrder{Fun: "key.accept", Args: []any{"m1"}, Kwargs: dict(), User: "bob",
				eauth: "pam"}},
		{"wheel by password", dict("cmd", "wheel", "fun", "key.accept", "match", "m1", "eauth",
			"pam", "username", "bob", "password", "good-password"), "",
			RunOrder{Fun: "key.accept", Kwargs: dict("cmd", "wheel", "match", "m1", "eauth", "pam"),
				ByName: true, User: "bob", eauth: "pam"}},
		{"no right", dict("cmd", "runner", "fun", "a.b", "token", "good-token-alice"),
			"TokenAuthenticationError", RunOrder{}},
		{"bad token", dict("cmd", "runner", "fun", "a.b", "token", "bad"),
			"TokenAuthenticationError", RunOrder{}},
		{"token that is no text", dict("cmd", "runner", "fun", "a.b", "token", dict()),
			"TokenAuthenticationError", RunOrder{}},
		{"bad password", dict("cmd", "wheel", "fun", "a.b", "eauth", "pam", "username", "bob",
			"password", "x"), "EauthAuthenticationError", RunOrder{}},
		{"a user of tokens on the blacklist",
			dict("cmd", "runner", "fun", "a.b", "token", "good-token-eve"),
			"TokenAuthenticationError", RunOrder{}},
		{"syntax", dict("cmd", "runner", "fun", "ab", "token", "good-token-bob"),
			"SaltInvocationError", RunOrder{}},
	} {
		reply := k.order(tt.load)
		ran := k.runners.last()
		for i := range ran { // a secret goes to this connection only
			if ran[i].Client.String() != "192.0.2.1:1234" || time.Since(ran[i].At) > time.Minute {
				t.Errorf("%s: sent by %s at %s", tt.name, ran[i].Client, ran[i].At)
			}
			ran[i].Client, ran[i].At = netip.AddrPort{}, time.Time{}
		}
		if errorOf(reply) != tt.err || tt.err == "" && (len(ran) != 1 || !same(ran[0], tt.want)) ||
			tt.err != "" && len(ran) != 0 {
			t.Errorf("%s: %v, ran %v, want %v", tt.name, reply, ran, tt.want)
		}
		order := tt.want.Fun
		if tt.load.String("cmd") == "wheel" {
			order = "wheel." + order
		}
		want := origin.Origin{User: tt.want.User, Eauth: tt.want.eauth, From: "192.0.2.1",
			Order: order}
		if tt.err == "" && k.runners.by != want {
			t.Errorf("%s: ordered by %+v, want %+v", tt.name, k.runners.by, want)
		}
	}
	for _, load := range []value.Map{
		dict("cmd", "runner", "key", keyOf("salt"), "user", "root"),
		dict("cmd", "runner", "fun", int64(1), "key", keyOf("salt"), "user", "root"),
		dict("cmd", "runner", "fun", "a.b", "kwarg", []any{}, "key", keyOf("salt"), "user", "root"),
		publishOf("fun", []any{int64(1)}), publishOf("fun", []any{}),
		publishOf("key", keyOf("salt"), "jid", int64(1)),
		publishOf("key", keyOf("salt"), "tgt", dict()), publishOf("user", int64(1)),
		publishOf("user", strings.Repeat("u", 256)), publishOf("fun", strings.Repeat("f", 1025)),
		publishOf("fun", slices.Repeat([]any{"test.ping"}, 1001)),
		dict("cmd", "runner", "fun", strings.Repeat("f", 1025), "key", keyOf("salt"), "user",
			"root"),
	} {
		if got := k.order(load); got != "Some exception handling minion payload" {
			t.Errorf("%v: %v", load, got)
		}
	}
	k.runners.err = errors.New("too many calls")
	if got := errorOf(k.order(dict("cmd", "runner", "fun", "a.b", "token",
		"good-token-bob"))); got != "SaltClientError" {
		t.Errorf("a full runner: %s", got)
	}
}

// TestRightsThatAreMissing: a back end that confirms a user and forgets the rights lets nobody in.
func TestRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, func(_ *Options, d *Deps) { d.Auth = fakeAuth{broken: true} })
	reply := k.order(publishOf("kwargs", dict("token", "good-token-alice")))
	if errorOf(reply) != "AuthenticationError" || k.subs.count() != 0 {
		t.Errorf("%v, published %d", reply, k.subs.count())
	}
}

// TestClearSecrets looks for keys, passwords and tokens in events, stored jobs, publications and
// logs.
func TestClearSecrets(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	k := newOrderKit(t, nil)
	k.Master.log = slog.New(slog.NewTextHandler(&logged,
		&slog.HandlerOptions{Level: slog.LevelDebug}))
	k.Master.refused.log = k.Master.log
	credentials := []value.Map{
		dict("eauth", "pam", "username", "alice", "password", "good-password"),
		dict("token", "good-token-alice"),
		dict("eauth", "pam", "username", "alice", "password", "bad-password"),
		dict("token", "bad-token"), dict("auth_list", []any{"good-token-x"}),
	}
	secrets := []string{"password", "good-token", "bad-token", keyOf("salt"), keyOf("carol"),
		"wrong-key"}
	for _, fun := range []string{"test.ping", "cmd.run", "cmd.script"} {
		for _, key := range []string{keyOf("salt"), keyOf("carol"), "wrong-key"} {
			for _, kwargs := range append(credentials, dict()) {
				load := publishOf("kwargs", kwargs, "fun", fun, "key", key, "user", "carol", "jid",
					"20260101000000000000")
				k.order(load)
				for _, p := range kwargs { // what belongs into kwargs, by mistake outside
					load = load.Set(p.Key.(string), p.Value)
				}
				k.order(load)
			}
		}
	}
	k.bus.Fire("end", value.Map{})
	var told strings.Builder
	for e := range k.events.C {
		if e.Tag == "end" {
			break
		}
		fmt.Fprintln(&told, e.Tag, must(e.Map()))
	}
	if strings.Count(told.String(), "/error") < 10 || strings.Count(told.String(), "/publish") < 5 {
		t.Fatalf("too few events:\n%s", told.String())
	}
	for i := range k.subs.count() {
		fmt.Fprintln(&told, k.read(k.subs.get(i)))
	}
	fmt.Fprintln(&told, k.jobs.loads)
	fmt.Fprintln(&told, logged.String())
	if !strings.Contains(logged.String(), "192.0.2.1") ||
		!strings.Contains(logged.String(), "reason=clear_key") {
		t.Errorf("refusals are not logged with their address: %s", logged.String())
	}
	for _, secret := range secrets {
		if i := strings.Index(told.String(), secret); i >= 0 {
			t.Errorf("%q is told: %.200s", secret, told.String()[max(0, i-100):])
		}
	}
}

// TestStrangersCostLittle: without a good key no target is resolved, little is allocated, and a
// large load is not even read.
func TestStrangersCostLittle(t *testing.T) {
	k := newOrderKit(t, nil)
	before := k.targets.n
	load := publishOf("user", "root", "key", strings.Repeat("x", 76), "tgt",
		strings.Repeat("web* or ", 10_000), "tgt_type", "compound").Without("jid")
	payload := pack(dict("enc", "clear", "version", int64(3), "load", load))
	k.handle(payload)
	if k.targets.n != before {
		t.Error("a stranger's target was resolved")
	}
	if underRace {
		return
	}
	// the patterns of the blacklist are compiled each time: their budget of time is an order's own
	if n := testing.AllocsPerRun(100, func() { k.handle(payload) }); n > 400 {
		t.Errorf("a refused order takes %v allocations", n)
	}
	big := pack(dict("enc", "clear", "version", int64(3), "load",
		publishOf("key", keyOf("salt"), "arg", []any{strings.Repeat("x", wire.MaxClear)})))
	if got := k.value(big); got != "bad load" {
		t.Errorf("a load of %d bytes: %v", len(big), got)
	}
	if n := testing.AllocsPerRun(20, func() { k.handle(big) }); n > 50 {
		t.Errorf("a load that is too large takes %v allocations", n)
	}
	if k.subs.count() != 0 {
		t.Error("something was published")
	}
}

// TestStrangersEvents: without a proof nobody feigns another event by a job id, and nobody floods
// the bus.
func TestStrangersEvents(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, nil)
	now := time.Now()
	k.Master.steady = func() time.Time { return now }
	for _, tt := range []struct {
		jid any
		tag string
	}{
		{"20260101000000000000", "salt/job/20260101000000000000/error"},
		{"foo", "salt/job/foo/error"}, {"", "salt/job/error"}, {nil, "salt/job/error"},
		{"20260101000000000000/ret/m1", "salt/job/error"}, {"../../salt/key", "salt/job/error"},
		{"a\x00b", "salt/job/error"}, {int64(5), "salt/job/error"},
	} {
		k.order(publishOf("key", "x", "jid", tt.jid, "id", "m1", "return", "feigned"))
		k.event(tt.tag)
		k.noEvent()
	}
	for range 3 * strangersBurst {
		k.order(publishOf("key", "x"))
	}
	k.bus.Fire("mark", value.Map{})
	n := 0
	for e := range k.events.C {
		if e.Tag == "mark" {
			break
		}
		n++
	}
	if n != strangersBurst-8 {
		t.Errorf("%d events at once", n)
	}
	now = now.Add(time.Second)
	for range 2 * strangersRate {
		k.order(publishOf("key", "x"))
	}
	for range strangersRate {
		k.event("salt/job/error")
	}
	k.noEvent()
}

// TestJobsOfOthers: who takes the id of another's job would own its returns.
func TestJobsOfOthers(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, nil)
	order := func(user, jid string) string {
		return errorOf(k.order(publishOf("user", user, "key", keyOf(user), "jid", jid)))
	}
	byToken := func(user, jid string) string {
		return errorOf(k.order(publishOf("jid", jid, "kwargs", dict("token", "good-token-"+user))))
	}
	for range 2 { // as in batches
		if err := order("salt", "salts"); err != "" {
			t.Fatal(err)
		}
		if err := order("carol", "carols"); err != "" {
			t.Errorf("carol's own job: %s", err)
		}
		if err := byToken("alice", "alices"); err != "" {
			t.Errorf("alice's own job: %s", err)
		}
	}
	if err := order("carol", "salts"); err != "AuthorizationError" {
		t.Errorf("carol takes a job of the master's user: %q", err)
	}
	if err := order("carol", "alices"); err != "AuthorizationError" {
		t.Errorf("carol takes alice's job: %q", err)
	}
	for _, jid := range []string{"salts", "carols"} {
		if err := byToken("alice", jid); err != "AuthorizationError" {
			t.Errorf("alice takes %s: %q", jid, err)
		}
	}
	if err := order("salt", "carols"); err != "" {
		t.Errorf("the master's user: %s", err)
	}
	// A name of external_auth is no name of the system.
	k.jobs.loads["other"] = dict("user", "carol", "kwargs", dict("eauth", "pam"))
	if err := order("carol", "other"); err != "AuthorizationError" {
		t.Errorf("carol takes the job of a carol of pam: %q", err)
	}
	k.jobs.err = errors.New("no quorum")
	if got := k.order(publishOf("user", "carol", "key", keyOf("carol"), "jid",
		"new")); got != "Some exception handling minion payload" {
		t.Errorf("who owns the job can't be told: %v", got)
	}
}

// TestOrdersAreBounded: a user whose orders all hang gets no more, and others still do.
func TestOrdersAreBounded(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, nil)
	k.runners.block = make(chan struct{})
	hanging := pack(dict("enc", "clear", "version", int64(3), "load",
		dict("cmd", "wheel", "fun", "a.b", "token", "good-token-bob")))
	var wg sync.WaitGroup
	for range maxOrdersPerUser {
		wg.Go(func() {
			_, _ = k.Handle(context.Background(),
				Request{Payload: bytes.Clone(hanging)})
		})
	}
	running := func() int {
		k.runners.mu.Lock()
		defer k.runners.mu.Unlock()
		return len(k.runners.calls)
	}
	waitFor(t, "all orders to hang", func() bool { return running() == maxOrdersPerUser })
	if got := errorOf(k.value(hanging)); got != "SaltClientError" || running() != maxOrdersPerUser {
		t.Errorf("one more: %s, %d run", got, running())
	}
	if got := errorOf(k.order(publishOf("key", keyOf("salt")))); got != "" {
		t.Errorf("another user: %s", got)
	}
	close(k.runners.block)
	wg.Wait()
	if got := errorOf(k.value(hanging)); got != "" {
		t.Errorf("afterwards: %s", got)
	}
	if k.orders.n != 0 || len(k.orders.byUser) != 0 {
		t.Errorf("%d orders are still counted, %v", k.orders.n, k.orders.byUser)
	}
}

// TestAuthList: a syndic's user brings rights that narrow his own, nobody else does; with
// order_masters they go on.
func TestAuthList(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, func(o *Options, _ *Deps) { o.OrderMasters = true })
	for _, tt := range []struct {
		user, key string
		list      any
		fun       string
		err       string
		sent      string
	}{
		{"root", "salt", []any{"test.*"}, "test.ping", "", "[test.*]"},
		{"root", "salt", []any{"test.*"}, "cmd.run", "AuthorizationError", ""},
		{"root", "salt", []any{}, "cmd.run", "", "[]"},
		{"root", "salt", "text", "cmd.run", "", "[]"},
		{"carol", "carol", []any{".*"}, "cmd.run", "AuthorizationError", ""},
		{"carol", "carol", []any{"nothing"}, "test.ping", "", "[test.* @runner @wheel]"},
		{"root", "carol", []any{".*"}, "test.ping", "AuthenticationError", ""},
	} {
		before := k.subs.count()
		reply := k.order(publishOf("user", tt.user, "key", keyOf(tt.key), "fun", tt.fun, "kwargs",
			dict("auth_list", tt.list)))
		if errorOf(reply) != tt.err || (k.subs.count() > before) != (tt.err == "") {
			t.Errorf("%+v: %v", tt, reply)
			continue
		}
		if tt.err == "" {
			if got := fmt.Sprint(field(k.read(k.subs.get(before)), "auth_list")); got != tt.sent {
				t.Errorf("%+v: sent %s", tt, got)
			}
		}
	}
}

func TestTokensInClear(t *testing.T) {
	t.Parallel()
	k := newOrderKit(t, nil)
	for _, tt := range []struct {
		load value.Map
		want any
	}{
		{dict("cmd", "mk_token", "eauth", "pam", "username", "alice", "password", "good-password"),
			dict("name", "alice", "token", "good-token-alice")},
		{dict("cmd", "mk_token", "eauth", "pam", "username", "alice", "password", "x"), ""},
		{dict("cmd", "mk_token"), ""},
		{dict("cmd", "get_token", "token", "good-token-alice"), dict("token", "good-token-alice")},
		{dict("cmd", "get_token", "token", "x"), dict()},
		{dict("cmd", "get_token", "token", int64(5)), dict()}, {dict("cmd", "get_token"), false},
	} {
		if got := k.order(tt.load); !same(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.load, got, tt.want)
		}
	}
}

// FuzzClear: whatever comes in clear is answered, and without a good key, password or token nothing
// is sent or run.
func FuzzClear(f *testing.F) {
	k := newOrderKit(f, nil)
	for _, load := range []value.Map{
		publishOf("key", "x"), publishOf("key", "x", "tgt", []any{"m1"}, "tgt_type", "list", "fun",
			[]any{"test.ping", "test.echo"}, "jid", nil, "to", 1.5),
		publishOf("kwargs", dict("token", "bad")),
		publishOf("kwargs", dict("eauth", "pam", "username", "bob", "password", "x", "auth_list",
			[]any{".*"})),
		dict("cmd", "runner", "fun", "a.b", "kwarg", dict("arg", []any{}, "kwarg", dict()), "user",
			"root", "key", "x"),
		dict("cmd", "wheel", "fun", "key.accept", "match", "m1", "token", "bad"),
		dict("cmd", "mk_token", "eauth", "pam"), dict("cmd", "get_token", "token", "x"),
	} {
		f.Add(pack(load))
	}
	f.Fuzz(func(t *testing.T, load []byte) {
		if bytes.Contains(load, []byte("good-")) || bytes.Contains(load, []byte(keyOf("salt"))) ||
			bytes.Contains(load, []byte(keyOf("carol"))) {
			t.Skip("knows a secret")
		}
		payload := append(pack(dict("enc", "clear", "version", int64(3))),
			append(pack("load"), load...)...)
		payload[0]++ // one pair more
		reply, err := k.Handle(context.Background(), Request{Payload: payload})
		if err != nil || len(reply) == 0 {
			t.Fatalf("no answer: %v", err)
		}
		if v, err := value.Unpack(reply); err == nil &&
			v == "Some exception handling minion payload" && k.panicked() {
			t.Fatal("a handler panicked")
		}
		if k.subs.count() != 0 || len(k.runners.last()) != 0 {
			t.Fatal("an order without a proof was carried out")
		}
	})
}

// panicked reports whether a handler's panic was counted.
func (k *orderKit) panicked() bool {
	return testutil.ToFloat64(k.metrics.refused.WithLabelValues("panic")) > 0
}
