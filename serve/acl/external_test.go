package acl_test

import (
	"encoding/json"
	"errors"
	"testing"

	"clustermaster/serve/acl"
	"clustermaster/value"
)

// external is a question about external_auth.
type external struct {
	Section    json.RawMessage `json:"external"`
	User       string          `json:"user"`
	Groups     []string        `json:"groups"`
	Permissive bool            `json:"permissive"`
	Form       string          `json:"form"` // empty: an order
	Fun        any             `json:"fun"`
	Arg        json.RawMessage `json:"arg"`
	Kwarg      json.RawMessage `json:"kwarg"`
	Minions    []string        `json:"minions"`

	want any
	lax  any // Salt's answer where it is another
}

const backEnd = `{
	"frank": ["test.*", {"web*": ["network.*", {"state.sls": {"args": ["app.*"], "kwargs": {"saltenv": "base"}}}]}, "@jobs"],
	"dev.*": ["cmd.run", "@runner", "@wheel"],
	"ops?": [".*", "@runners"],
	"wendy": ["@wheels", {"*": ["pkg.list_pkgs"]}],
	"grace": [{"@runner": ["jobs.*", {"manage.up": {"args": [null, "x.*"]}}]}, {"@key": ["list.*", "finger"]}],
	"heidi": [{"@runners": ["test[.]arg"]}, {"@wheels": [{"key.accept": {"kwargs": {"include_denied": "False"}}}]}],
	"judy": [{"@jobs": "active"}, {"@jobs": [{"list_jobs": {"kwargs": {"search_target": null}}}]}, {"@test": [{"arg": [{"args": ["1"]}, {"args": ["2", "3"]}]}]}],
	"kim": [{"@jobs": ["x"], "@manage": ["y"]}, "", "@", 7, ["@runner"], {"@": [".*"]}, {"": [".*"]}],
	"leo": ["runner", "jobs", "@runnerx", "@RUNNER", "@jobs.active"],
	"nobody": [],
	"admins%": ["@runner", "service.*"],
	"web%%": ["network.*"],
	"%": ["disk.*"],
	"*": ["test.version", {"db*": ["grains.item"]}]
}`

const noStar = `{"frank": ["test.ping"], "admins%": ["@jobs"]}`

func externals() []external {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	order := func(user, fun, arg string, want any, minions ...string) external {
		return external{Section: raw(backEnd), User: user, Fun: fun, Arg: raw(arg),
			Kwarg: raw(`{}`), Minions: minions, want: want}
	}
	here := func(form, user, fun, arg, kwarg string, want any) external {
		q := order(user, fun, arg, want)
		q.Form, q.Kwarg = form, raw(kwarg)
		return q
	}
	plain := func(form, user, fun string, want any) external {
		return here(form, user, fun, `[]`,
			`{}`, want)
	}
	in := func(q external, groups ...string) external { q.Groups = groups; return q }
	permissive := func(q external) external { q.Permissive = true; return q }
	of := func(section string, q external) external { q.Section = raw(section); return q }
	salts := func(q external, answer any) external { q.lax = answer; return q }
	some := []external{
		// Orders by name.
		order("frank", "test.ping", `[]`, true, known...),
		order("frank", "network.ip", `[]`, true, "web1", "web2"),
		order("frank", "network.ip", `[]`, false, known...),
		order("frank", "network.ip", `[]`, false, "db1"),
		order("frank", "state.sls", `["app", {"__kwarg__": true, "saltenv": "base"}]`, true,
			"web1"),
		order("frank", "state.sls", `["app", {"__kwarg__": true, "saltenv": "dev"}]`, false,
			"web1"),
		order("frank", "state.sls", `["app"]`, false, "web1"),
		order("frank", "cmd.run", `["id"]`, false, "web1"),
		order("frank", "saltutil.find_job", `["1"]`, true, known...),
		order("nobody", "saltutil.find_job", `["1"]`, true, known...),
		order("nobody", "test.version", `[]`, false, known...),
		order("wendy", "pkg.list_pkgs", `[]`, true, known...),
		order("wendy", "key.list", `[]`, false, known...),
		order("grace", "jobs.active", `[]`, false, known...),
		order("kim", "x", `[]`, true, known...),      // the empty text is a pattern of everything
		order("leo", "runner", `[]`, true, known...), // a function of that name
		order("leo", "jobs.active", `[]`, true, known...),
		order("leo", "RUNNER", `[]`, false, known...),
		// By pattern: Salt has name and pattern the other way round.
		salts(order("dev1", "cmd.run", `["id"]`, true, known...), false),
		salts(order("dev1", "test.version", `[]`, false, known...), true),
		salts(order("ops1", "cmd.run", `["id"]`, true, known...), false),
		order("dev.*", "cmd.run", `["id"]`, true, known...),
		salts(order("fr*", "test.ping", `[]`, false, known...), true),
		salts(order("*", "cmd.run", `["id"]`, false, known...), true),
		salts(order("[d-w]*", "cmd.run", `[]`, false, known...), true),
		salts(order("dev.*|frank", "test.ping", `[]`, false, known...), true),
		order("Frank", "test.ping", `[]`, false, known...),
		order("frank2", "test.ping", `[]`, false, known...),
		order("", "test.version", `[]`, true, known...),
		// The entry for all others.
		order("zed", "test.version", `[]`, true, known...),
		order("zed", "grains.item", `["os"]`, true, "db1"),
		order("zed", "grains.item", `["os"]`, false, "web1"),
		order("zed", "test.ping", `[]`, false, known...),
		order("frank", "grains.item", `["os"]`, false, "db1"),
		salts(permissive(order("frank", "grains.item", `["os"]`, true, "db1")), false),
		salts(permissive(order("zed", "test.version", `[]`, true, known...)), false),
		salts(permissive(order("nobody", "test.version", `[]`, true, known...)), false),
		permissive(order("zed", "cmd.run", `[]`, false, known...)),
		of(noStar, order("zed", "test.ping", `[]`, false, known...)),
		of(noStar, order("zed", "saltutil.find_job", `["1"]`, true, known...)),
		of(noStar, permissive(order("zed", "test.ping", `[]`, false, known...))),
		of(`{}`, order("frank", "test.ping", `[]`, false, known...)),
		// Groups.
		in(order("zed", "service.restart", `["x"]`, true, known...), "admins"),
		in(order("zed", "service.restart", `["x"]`, false, known...), "admin", "adminss",
			"admins%"),
		in(order("zed", "test.version", `[]`, true, known...), "admins"), // a group is no name
		in(order("frank", "service.restart", `["x"]`, true, known...), "users", "admins"),
		in(order("frank", "test.ping", `[]`, true, known...), "admins"),
		in(order("zed", "network.ip", `[]`, true, known...), "web"),
		in(order("zed", "disk.usage", `[]`, true, known...), ""),
		in(order("zed", "disk.usage", `[]`, false, known...), "admins"),
		order("admins%", "service.restart", `["x"]`, false, known...),
		order("admins", "service.restart", `["x"]`, false, known...),
		of(noStar, in(order("zed", "test.ping", `[]`, false, known...), "frank")),
		// Syntax of runner and wheel functions; without any rights it is not looked at.
		plain("runner", "frank", "jobs", "syntax"), plain("runner", "frank", "jobs.a.b", "syntax"),
		plain("wheel", "frank", "", "syntax"),
		plain("runner", "nobody", "jobs", false), plain("wheel", "nobody", "key.list", false),
		plain("runner", "zed", "x", "syntax"),
		// @jobs, @key and their like: the functions of a runner or wheel module, as a list or as a
		// map.
		plain("runner", "frank", "jobs.active", true),
		plain("runner", "frank", "jobs.anything", true), plain("wheel", "frank", "jobs.x", true),
		plain("runner", "frank", "manage.up", false), plain("runner", "frank", "test.arg", false),
		plain("runner", "frank", "job.s", false),
		plain("wheel", "frank", "key.list", false),
		plain("runner", "frank", "saltutil.find_job", false),
		plain("wheel", "grace", "key.list", true), plain("wheel", "grace", "key.list_all", true),
		plain("wheel", "grace", "key.finger", true),
		plain("wheel", "grace", "key.finger_master", true), // the pattern is one for the beginning
		plain("wheel", "grace", "key.accept", false), plain("runner", "grace", "key.list", true),
		plain("wheel", "grace", "config.values", false),
		plain("wheel", "grace", "jobs.active", false),
		// @runner and @wheel.
		plain("runner", "wendy", "jobs.active", false), plain("wheel", "wendy", "key.accept", true),
		plain("wheel", "wendy", "config.values", true),
		plain("runner", "grace", "jobs.active", true),
		plain("runner", "grace", "jobs.list_jobs", true),
		plain("runner", "grace", "manage.status", false),
		here("runner", "grace", "manage.up", `["a", "x1"]`, `{}`, true),
		here("runner", "grace", "manage.up", `["a", "y1"]`, `{}`, false),
		here("runner", "grace", "manage.up", `["a"]`, `{}`, false),
		here("runner", "grace", "manage.up", `[]`, `{}`, false),
		here("runner", "grace", "manage.upper", `["a", "x"]`, `{}`, true),
		plain("runner", "heidi", "test.arg", true), plain("runner", "heidi", "test.args", true),
		plain("runner", "heidi", "test_arg.x", false),
		here("wheel", "heidi", "key.accept", `["m"]`, `{"include_denied": false}`, true),
		here("wheel", "heidi", "key.accept", `["m"]`, `{"include_denied": true}`, false),
		here("wheel", "heidi", "key.accept", `["m"]`, `{}`, false),
		here("wheel", "heidi", "key.reject", `["m"]`, `{"include_denied": false}`, false),
		plain("wheel", "heidi", "test.arg", false),
		plain("runner", "judy", "jobs.active", true), plain("runner", "judy", "jobs.list", false),
		here("runner", "judy", "jobs.list_jobs", `[]`, `{"search_target": "x"}`, true),
		here("runner", "judy", "jobs.list_jobs", `[]`, `{"search_target": null}`, true),
		here("runner", "judy", "jobs.list_jobs", `["search_target"]`, `{}`, false),
		here("runner", "judy", "jobs.list_jobs", `[]`, `{"ext_source": "x"}`, false),
		here("runner", "judy", "test.arg", `[1]`, `{}`, true),
		here("runner", "judy", "test.arg", `["12", "x"]`, `{}`, true),
		here("runner", "judy", "test.arg", `[2]`, `{}`, false),
		here("runner", "judy", "test.arg", `[2, 3]`, `{}`, true),
		here("runner", "judy", "test.arg", `[2, 4]`, `{}`, false),
		here("runner", "judy", "test.arg", `[]`, `{}`, false),
		here("wheel", "judy", "test.arg", `[1]`, `{}`, true),
		plain("runner", "leo", "jobs.active", false), plain("runner", "leo", "runnerx.x", true),
		plain("wheel", "leo", "key.list", false),
		plain("runner", "leo", "RUNNER.x", true), plain("runner", "leo", "test.arg", false),
		// By pattern, group and the entry for all others.
		salts(plain("runner", "dev1", "jobs.active", true), false),
		salts(plain("wheel", "dev1", "key.delete", true), false),
		salts(plain("runner", "ops1", "manage.up", true), false),
		salts(plain("wheel", "ops1", "key.list", false), false),
		salts(plain("runner", "d*", "jobs.active", false), true),
		salts(plain("wheel", "*", "key.delete", false), true),
		in(plain("runner", "zed", "manage.up", true), "admins"),
		in(plain("wheel", "zed", "key.list", false), "admins"),
		plain("runner", "zed", "jobs.active", false),
		permissive(plain("runner", "frank", "jobs.active", true)),
		of(noStar, in(plain("runner", "zed", "jobs.active", true), "admins")),
		of(noStar, in(plain("wheel", "frank", "jobs.x", true), "admins")),
		of(noStar, plain("runner", "frank", "jobs.active", false)),
	}
	several := order("frank", "", `[[], [1]]`, true, known...)
	several.Fun = []string{"test.ping", "test.arg"}
	mixed := salts(several, true)
	mixed.Fun, mixed.want = []string{"test.ping", "cmd.run"}, false
	return append(some, several, mixed)
}

func (q external) answer(t *testing.T) any {
	t.Helper()
	section, _ := decode(t, q.Section).(value.Map)
	args, _ := decode(t, q.Arg).([]any)
	kwargs, _ := decode(t, q.Kwarg).(value.Map)
	rights := acl.Granted(section, q.User, q.Groups, q.Permissive)
	fun, _ := q.Fun.(string)
	var ok bool
	var err error
	switch q.Form {
	case "":
		funs, several := q.Fun.([]string)
		if !several {
			funs = []string{fun}
		}
		var where acl.Cover
		if where, err = rights.Allow(t.Context(),
			acl.Order{Funs: funs, Several: several, Args: args, Minions: q.Minions},
			minions); err != nil {
			t.Fatal(err)
		}
		ok = where != acl.Nowhere
	case "runner":
		ok, err = rights.AllowRunner(fun, args, kwargs)
	case "wheel":
		ok, err = rights.AllowWheel(fun, args, kwargs)
	}
	if errors.Is(err, acl.ErrSyntax) {
		return "syntax"
	}
	return ok
}

func TestExternalAnswers(t *testing.T) {
	t.Parallel()
	for _, q := range externals() {
		if got := q.answer(t); got != q.want {
			t.Errorf("%s %v %s wants %v%s %s on %v, permissive %v: %v, want %v", q.User, q.Groups,
				q.Form, q.Fun, q.Arg, q.Kwarg, q.Minions, q.Permissive, got, q.want)
		}
	}
}

// crossed asks for everything that some users could want; what we answer is what Salt must.
func crossed(t *testing.T) (out []external) {
	for _, user := range []string{"frank", "wendy", "grace", "heidi", "judy", "leo", "nobody",
		"zed"} {
		for _, fun := range []string{"jobs.active", "key.list", "manage.up", "test.ping",
			"test.version", "runner.x"} {
			for _, form := range []string{"", "runner", "wheel"} {
				for _, groups := range [][]string{nil, {"admins", "web"}} {
					q := external{Section: json.RawMessage(backEnd), User: user, Groups: groups,
						Form: form, Fun: fun, Arg: json.RawMessage(`["a", "x"]`),
						Kwarg: json.RawMessage(`{}`), Minions: []string{"web1"}}
					q.want = q.answer(t)
					out = append(out, q)
				}
			}
		}
	}
	return out
}

// TestExternalLikeSalt gives the same questions to Salt's own access control. Where it answers
// otherwise docs/differences.md says why.
func TestExternalLikeSalt(t *testing.T) {
	t.Parallel()
	all := append(externals(), crossed(t)...)
	for i := range all {
		if all[i].Minions == nil {
			all[i].Minions = []string{}
		}
	}
	for i, got := range askSalt(t, all) {
		q := all[i]
		want := q.want
		if q.lax != nil {
			want = q.lax
		}
		if got != want {
			t.Errorf("%s %v %s wants %v%s %s on %v, permissive %v: Salt says %v, we thought %v",
				q.User, q.Groups, q.Form, q.Fun, q.Arg, q.Kwarg, q.Minions, q.Permissive, got, want)
		}
	}
	t.Logf("%d questions", len(all))
}

// FuzzRights gives lists that no configuration would have; an empty one allows nothing.
func FuzzRights(f *testing.F) {
	f.Add(`["test.*", {"web*": ["x"]}]`, "test.ping", `[1]`)
	f.Add(`[{"@jobs": [{"active": {"args": [null], "kwargs": {"a": "b"}}}]}, "@", ""]`,
		"jobs.active", `[{"__kwarg__": true}]`)
	f.Fuzz(func(t *testing.T, listed, fun, args string) {
		var list, arg any
		if json.Unmarshal([]byte(listed), &list) != nil ||
			json.Unmarshal([]byte(args), &arg) != nil {
			return
		}
		entries, _ := plain(list).([]any)
		given, _ := plain(arg).([]any)
		rights := acl.FromList(entries)
		runner, _ := rights.AllowRunner(fun, given, nil)
		wheel, _ := rights.AllowWheel(fun, given, nil)
		order, err := rights.Allow(t.Context(),
			acl.Order{Funs: []string{fun}, Args: given, Minions: known}, minions)
		if len(entries) == 0 && (runner || wheel || err != nil ||
			(order != acl.Nowhere) != (fun == "saltutil.find_job")) {
			t.Fatalf("no rights, and yet %q: %v %v %v %v", fun, runner, wheel, order, err)
		}
	})
}
