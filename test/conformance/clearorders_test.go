package conformance

import (
	"slices"
	"strings"

	"clustermaster/value"
)

// setIn returns a load with other values for some keys. The value absent removes a key.
func setIn(load value.Map, pairs ...any) value.Map {
	load = slices.Clone(load)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == absent {
			load = load.Without(pairs[i].(string))
			continue
		}
		load = load.Set(pairs[i].(string), pairs[i+1])
	}
	return load
}

const absent = "\x00absent"

// jobOf is what `salt web-a test.ping` of 3008 sends, with changes.
func jobOf(pairs ...any) value.Map {
	return setIn(dict("cmd", "publish", "tgt", "web-a", "fun", "test.ping", "arg", []any{}, "key",
		"KEY:root", "tgt_type", "glob", "ret", "", "jid", "",
		"kwargs", dict("show_timeout", true, "show_jid", false, "delimiter", ":"), "user", "root"),
		pairs...)
}

// as are the pairs for a publish by a user with a key.
func as(user, keyOf string, pairs ...any) value.Map {
	return jobOf(append([]any{"user", user, "key", "KEY:" + keyOf}, pairs...)...)
}

// byEauth and byToken have the credentials in kwargs, and no key.
func byEauth(user string, pairs ...any) value.Map {
	return jobOf(append([]any{"key", absent, "user", "mallory", "kwargs",
		dict("eauth", "auto", "username", user, "password", "pw-secret")}, pairs...)...)
}

func byToken(user string, pairs ...any) value.Map {
	return jobOf(append([]any{"key", absent, "user", "mallory", "kwargs",
		dict("token", "TOKEN:"+user)}, pairs...)...)
}

func keyOrders() []ordered {
	kwargs := func(pairs ...any) value.Map { return jobOf("kwargs", dict(pairs...)) }
	const denied = `{error: {message: Authentication error occurred., name: AuthenticationError}}`
	return []ordered{
		{name: "root", load: jobOf()},
		{name: "root, all", load: jobOf("tgt", "*")},
		{name: "a list with one missing", load: jobOf("tgt", []any{"web-a", "nosuch"}, "tgt_type",
			"list")},
		{name: "a list as text", load: jobOf("tgt", "web-b,nosuch,web-a", "tgt_type", "list")},
		{name: "a regular expression", load: jobOf("tgt", "web-a$", "tgt_type", "pcre")},
		{name: "compound", load: jobOf("tgt", "web-* and not web-b", "tgt_type", "compound")},
		{name: "a grain with a delimiter", load: jobOf("tgt", "os|Plan*", "tgt_type", "grain",
			"kwargs", dict("delimiter", "|"))},
		{name: "an unknown kind of target", load: jobOf("tgt_type", "nosuch")},
		{name: "nobody", load: jobOf("tgt", "nosuch")},
		{name: "nobody of a list", load: jobOf("tgt", []any{"no1", "no2"}, "tgt_type", "list")},
		{name: "nobody, with a jid", load: jobOf("tgt", "nosuch", "jid", "20260101000000000009")},
		{name: "a jid", load: jobOf("jid", "20260101000000000001")},
		{name: "a jid again", load: jobOf("jid", "20260101000000000001")},
		{name: "a jid that is free text", load: jobOf("jid", "foo")},
		{name: "a jid that is null", load: jobOf("jid", nil)},
		{name: "no jid", load: jobOf("jid", absent)},
		{name: "to", load: jobOf("to", int64(7))},
		{name: "ret", load: jobOf("ret", "smtp,carbon")},
		{name: "arguments", load: jobOf("fun", "test.arg", "arg",
			[]any{"x", int64(1), nil, true, 1.5, []any{"l"}, dict("m", int64(2)),
				dict("__kwarg__", true, "k", "v")})},
		{name: "several functions", load: jobOf("fun", []any{"test.ping", "test.echo"}, "arg",
			[]any{[]any{}, []any{"x"}})},
		{name: "no kwargs", load: jobOf("kwargs", absent)},
		{name: "metadata", load: kwargs("metadata", dict("ticket", int64(5)))},
		{name: "metadata that is null", load: kwargs("metadata", nil)},
		{name: "ret_config", load: kwargs("ret_config", "alt")},
		{name: "ret_config that is empty", load: kwargs("ret_config", "")},
		{name: "ret_kwargs", load: kwargs("ret_kwargs", dict("to", "x"))},
		{name: "module_executors", load: kwargs("module_executors", []any{"sudo", "direct_call"})},
		{name: "executor_opts", load: kwargs("executor_opts", dict("sudo_user", "x"))},
		{name: "start_event", load: kwargs("start_event", true)},
		{name: "start_event that is a number", load: kwargs("start_event", int64(1))},
		{name: "start_event that is off", load: kwargs("start_event", false)},
		{name: "id", load: kwargs("id", "web-b")},
		{name: "master_id", load: kwargs("master_id", "other_master")},
		{name: "delimiter", load: kwargs("delimiter", "#")},
		{name: "kwargs that minions never see", load: kwargs("gather_job_timeout", int64(3), "raw",
			true, "yield_pub_data", true, "nocache", false, "timeout", int64(2), "x", "y")},
		{name: "auth_list that is empty, of the master's user", load: kwargs("auth_list", []any{})},
		{name: "auth_list of the master's user that allows",
			load: kwargs("auth_list", []any{"test.ping"})},
		{name: "auth_list of the master's user that does not",
			load: kwargs("auth_list", []any{"grains.items"})},
		{name: "auth_list of another user",
			load: as("carol", "carol", "kwargs", dict("auth_list", []any{".*"}), "fun",
				"grains.items")},

		{name: "root, with another key", load: as("root", "wrong")},
		{name: "root, with an empty key", load: jobOf("key", "")},
		{name: "root, without a key", load: jobOf("key", absent)},
		{name: "root, with a key that is a number", load: jobOf("key", int64(5))},
		{name: "root, with a wrong key and a jid",
			load: as("root", "wrong", "jid", "20260101000000000002")},
		{name: "root, with a wrong key and no jid", load: as("root", "wrong", "jid", absent)},
		{name: "root, with a wrong key, to nobody", load: as("root", "wrong", "tgt", "nosuch")},
		{name: "somebody unknown, with root's key", load: as("somebody", "root")},
		{name: "somebody unknown, with no key of his", load: as("somebody", "wrong")},
		{name: "somebody unknown, with carol's key", load: as("somebody", "carol")},
		{name: "carol, what she may", load: as("carol", "carol")},
		{name: "carol, what she may anywhere",
			load: as("carol", "carol", "tgt", "*", "fun", "test.version")},
		{name: "carol, what she may on web-a",
			load: as("carol", "carol", "fun", "network.interfaces"),
			ours: confined("carol", "network.interfaces", "[]")},
		{name: "carol, what she may on web-a only",
			load: as("carol", "carol", "fun", "network.interfaces", "tgt", "web-*")},
		{name: "carol, on web-b", load: as("carol", "carol", "fun", "network.interfaces", "tgt",
			"web-b")},
		{name: "carol, what she may not", load: as("carol", "carol", "fun", "cmd.run", "arg",
			[]any{"id"})},
		{name: "carol, what she may not, with a jid",
			load: as("carol", "carol", "fun", "cmd.run", "arg", []any{"id"}, "jid",
				"20260101000000000003")},
		{name: "carol, find_job", load: as("carol", "carol", "fun", "saltutil.find_job", "arg",
			[]any{"20260101000000000001"})},
		{name: "carol, arguments that she may", load: as("carol", "carol", "fun", "test_arg.args",
			"arg", []any{"one", dict("__kwarg__", true, "a", int64(1))})},
		{name: "carol, arguments that she may not",
			load: as("carol", "carol", "fun", "test_arg.args", "arg",
				[]any{"two", dict("__kwarg__", true, "a", int64(1))})},
		{name: "carol, one function of two that she may",
			load: as("carol", "carol", "fun", []any{"test.ping", "cmd.run"}, "arg",
				[]any{[]any{}, []any{"id"}}),
			ours: `{error: {message: Authorization error occurred., name: AuthorizationError}}
salt/job/error {"arg":[[],["id"]],"cmd":"publish","error":{"message":"Authorization error occurred.","name":"AuthorizationError"},"fun":["test.ping","cmd.run"],"jid":"","kwargs":{"delimiter":":","show_jid":false,"show_timeout":true},"ret":"","tgt":"web-a","tgt_type":"glob","user":"carol"}`},
		{name: "carol, to nobody", load: as("carol", "carol", "tgt", "nosuch")},
		{name: "carol, with root's key", load: as("carol", "root", "fun", "cmd.run", "arg",
			[]any{"id"})},
		{name: "carol, with dave's key", load: as("carol", "nobodyinhere")},
		{name: "carol claims to be root", load: as("root", "carol", "fun", "grains.items"),
			ours: denied + "\n" + refusedEvent("grains.items", "root")},
		{name: "carol claims to be root with sudo",
			load: as("sudo_root", "carol", "fun", "grains.items"),
			ours: denied + "\n" + refusedEvent("grains.items", "sudo_root")},
		{name: "carol claims to be herself with sudo",
			load: as("sudo_carol", "carol", "fun", "grains.items"),
			ours: denied + "\n" + refusedEvent("grains.items", "sudo_carol")},
		{name: "somebody with an empty list", load: as("nobodyinhere", "nobodyinhere")},
		{name: "root for a sudoer", load: as("sudo_carol", "root", "fun", "grains.items")},
		{name: "a sudoer with a wrong key", load: as("sudo_carol", "wrong")},

		{name: "a user on the blacklist", load: as("eve", "root")},
		{name: "a user on the blacklist with a wrong key", load: as("eve", "wrong")},
		{name: "a user on the blacklist by pattern", load: as("dev9", "root")},
		{name: "root, a function on the blacklist", load: jobOf("fun", "cmd.script")},
		{name: "root, a function on the blacklist by pattern",
			load: jobOf("fun", "cmd.script_retcode", "jid", "20260101000000000004")},
		{name: "root, one of several functions on the blacklist",
			load: jobOf("fun", []any{"test.ping", "cmd.script"}, "arg", []any{[]any{}, []any{}})},
		{name: "a wrong key and a function on the blacklist",
			load: as("root", "wrong", "fun", "cmd.script")},

		{name: "no user", load: jobOf("user", absent)},
		{name: "no fun", load: jobOf("fun", absent)},
		{name: "no tgt", load: jobOf("tgt", absent)},
		{name: "no arg", load: jobOf("arg", absent)},
		{name: "no ret", load: jobOf("ret", absent),
			ours: "Some exception handling minion payload"},
		{name: "no tgt_type", load: jobOf("tgt_type", absent)},
		{name: "kwargs are a list", load: jobOf("kwargs", []any{})},
	}
}

// refusedEvent is our event for an order without a jid that a user may not give.
func refusedEvent(fun, user string) string {
	return `salt/job/error {"arg":[],"cmd":"publish","error":{"message":"Authentication error occurred.","name":"AuthenticationError"},"fun":"` + fun +
		`","jid":"","kwargs":{"delimiter":":","show_jid":false,"show_timeout":true},"ret":"","tgt":"web-a","tgt_type":"glob","user":"` + user + `"}`
}

// confined is our answer to an order to web-a by a user with rights on it alone: the id is sent,
// not the target.
func confined(user, fun, arg string) string {
	return `{enc: clear, load: {jid: JID, minions: [web-a], missing: []}}
salt/job/JID/new {"arg":` + arg + `,"fun":"` + fun + `","jid":"JID","minions":["web-a"],"missing":[],"tgt":"web-a","tgt_type":"glob","user":"` + user + `"}
salt/job/JID/publish {"arg":` + arg + `,"fun":"` + fun + `","jid":"JID","ret":"","tgt":["web-a"],"tgt_type":"list","user":"` + user + `"}`
}

// Our answers if Salt's master runs anything, or dies.
const (
	noKey    = `{error: {message: Authentication failure of type "user" occurred, name: UserAuthenticationError}}`
	noRights = `{error: {message: Authentication failure of type "user" occurred for user carol., name: UserAuthenticationError}}`
	started  = `{jid: JID, tag: salt/run/JID}`
)

func noWheel(user string) string {
	return `{data: {fun: wheel.nosuch.fun, jid: JID, return: Exception occurred in wheel nosuch.fun: CommandExecutionError: 'nosuch.fun' is not available., success: false, tag: salt/wheel/JID, user: ` + user + `}, tag: salt/wheel/JID}
salt/wheel/JID/ret {"fun":"nosuch.fun","fun_args":[],"jid":"JID","retcode":254,"return":"'nosuch.fun' is not available.","success":false}`
}

func listed(user string) string {
	return `{data: {fun: wheel.key.list_all, jid: JID, return: {LOCAL, minions: [web-a, web-b], minions_denied: [], minions_pre: [], minions_rejected: []}, success: true, tag: salt/wheel/JID, user: ` + user + `}, tag: salt/wheel/JID}
salt/wheel/JID/new {"fun":"wheel.key.list_all","fun_args":[],"jid":"JID","user":"` + user + `"}
salt/wheel/JID/ret {"fun":"wheel.key.list_all","fun_args":[],"jid":"JID","return":{"LOCAL,"minions":["web-a","web-b"],"minions_denied":[],"minions_pre":[],"minions_rejected":[]},"success":true,"user":"` + user + `"}`
}

func runOrders() []ordered {
	runner := func(pairs ...any) value.Map {
		return setIn(dict("cmd", "runner", "fun", "test.arg", "kwarg",
			dict("arg", []any{"abc"}, "kwarg", dict("k", "v")), "user", "root", "key", "KEY:root"),
			pairs...)
	}
	wheel := func(pairs ...any) value.Map {
		return setIn(dict("cmd", "wheel", "fun", "key.list_all", "user", "root", "key", "KEY:root"),
			pairs...)
	}
	return []ordered{
		{name: "runner", load: runner(), ret: true},
		{name: "runner with parameters by name", load: runner("fun", "test.metasyntactic", "kwarg",
			dict("locality", "us")), ret: true},
		{name: "runner without kwarg", load: runner("fun", "test.metasyntactic", "kwarg", absent),
			ret: true},
		{name: "runner of somebody with root's key", load: runner("user", "somebody"), ret: true},
		{name: "runner for a sudoer", load: runner("user", "sudo_carol"), ret: true},
		{name: "runner without a user", load: runner("user", absent), ret: true},
		{name: "runner, wrong key", load: runner("key", "KEY:wrong")},
		{name: "runner, no key", load: runner("key", absent)},
		{name: "runner of carol", load: runner("user", "carol", "key", "KEY:carol"), ret: true,
			ours: noRights},
		{name: "runner of carol as root", load: runner("key", "KEY:carol"), ret: true, ours: noKey},
		{name: "runner of carol as a sudoer", load: runner("user", "sudo_x", "key", "KEY:carol"),
			ret: true, ours: noKey},
		{name: "runner with a key of carol's and no user",
			load: runner("user", absent, "key", "KEY:carol"), ret: true, ours: noKey},
		{name: "runner of somebody with an empty list",
			load: runner("user", "nobodyinhere", "key", "KEY:nobodyinhere")},
		{name: "runner without fun", load: runner("fun", absent)},
		{name: "runner that there is not", load: runner("fun", "nosuch.fun"), ret: true, silent: true, ours: started + `
salt/run/JID/ret {"fun":"nosuch.fun","fun_args":["abc",{"k":"v"}],"jid":"JID","retcode":254,"return":"'nosuch.fun' is not available.","success":false}`},
		{name: "runner without a dot", load: runner("fun", "nodots"), ret: true, silent: true, ours: started + `
salt/run/JID/ret {"fun":"nodots","fun_args":["abc",{"k":"v"}],"jid":"JID","retcode":254,"return":"'nodots' is not available.","success":false}`},
		{name: "runner with a parameter that there is not", load: runner("fun", "test.metasyntactic", "kwarg", dict("nosuch", "x")), ret: true, silent: true, ours: started + `
salt/run/JID/ret {"fun":"test.metasyntactic","fun_args":[{"locality":"us","nosuch":"x"}],"jid":"JID","retcode":254,"return":"The following keyword argument is not valid: nosuch=x","success":false}`},
		{name: "wheel", load: wheel(), ours: listed("root")},
		{name: "wheel of somebody with root's key", load: wheel("user", "somebody"),
			ours: listed("somebody")},
		{name: "wheel, wrong key", load: wheel("key", "KEY:wrong")},
		{name: "wheel, no key", load: wheel("key", absent)},
		{name: "wheel of carol", load: wheel("user", "carol", "key", "KEY:carol"), ours: noRights},
		{name: "wheel of carol as root", load: wheel("key", "KEY:carol"), ours: noKey},
		{name: "wheel that there is not", load: wheel("fun", "nosuch.fun"), ours: noWheel("root")},
		{name: "wheel without fun", load: wheel("fun", absent)},
	}
}

func eauthOrders() []ordered {
	// Runner and wheel take the credentials at top level.
	eauth := func(cmd, user, fun string, pairs ...any) value.Map {
		return setIn(dict("cmd", cmd, "fun", fun, "eauth", "auto", "username", user, "password",
			"pw-secret"), pairs...)
	}
	token := func(cmd, user, fun string, pairs ...any) value.Map {
		return setIn(dict("cmd", cmd, "fun", fun, "token", "TOKEN:"+user), pairs...)
	}
	both := func(args []any, kwargs value.Map) value.Map {
		return dict("arg", args, "kwarg",
			kwargs)
	}
	var out []ordered
	for _, by := range []struct {
		name string
		make func(user string, pairs ...any) value.Map
	}{{"eauth", byEauth}, {"token", byToken}} {
		out = append(out, []ordered{
			{name: by.name + ": what alice may", load: by.make("alice")},
			{name: by.name + ": what alice may on web-a",
				load: by.make("alice", "fun", "network.interfaces"),
				ours: confined("alice", "network.interfaces", "[]")},
			{name: by.name + ": what alice may on web-a only",
				load: by.make("alice", "fun", "network.interfaces", "tgt", "*")},
			{name: by.name + ": arguments that alice may",
				load: by.make("alice", "fun", "state.sls", "arg",
					[]any{"app", dict("__kwarg__", true, "saltenv", "base")}),
				ours: confined("alice", "state.sls",
					`["app",{"__kwarg__":true,"saltenv":"base"}]`)},
			{name: by.name + ": arguments that alice may not",
				load: by.make("alice", "fun", "state.sls", "arg",
					[]any{"top", dict("__kwarg__", true, "saltenv", "base")})},
			{name: by.name + ": what alice may not",
				load: by.make("alice", "fun", "cmd.run", "arg", []any{"id"})},
			{name: by.name + ": what alice may not, with a jid",
				load: by.make("alice", "fun", "cmd.run", "arg", []any{"id"}, "jid",
					"20260101000000000005")},
			{name: by.name + ": find_job", load: by.make("alice", "fun", "saltutil.find_job", "arg",
				[]any{"20260101000000000001"})},
			{name: by.name + ": somebody whom only * means",
				load: by.make("zed", "fun", "test.version")},
			{name: by.name + ": somebody whom only * means, more", load: by.make("zed")},
			{name: by.name + ": bob may run, not order", load: by.make("bob")},
			{name: by.name + ": nobody", load: by.make("alice", "tgt", "nosuch")},
			{name: by.name + ": a user of the load on the blacklist",
				load: by.make("alice", "user", "eve")},
			{name: by.name + ": a function on the blacklist",
				load: by.make("alice", "fun", "test.exception_with")},
		}...)
	}
	for _, by := range []struct {
		name string
		make func(cmd, user, fun string, pairs ...any) value.Map
	}{{"eauth", eauth}, {"token", token}} {
		out = append(out, []ordered{
			{name: by.name + ": runner of bob", load: by.make("runner", "bob", "test.arg", "kwarg",
				both([]any{"x"}, dict("k", "v"))), ret: true},
			{name: by.name + ": runner of bob, by name",
				load: by.make("runner", "bob", "test.metasyntactic", "kwarg",
					dict("locality", "us")), ret: true},
			{name: by.name + ": runner of joe's module",
				load: by.make("runner", "joe", "test.metasyntactic"), ret: true},
			{name: by.name + ": runner not of joe's module",
				load: by.make("runner", "joe", "manage.up")},
			{name: by.name + ": runner not of joe's functions",
				load: by.make("runner", "joe", "jobs.last_run")},
			{name: by.name + ": runner of sue's functions",
				load: by.make("runner", "sue", "test.metasyntactic"), ret: true},
			{name: by.name + ": runner not of sue's functions",
				load: by.make("runner", "sue", "manage.up")},
			{name: by.name + ": runner of alice", load: by.make("runner", "alice", "test.arg")},
			{name: by.name + ": runner of somebody whom only * means",
				load: by.make("runner", "zed", "test.arg")},
			{name: by.name + ": runner without a dot", load: by.make("runner", "bob", "nodots")},
			{name: by.name + ": runner with two dots", load: by.make("runner", "bob", "a.b.c")},
			{name: by.name + ": wheel of bob", load: by.make("wheel", "bob", "key.list_all")},
			{name: by.name + ": wheel of bob with a parameter",
				load: by.make("wheel", "bob", "key.list", "match", "accepted")},
			{name: by.name + ": wheel of bob, arg and kwarg",
				load: by.make("wheel", "bob", "key.list", "arg", []any{"accepted"}, "kwarg",
					dict())},
			{name: by.name + ": wheel of joe", load: by.make("wheel", "joe", "key.list_all")},
			{name: by.name + ": wheel of sue", load: by.make("wheel", "sue", "key.list_all")},
			{name: by.name + ": wheel not of sue's",
				load: by.make("wheel", "sue", "key.finger", "match", "*")},
			{name: by.name + ": wheel of alice", load: by.make("wheel", "alice", "key.list_all")},
			{name: by.name + ": wheel without a dot", load: by.make("wheel", "bob", "nodots")},
			{name: by.name + ": wheel that there is not",
				load: by.make("wheel", "bob", "nosuch.fun"), ours: noWheel("bob")},
		}...)
	}
	return append(out, []ordered{
		{name: "eauth: a back end that is not enabled",
			load: byEauth("alice", "kwargs", dict("eauth", "pam", "username", "alice", "password",
				"pw-secret"))},
		{name: "eauth: a back end that there is not",
			load: byEauth("alice", "kwargs",
				dict("eauth", "nosuch", "username", "alice", "password", "pw-secret"))},
		{name: "eauth: no password", load: byEauth("alice", "kwargs",
			dict("eauth", "auto", "username", "alice"))},
		{name: "eauth at top level is not looked at",
			load: jobOf("key", absent, "eauth", "auto", "username", "alice", "password",
				"pw-secret")},
		{name: "token that is none", load: byToken("alice", "kwargs",
			dict("token", strings.Repeat("0", 64)))},
		{name: "token that is empty", load: byToken("alice", "kwargs", dict("token", ""))},
		{name: "runner: a back end that is not enabled",
			load: eauth("runner", "bob", "test.arg", "eauth", "pam")},
		{name: "runner: no username", load: eauth("runner", "bob", "test.arg", "eauth", "pam",
			"username", absent)},
		{name: "runner: token that is none",
			load: token("runner", "bob", "test.arg", "token", strings.Repeat("0", 64))},
		{name: "wheel: a back end that is not enabled",
			load: eauth("wheel", "bob", "key.list_all", "eauth", "pam")},
		{name: "wheel: token that is none", load: token("wheel", "bob", "key.list_all", "token",
			strings.Repeat("0", 64))},
		{name: "mk_token", load: dict("cmd", "mk_token", "eauth", "auto", "username", "alice",
			"password", "pw-secret")},
		{name: "mk_token with an age", load: dict("cmd", "mk_token", "eauth", "auto", "username",
			"alice", "password", "pw-secret", "token_expire", int64(60))},
		{name: "mk_token with an age that is not up to bob",
			load: dict("cmd", "mk_token", "eauth", "auto", "username", "bob", "password",
				"pw-secret", "token_expire", int64(60))},
		{name: "mk_token, a back end that is not enabled",
			load: dict("cmd", "mk_token", "eauth", "pam", "username", "alice", "password",
				"pw-secret")},
		{name: "mk_token, nothing", load: dict("cmd", "mk_token")},
		{name: "mk_token, no password", load: dict("cmd", "mk_token", "eauth", "auto", "username",
			"alice")},
		{name: "get_token", load: dict("cmd", "get_token", "token", "TOKEN:alice")},
		{name: "get_token, unknown", load: dict("cmd", "get_token", "token",
			strings.Repeat("0", 64))},
		{name: "get_token, nothing", load: dict("cmd", "get_token")},
		{name: "get_token, empty", load: dict("cmd", "get_token", "token", "")},
	}...)
}

func sudoOrders() []ordered {
	return []ordered{
		{name: "root", load: jobOf()},
		{name: "nobody", load: jobOf("tgt", "nosuch")},
		{name: "root for a sudoer, what she may", load: as("sudo_carol", "root")},
		{name: "root for a sudoer, what she may not",
			load: as("sudo_carol", "root", "fun", "grains.items")},
		{name: "root for a sudoer without rights", load: as("sudo_mallory", "root")},
		{name: "carol for a sudoer", load: as("sudo_carol", "carol"),
			ours: `{error: {message: Authentication error occurred., name: AuthenticationError}}` +
				"\n" + refusedEvent("test.ping", "sudo_carol")},
		{name: "carol", load: as("carol", "carol", "tgt", "*")},
		{name: "carol, to nobody what she may", load: as("carol", "carol", "tgt", "nosuch")},
		{name: "auth_list that allows", load: jobOf("kwargs",
			dict("auth_list", []any{"test.ping"}))},
		{name: "auth_list that does not",
			load: jobOf("kwargs", dict("auth_list", []any{"grains.items"}))},
		{name: "auth_list that is empty", load: jobOf("kwargs", dict("auth_list", []any{}))},
	}
}
