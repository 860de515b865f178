package acl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermaster/salt/target"
	"clustermaster/serve/acl"
	"clustermaster/value"
)

// known are the minions of all questions.
var known = []string{"web1", "web2", "db1"}

func minions(_ context.Context, compound string) ([]string, error) {
	if compound == "broken" {
		return nil, errors.New("no data")
	}
	return slices.DeleteFunc(slices.Clone(known),
		func(id string) bool { return !target.Glob(compound, id) }), nil
}

// question is who wants what under which options.
type question struct {
	ACL       json.RawMessage `json:"acl"`
	Blacklist json.RawMessage `json:"blacklist,omitempty"`
	User      string          `json:"user"`
	Fun       any             `json:"fun"`
	Arg       json.RawMessage `json:"arg"`
	Minions   []string        `json:"minions"`

	want any
	// lax says that Salt gives another answer, and which.
	lax any
}

const (
	some = `{"carol": ["test.*", {"web*": ["network.*", {"state.sls": {"args": ["app.*"], "kwargs": {"saltenv": "base"}}}]}], "d.*": [".*"], "ops*": ["test.version"],
		"odd": [{"a": ["x"], "b": ["y"]}, 7, {"*": "pkg.list"}, {"db*": [{"cmd.run": [{"args": [null, "1"]}, {"kwargs": {"cwd": null}}]}]}], "none": [], "runner": ["@runner", {"@jobs": [".*"]}],
		"re": ["(", "test[.]ping$"], "any": [{"web*": ["a.b"]}, {"*": [{"grains.items": {"kwargs": {"sanitize": "True"}}}]}]}`
	kwarg = `{"__kwarg__": true, "saltenv": "base"}`
)

func questions() []question {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	ask := func(user string, fun any, arg string, want any, minions ...string) question {
		return question{ACL: raw(some), User: user, Fun: fun, Arg: raw(arg), Minions: minions,
			want: want}
	}
	black := func(list, user string, fun any, want any) question {
		return question{ACL: raw(some), Blacklist: raw(list), User: user, Fun: fun, Arg: raw(`[]`),
			Minions: known, want: want}
	}
	loose := func(q question, salts any) question { q.lax = salts; return q }
	return []question{
		ask("carol", "test.ping", `[]`, true, known...),
		ask("carol", "test.ping", `[]`, true),
		// the dot is any character, and the rest may follow
		ask("carol", "testing", `[]`, true, known...),
		ask("carol", "xtest.ping", `[]`, false, known...),
		ask("carol", "grains.items", `[]`, false, known...),
		ask("carol", "network.interfaces", `[]`, true, "web1", "web2"),
		ask("carol", "network.interfaces", `[]`, false, "web1", "db1"),
		ask("carol", "network.interfaces", `[]`, true),
		ask("carol", "saltutil.find_job", `["1"]`, true, known...),
		ask("carol", "state.sls", `["app.x", `+kwarg+`]`, true, "web1"),
		ask("carol", "state.sls", `["app.x"]`, false, "web1"),
		ask("carol", "state.sls", `["top", `+kwarg+`]`, false, "web1"),
		ask("carol", "state.sls", `[`+kwarg+`]`, false, "web1"),
		ask("carol", "state.sls", `["app", {"__kwarg__": true, "saltenv": "dev"}]`, false, "web1"),
		ask("carol", "state.sls", `["app", "more", `+kwarg+`]`, true, "web1"),
		ask("carol", "state.sls", `["app", {"saltenv": "base"}]`, false, "web1"),
		ask("carol", "state.sls", `["app", `+kwarg+`]`, false, "db1"),
		ask("dave", "cmd.run", `["id"]`, true, known...),
		ask("Dave", "cmd.run", `["id"]`, "unknown", known...),
		ask("ops7", "test.version", `[]`, true, known...),
		ask("ops7", "test.ping", `[]`, false, known...),
		ask("xops", "test.version", `[]`, "unknown", known...),
		ask("none", "test.ping", `[]`, "unknown", known...),
		ask("odd", "x", `[]`, false, known...),
		ask("odd", "pkg.list_pkgs", `[]`, true, known...),
		ask("odd", "cmd.run", `["id", 1]`, true, "db1"),
		ask("odd", "cmd.run", `["id", 2]`, false, "db1"),
		ask("odd", "cmd.run", `["id"]`, false, "db1"),
		ask("odd", "cmd.run", `["id", {"__kwarg__": true, "cwd": "/"}]`, true, "db1"),
		ask("odd", "cmd.run", `["id", 1]`, false, "web1"),
		ask("runner", "runner", `[]`, false, known...),
		ask("runner", "jobs.active", `[]`, false, known...),
		ask("re", "test.ping", `[]`, true, known...),
		ask("re", "test.pings", `[]`, false, known...),
		ask("any", "grains.items", `[{"__kwarg__": true, "sanitize": true}]`, true, "db1"),
		ask("any", "grains.items", `[{"__kwarg__": true, "sanitize": false}]`, false, "db1"),
		ask("any", "aXb", `[]`, true, "web1"),
		ask("carol", []string{"test.ping", "test.arg"}, `[[], [1]]`, true, known...),
		loose(ask("carol", []string{"test.ping", "grains.items"}, `[[], []]`, false,
			known...), true),
		loose(ask("carol", []string{"grains.items", "test.ping"}, `[[], []]`, false,
			known...), true),
		loose(ask("carol", []string{"saltutil.find_job", "cmd.run"}, `[["1"], ["id"]]`, false,
			known...), true),
		ask("carol", []string{"test.ping", "state.sls"}, `[[], ["app.x", `+kwarg+`]]`, true,
			"web1"),
		// A list of one function has a list of arguments for it; minions read it so.
		ask("carol", []string{"state.sls"}, `[["app.x", `+kwarg+`]]`, true, "web1"),
		ask("carol", []string{"state.sls"}, `[["app.x"]]`, false, "web1"),
		ask("carol", []string{"state.sls"}, `[["top"], "app.x", `+kwarg+`]`, false, "web1"),
		ask("carol", []string{"state.sls"}, `["app.x", `+kwarg+`]`, false, "web1"),
		ask("odd", []string{"cmd.run"}, `[["id"], {"__kwarg__": true, "cwd": "/"}]`, false, "db1"),
		ask("odd", []string{"cmd.run"}, `[["id", {"__kwarg__": true, "cwd": "/"}]]`, true, "db1"),
		ask("odd", []string{"cmd.run"}, `[["id", 1]]`, true, "db1"),
		ask("carol", []string{"test.ping"}, `[[]]`, true, known...),
		loose(ask("odd", "cmd.run", `["id", {"__kwarg__": false, "cwd": "/"}]`, false, "db1"),
			true),
		// Minions read name=value as a keyword argument, and any map that is marked.
		loose(ask("odd", "cmd.run", `["x=1", "1", "cmd=reboot"]`, false, "db1"), true),
		loose(ask("odd", "cmd.run", `["cwd=/", "id"]`, true, "db1"), false),
		loose(ask("carol", "state.sls", `["app=x", "mods=top", `+kwarg+`]`, false, "web1"), true),
		loose(ask("carol", "state.sls", `["app", "saltenv=dev", `+kwarg+`]`, false, "web1"), true),
		loose(ask("carol", "state.sls",
			`["app", {"__kwarg__": true, "saltenv": "dev"}, `+kwarg+`]`, false, "web1"), true),
		loose(ask("carol", "state.sls", `["app一=x", "mods=top", `+kwarg+`]`, false, "web1"),
			true),
		ask("carol", "state.sls", `["app 一=x", "app==x", `+kwarg+`]`, true, "web1"),
		loose(ask("carol", "state.sls", `["app", "saltenv=base"]`, true, "web1"), false),
		loose(ask("carol", "state.sls", `[`+kwarg+`, "app"]`, true, "web1"), false),
		loose(ask("carol", []string{"test.ping", "state.sls"},
			`[[], ["app=x", "mods=top", `+kwarg+`]]`, false, "web1"), true),
		black(`{"users": ["carol"]}`, "carol", "test.ping", "blocked"),
		black(`{"users": ["^(?!root).*$"]}`, "carol", "test.ping", "blocked"),
		black(`{"users": ["car?l"], "modules": []}`, "carol", "test.ping", "blocked"),
		black(`{"users": "carol"}`, "carol", "test.ping", "blocked"),
		black(`{"users": ["arol"]}`, "carol", "test.ping", true),
		black(`{"modules": ["cmd.*"]}`, "dave", "cmd.run", "blocked"),
		black(`{"modules": ["cmd"]}`, "dave", "cmd.run", true),
		black(`{"modules": ["cmd.*", "test.echo"]}`, "dave", []string{"test.ping", "test.echo"},
			"blocked"),
		black(`{"modules": ["cmd.*"]}`, "dave", "test.ping", true),
		// of the alternatives, only the last must reach the end
		black(`{"modules": ["cmd.run|cmd.shell"]}`, "dave", "cmd.run_all", "blocked"),
		black(`{"modules": ["test.ping|cmd.run|cmd.shell"]}`, "dave", "cmd.run_all", "blocked"),
		black(`{"modules": ["test.ping|cmd.shell"]}`, "dave", "cmd.shells", true),
		black(`{"modules": ["(cmd.run|cmd.shell)"]}`, "dave", "cmd.run_all", true),
		black(`{"users": ["car|dave"]}`, "carol", "test.ping", "blocked"),
		black(`{"users": ["dave|car"]}`, "carol", "test.ping", true),
		black(`{}`, "dave", "test.ping", true),
	}
}

func decode(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return plain(v)
}

// plain turns what encoding/json makes into wire values.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		var out value.Map
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range v {
				if !yield(k) {
					return
				}
			}
		}) {
			out = append(out, value.Pair{Key: k, Value: plain(v[k])})
		}
		return out
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}

func (q question) answer(t *testing.T) any {
	t.Helper()
	publisher, _ := decode(t, q.ACL).(value.Map)
	blacklist, _ := decode(t, q.Blacklist).(value.Map)
	rules, err := acl.New(acl.Options{PublisherACL: publisher, Blacklist: blacklist})
	if err != nil {
		t.Fatal(err)
	}
	funs, several := q.Fun.([]string)
	if !several {
		funs = []string{q.Fun.(string)}
	}
	if rules.Blocked(q.User, funs) {
		return "blocked"
	}
	rights := rules.Of(q.User)
	if rights == nil {
		return "unknown"
	}
	args, _ := decode(t, q.Arg).([]any)
	where, err := rights.Allow(t.Context(), acl.Order{Funs: funs, Several: several, Args: args,
		Minions: q.Minions}, minions)
	if err != nil {
		t.Fatal(err)
	}
	return where != acl.Nowhere
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, q := range questions() {
		if got := q.answer(t); got != q.want {
			t.Errorf("%s wants %v%s on %v, blacklist %s: %v, want %v", q.User, q.Fun, q.Arg,
				q.Minions, q.Blacklist, got, q.want)
		}
	}
}

// TestBytes: minions read bytes as text.
func TestBytes(t *testing.T) {
	t.Parallel()
	rights := acl.FromList([]any{value.Map{{Key: "*", Value: value.Map{{Key: "state.sls",
		Value: value.Map{{Key: "args", Value: []any{"app"}}, {Key: "kwargs",
			Value: value.Map{{Key: "saltenv", Value: "base"}}}}}}}}})
	base := value.Map{{Key: "__kwarg__", Value: true}, {Key: "saltenv", Value: []byte("base")}}
	dev := value.Map{{Key: []byte("__kwarg__"), Value: true}, {Key: []byte("saltenv"), Value: "dev"}}
	for _, tt := range []struct {
		args []any
		want acl.Cover
	}{
		{[]any{[]byte("app"), base}, acl.Anywhere},
		{[]any{"app", dev, base}, acl.Nowhere},
		{[]any{"app", base, []byte("saltenv=dev")}, acl.Nowhere},
	} {
		got, err := rights.Allow(t.Context(), acl.Order{Funs: []string{"state.sls"}, Args: tt.args,
			Minions: known}, minions)
		if got != tt.want || err != nil {
			t.Errorf("%v: %v, %v", tt.args, got, err)
		}
	}
}

// TestAliases: a minion reads a text with aliases as a value, which may be far larger.
func TestAliases(t *testing.T) {
	t.Parallel()
	rights := acl.FromList([]any{value.Map{{Key: "*", Value: value.Map{{Key: "state.sls",
		Value: value.Map{{Key: "kwargs", Value: value.Map{{Key: "saltenv", Value: `\[`}}}}}}}}})
	for text, want := range map[string]acl.Cover{
		"[&a base, *a]": acl.Anywhere,
		"[&a [*a]]":     acl.Nowhere,
		"[&a " + strings.Repeat("A", 1<<14) + strings.Repeat(",*a", 1<<12) + "]": acl.Nowhere,
	} {
		got, err := rights.Allow(t.Context(), acl.Order{Funs: []string{"state.sls"},
			Args: []any{"saltenv=" + text}, Minions: known}, minions)
		if got != want || err != nil {
			t.Errorf("%.20s: %v, %v, want %v", text, got, err, want)
		}
	}
}

// askSalt gives questions to Salt's own access control.
func askSalt[Q any](t *testing.T, all []Q) []any {
	t.Helper()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	asked, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(venvs, "salt-3008.3", "bin", "python"),
		filepath.Join("testdata", "acl.py"))
	cmd.Stdin = bytes.NewReader(asked)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	var answers []any
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(all) {
		t.Fatalf("%d answers to %d questions: %v", len(answers), len(all), err)
	}
	return answers
}

// TestLikeSalt gives the same questions to Salt's own access control. What Salt is too lax with
// stands in docs/differences.md.
func TestLikeSalt(t *testing.T) {
	t.Parallel()
	all := questions()
	for i := range all {
		if all[i].Minions == nil {
			all[i].Minions = []string{}
		}
	}
	answers := askSalt(t, all)
	for i, q := range all {
		want := q.want
		if q.lax != nil {
			want = q.lax
		}
		if answers[i] != want {
			t.Errorf("%s wants %v%s on %v, blacklist %s: Salt says %v, we thought %v", q.User,
				q.Fun, q.Arg, q.Minions, q.Blacklist, answers[i], want)
		}
	}
}

func TestSudo(t *testing.T) {
	t.Parallel()
	list := value.Map{{Key: "carol", Value: []any{"test.*"}}}
	for _, c := range []struct {
		opts   acl.Options
		user   string
		counts bool
		rights bool
	}{
		{acl.Options{PublisherACL: list, SudoACL: true}, "sudo_carol", true, true},
		{acl.Options{PublisherACL: list, SudoACL: true}, "sudo_dave", true, false},
		{acl.Options{PublisherACL: list, SudoACL: true}, "root", false, false},
		{acl.Options{PublisherACL: list}, "sudo_carol", false, false},
		{acl.Options{SudoACL: true}, "sudo_carol", false, false},
	} {
		rules, err := acl.New(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if rights, counts := rules.OfSudo(c.user); counts != c.counts ||
			(rights != nil) != c.rights {
			t.Errorf("%+v: %v, %v", c, rights, counts)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, o := range []acl.Options{
		{PublisherACL: value.Map{{Key: int64(7), Value: []any{".*"}}}},
		{PublisherACL: value.Map{{Key: "carol", Value: "test.ping"}}},
		{Blacklist: value.Map{{Key: "users", Value: []any{int64(1)}}}},
		{Blacklist: value.Map{{Key: "modules", Value: int64(1)}}},
	} {
		if _, err := acl.New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	rules, err := acl.New(acl.Options{PublisherACL: value.Map{{Key: "carol",
		Value: []any{value.Map{{Key: "broken", Value: []any{".*"}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if where, err := rules.Of("carol").Allow(t.Context(),
		acl.Order{Funs: []string{"x"}, Minions: known}, minions); where != acl.Nowhere ||
		err == nil {
		t.Errorf("a target that cannot be resolved: %v, %v", where, err)
	}
	if where, err := rules.Of("carol").Allow(t.Context(), acl.Order{},
		minions); where != acl.Nowhere || err != nil {
		t.Errorf("no function: %v, %v", where, err)
	}
}

// TestOrderer is the table of who may order in whose name, whatever way he came.
func TestOrderer(t *testing.T) {
	t.Parallel()
	root, carol, dave := acl.Caller{Name: "root",
		Super: true}, acl.Caller{Name: "carol"}, acl.Caller{Name: "dave"}
	all, some, none := "all", "some", ""
	for _, tt := range []struct {
		name    string
		sudo    bool
		caller  acl.Caller
		claimed string
		fun     string
		user    string
		rights  string
		err     error
	}{
		{"root", false, root, "", "cmd.run", "root", all, nil},
		{"root as himself", false, root, "root", "cmd.run", "root", all, nil},
		{"root as a user", false, root, "carol", "cmd.run", "carol", all, nil},
		{"root for a sudoer", false, root, "sudo_carol", "cmd.run", "sudo_carol", all, nil},
		{"sudo_acl counts", true, root, "sudo_carol", "cmd.run", "sudo_carol", some, nil},
		{"sudo_acl for one without rights", true, root, "sudo_mallory", "cmd.run", "sudo_mallory",
			none, acl.ErrNoRights},
		{"a user", false, carol, "", "cmd.run", "carol", some, nil},
		{"a user as himself", false, carol, "carol", "cmd.run", "carol", some, nil},
		{"a user as root", false, carol, "root", "cmd.run", "carol", some, nil},
		{"a user for a sudoer", true, carol, "sudo_root", "cmd.run", "carol", some, nil},
		{"a user without rights", false, dave, "", "test.ping", "dave", none, acl.ErrNoRights},
		{"a user without rights as one with some", false, dave, "carol", "test.ping", "dave", none,
			acl.ErrNoRights},
		{"a function on the blacklist, for root", false, root, "", "cmd.script", "root", none,
			acl.ErrBlacklisted},
		{"a user on the blacklist", false, acl.Caller{Name: "eve"}, "", "test.ping", "eve", none,
			acl.ErrBlacklisted},
		{"root as a user on the blacklist", false, root, "eve", "test.ping", "eve", none,
			acl.ErrBlacklisted},
	} {
		rules, err := acl.New(acl.Options{
			PublisherACL: value.Map{{Key: "carol", Value: []any{"test.*"}}},
			Blacklist: value.Map{{Key: "users", Value: []any{"eve"}},
				{Key: "modules", Value: []any{"cmd.script*"}}},
			SudoACL: tt.sudo,
		})
		if err != nil {
			t.Fatal(err)
		}
		user, rights, err := rules.Orderer(tt.caller, tt.claimed, []string{"test.ping", tt.fun})
		got := none
		switch {
		case rights != nil:
			got = some
		case err == nil:
			got = all
		}
		if user != tt.user || got != tt.rights || !errors.Is(err, tt.err) {
			t.Errorf("%s: %s with rights %q and %v, want %s with %q and %v", tt.name, user, got,
				err, tt.user, tt.rights, tt.err)
		}
	}
}

// TestConfirmed: whom external_auth knows has the rights that it gives, unless one of his names or
// a function is on the blacklist.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	rules, err := acl.New(acl.Options{Blacklist: value.Map{{Key: "users", Value: []any{"eve"}},
		{Key: "modules", Value: []any{"cmd.script*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	given := acl.FromList([]any{"test.*"})
	for _, tt := range []struct {
		claimed, name string
		rights        *acl.Rights
		fun           string
		want          error
	}{
		{"alice", "alice", given, "test.ping", nil}, {"", "alice", given, "test.ping", nil},
		{"root", "alice", given, "cmd.run", nil},
		{"eve", "alice", given, "test.ping", acl.ErrBlacklisted},
		{"alice", "eve", given, "test.ping", acl.ErrBlacklisted},
		{"alice", "alice", given, "cmd.script_retcode", acl.ErrBlacklisted},
		{"alice", "alice", nil, "test.ping", acl.ErrNoRights},
	} {
		rights, err := rules.Confirmed(tt.claimed, tt.name, tt.rights, []string{tt.fun})
		if !errors.Is(err, tt.want) || (err == nil) != (rights == given) || err != nil &&
			rights != nil {
			t.Errorf("%+v: %v, %v", tt, rights, err)
		}
	}
}

// TestEndlessBlacklist: a pattern of the blacklist that goes on trying blocks what it can't decide
// on.
func TestEndlessBlacklist(t *testing.T) {
	t.Parallel()
	rules, err := acl.New(acl.Options{Blacklist: value.Map{
		{Key: "users", Value: []any{"(?=a)(a+)+"}},
		{Key: "modules", Value: []any{"*.shell", "(?=x)(x+)+"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a, x := strings.Repeat("a", 64)+"!", strings.Repeat("x", 64)+"!"
	for _, tt := range []struct {
		user, fun string
		want      bool
	}{{a, "test.ping", true}, {"bob", x, true}, {"bob", "cmd.shell", true}, {"bob", "test.ping",
		false}, {"aaa", "test.ping", true}} {
		if got := rules.Blocked(tt.user, []string{tt.fun}); got != tt.want {
			t.Errorf("%.10s %.10s: blocked %v", tt.user, tt.fun, got)
		}
	}
}

// Rules that were replaced count at once, and wrong ones change nothing.
func TestPrepare(t *testing.T) {
	t.Parallel()
	list := func(fun string) acl.Options {
		return acl.Options{PublisherACL: value.Map{{Key: "bob", Value: []any{fun}}}}
	}
	r, err := acl.New(list("test.ping"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Of("bob") == nil || r.Of("eve") != nil {
		t.Fatal("bob has no rights, or eve has some")
	}
	use, err := r.Prepare(acl.Options{PublisherACL: value.Map{{Key: "eve",
		Value: []any{"test.ping"}}},
		Blacklist: value.Map{{Key: "users", Value: []any{"mallory"}}}})
	if err != nil || r.Of("bob") == nil || r.Of("eve") != nil {
		t.Fatalf("other rules count before they are used, or are refused: %v", err)
	}
	use()
	if r.Of("bob") != nil || r.Of("eve") == nil || !r.Blocked("mallory", nil) {
		t.Error("the rules of before are in force")
	}
	if _, err := r.Prepare(acl.Options{PublisherACL: value.Map{{Key: "bob",
		Value: "test.ping"}}}); err == nil || r.Of("eve") == nil {
		t.Errorf("wrong rules: %v", err)
	}
}
