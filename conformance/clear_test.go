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

	"clustermaster/e2e"
	"clustermaster/wire"
)

// clearOptions let users order on the request port. Salt's master writes keys for users that the system does not know only without
// client_acl_verify.
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

// An ordered is one order that goes to both masters.
type ordered struct {
	name string
	load wire.Map
	// ours is what ours says and does where that differs on purpose; the reasons stand in docs/differences.md.
	ours string
	// ret says that the call's ret event is waited for. In the silent ones Salt's dies without it.
	ret, silent bool
}

// setIn returns a load with other values of some keys; absent takes a key out.
func setIn(load wire.Map, pairs ...any) wire.Map {
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

// jobOf is what `salt web-a test.ping` of 3008 sends, changed.
func jobOf(pairs ...any) wire.Map {
	return setIn(dict("cmd", "publish", "tgt", "web-a", "fun", "test.ping", "arg", []any{}, "key", "KEY:root", "tgt_type", "glob", "ret", "", "jid", "",
		"kwargs", dict("show_timeout", true, "show_jid", false, "delimiter", ":"), "user", "root"), pairs...)
}

// as are the pairs that make a publish of somebody with a key.
func as(user, keyOf string, pairs ...any) wire.Map {
	return jobOf(append([]any{"user", user, "key", "KEY:" + keyOf}, pairs...)...)
}

// with eauth or a token the credentials lie in kwargs, and the key is not there.
func byEauth(user string, pairs ...any) wire.Map {
	return jobOf(append([]any{"key", absent, "user", "mallory", "kwargs", dict("eauth", "auto", "username", user, "password", "pw-secret")}, pairs...)...)
}

func byToken(user string, pairs ...any) wire.Map {
	return jobOf(append([]any{"key", absent, "user", "mallory", "kwargs", dict("token", "TOKEN:"+user)}, pairs...)...)
}

func keyOrders() []ordered {
	kwargs := func(pairs ...any) wire.Map { return jobOf("kwargs", dict(pairs...)) }
	const denied = `{error: {message: Authentication error occurred., name: AuthenticationError}}`
	return []ordered{
		{name: "root", load: jobOf()},
		{name: "root, all", load: jobOf("tgt", "*")},
		{name: "a list with one missing", load: jobOf("tgt", []any{"web-a", "nosuch"}, "tgt_type", "list")},
		{name: "a list as text", load: jobOf("tgt", "web-b,nosuch,web-a", "tgt_type", "list")},
		{name: "a regular expression", load: jobOf("tgt", "web-a$", "tgt_type", "pcre")},
		{name: "compound", load: jobOf("tgt", "web-* and not web-b", "tgt_type", "compound")},
		{name: "a grain with a delimiter", load: jobOf("tgt", "os|Plan*", "tgt_type", "grain", "kwargs", dict("delimiter", "|"))},
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
		{name: "arguments", load: jobOf("fun", "test.arg", "arg", []any{"x", int64(1), nil, true, 1.5, []any{"l"}, dict("m", int64(2)), dict("__kwarg__", true, "k", "v")})},
		{name: "several functions", load: jobOf("fun", []any{"test.ping", "test.echo"}, "arg", []any{[]any{}, []any{"x"}})},
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
		{name: "kwargs that minions never see", load: kwargs("gather_job_timeout", int64(3), "raw", true, "yield_pub_data", true, "nocache", false, "timeout", int64(2), "x", "y")},
		{name: "auth_list that is empty, of the master's user", load: kwargs("auth_list", []any{})},
		{name: "auth_list of the master's user that allows", load: kwargs("auth_list", []any{"test.ping"})},
		{name: "auth_list of the master's user that does not", load: kwargs("auth_list", []any{"grains.items"})},
		{name: "auth_list of another user", load: as("carol", "carol", "kwargs", dict("auth_list", []any{".*"}), "fun", "grains.items")},

		{name: "root, with another key", load: as("root", "wrong")},
		{name: "root, with an empty key", load: jobOf("key", "")},
		{name: "root, without a key", load: jobOf("key", absent)},
		{name: "root, with a key that is a number", load: jobOf("key", int64(5))},
		{name: "root, with a wrong key and a jid", load: as("root", "wrong", "jid", "20260101000000000002")},
		{name: "root, with a wrong key and no jid", load: as("root", "wrong", "jid", absent)},
		{name: "root, with a wrong key, to nobody", load: as("root", "wrong", "tgt", "nosuch")},
		{name: "somebody unknown, with root's key", load: as("somebody", "root")},
		{name: "somebody unknown, with no key of his", load: as("somebody", "wrong")},
		{name: "somebody unknown, with carol's key", load: as("somebody", "carol")},
		{name: "carol, what she may", load: as("carol", "carol")},
		{name: "carol, what she may anywhere", load: as("carol", "carol", "tgt", "*", "fun", "test.version")},
		{name: "carol, what she may on web-a", load: as("carol", "carol", "fun", "network.interfaces")},
		{name: "carol, what she may on web-a only", load: as("carol", "carol", "fun", "network.interfaces", "tgt", "web-*")},
		{name: "carol, on web-b", load: as("carol", "carol", "fun", "network.interfaces", "tgt", "web-b")},
		{name: "carol, what she may not", load: as("carol", "carol", "fun", "cmd.run", "arg", []any{"id"})},
		{name: "carol, what she may not, with a jid", load: as("carol", "carol", "fun", "cmd.run", "arg", []any{"id"}, "jid", "20260101000000000003")},
		{name: "carol, find_job", load: as("carol", "carol", "fun", "saltutil.find_job", "arg", []any{"20260101000000000001"})},
		{name: "carol, arguments that she may", load: as("carol", "carol", "fun", "test_arg.args", "arg", []any{"one", dict("__kwarg__", true, "a", int64(1))})},
		{name: "carol, arguments that she may not", load: as("carol", "carol", "fun", "test_arg.args", "arg", []any{"two", dict("__kwarg__", true, "a", int64(1))})},
		{name: "carol, one function of two that she may", load: as("carol", "carol", "fun", []any{"test.ping", "cmd.run"}, "arg", []any{[]any{}, []any{"id"}}),
			ours: `{error: {message: Authorization error occurred., name: AuthorizationError}}
salt/job/error {"arg":[[],["id"]],"cmd":"publish","error":{"message":"Authorization error occurred.","name":"AuthorizationError"},"fun":["test.ping","cmd.run"],"jid":"","kwargs":{"delimiter":":","show_jid":false,"show_timeout":true},"ret":"","tgt":"web-a","tgt_type":"glob","user":"carol"}`},
		{name: "carol, to nobody", load: as("carol", "carol", "tgt", "nosuch")},
		{name: "carol, with root's key", load: as("carol", "root", "fun", "cmd.run", "arg", []any{"id"})},
		{name: "carol, with dave's key", load: as("carol", "nobodyinhere")},
		{name: "carol claims to be root", load: as("root", "carol", "fun", "grains.items"), ours: denied + "\n" + refusedEvent("grains.items", "root")},
		{name: "carol claims to be root with sudo", load: as("sudo_root", "carol", "fun", "grains.items"), ours: denied + "\n" + refusedEvent("grains.items", "sudo_root")},
		{name: "carol claims to be herself with sudo", load: as("sudo_carol", "carol", "fun", "grains.items"), ours: denied + "\n" + refusedEvent("grains.items", "sudo_carol")},
		{name: "somebody with an empty list", load: as("nobodyinhere", "nobodyinhere")},
		{name: "root for a sudoer", load: as("sudo_carol", "root", "fun", "grains.items")},
		{name: "a sudoer with a wrong key", load: as("sudo_carol", "wrong")},

		{name: "a user on the blacklist", load: as("eve", "root")},
		{name: "a user on the blacklist with a wrong key", load: as("eve", "wrong")},
		{name: "a user on the blacklist by pattern", load: as("dev9", "root")},
		{name: "root, a function on the blacklist", load: jobOf("fun", "cmd.script")},
		{name: "root, a function on the blacklist by pattern", load: jobOf("fun", "cmd.script_retcode", "jid", "20260101000000000004")},
		{name: "root, one of several functions on the blacklist", load: jobOf("fun", []any{"test.ping", "cmd.script"}, "arg", []any{[]any{}, []any{}})},
		{name: "a wrong key and a function on the blacklist", load: as("root", "wrong", "fun", "cmd.script")},

		{name: "no user", load: jobOf("user", absent)},
		{name: "no fun", load: jobOf("fun", absent)},
		{name: "no tgt", load: jobOf("tgt", absent)},
		{name: "no arg", load: jobOf("arg", absent)},
		{name: "no ret", load: jobOf("ret", absent), ours: "Some exception handling minion payload"},
		{name: "no tgt_type", load: jobOf("tgt_type", absent)},
		{name: "kwargs are a list", load: jobOf("kwargs", []any{})},
	}
}

// refusedEvent is ours of an order without a jid that a user may not give.
func refusedEvent(fun, user string) string {
	return `salt/job/error {"arg":[],"cmd":"publish","error":{"message":"Authentication error occurred.","name":"AuthenticationError"},"fun":"` + fun +
		`","jid":"","kwargs":{"delimiter":":","show_jid":false,"show_timeout":true},"ret":"","tgt":"web-a","tgt_type":"glob","user":"` + user + `"}`
}

// What ours answers where Salt's runs anything, or dies.
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
	runner := func(pairs ...any) wire.Map {
		return setIn(dict("cmd", "runner", "fun", "test.arg", "kwarg", dict("arg", []any{"abc"}, "kwarg", dict("k", "v")), "user", "root", "key", "KEY:root"), pairs...)
	}
	wheel := func(pairs ...any) wire.Map {
		return setIn(dict("cmd", "wheel", "fun", "key.list_all", "user", "root", "key", "KEY:root"), pairs...)
	}
	return []ordered{
		{name: "runner", load: runner(), ret: true},
		{name: "runner with parameters by name", load: runner("fun", "test.metasyntactic", "kwarg", dict("locality", "us")), ret: true},
		{name: "runner without kwarg", load: runner("fun", "test.metasyntactic", "kwarg", absent), ret: true},
		{name: "runner of somebody with root's key", load: runner("user", "somebody"), ret: true},
		{name: "runner for a sudoer", load: runner("user", "sudo_carol"), ret: true},
		{name: "runner without a user", load: runner("user", absent), ret: true},
		{name: "runner, wrong key", load: runner("key", "KEY:wrong")},
		{name: "runner, no key", load: runner("key", absent)},
		{name: "runner of carol", load: runner("user", "carol", "key", "KEY:carol"), ret: true, ours: noRights},
		{name: "runner of carol as root", load: runner("key", "KEY:carol"), ret: true, ours: noKey},
		{name: "runner of carol as a sudoer", load: runner("user", "sudo_x", "key", "KEY:carol"), ret: true, ours: noKey},
		{name: "runner with a key of carol's and no user", load: runner("user", absent, "key", "KEY:carol"), ret: true, ours: noKey},
		{name: "runner of somebody with an empty list", load: runner("user", "nobodyinhere", "key", "KEY:nobodyinhere")},
		{name: "runner without fun", load: runner("fun", absent)},
		{name: "runner that there is not", load: runner("fun", "nosuch.fun"), ret: true, silent: true, ours: started + `
salt/run/JID/ret {"fun":"nosuch.fun","fun_args":["abc",{"k":"v"}],"jid":"JID","retcode":254,"return":"'nosuch.fun' is not available.","success":false}`},
		{name: "runner without a dot", load: runner("fun", "nodots"), ret: true, silent: true, ours: started + `
salt/run/JID/ret {"fun":"nodots","fun_args":["abc",{"k":"v"}],"jid":"JID","retcode":254,"return":"'nodots' is not available.","success":false}`},
		{name: "runner with a parameter that there is not", load: runner("fun", "test.metasyntactic", "kwarg", dict("nosuch", "x")), ret: true, silent: true, ours: started + `
salt/run/JID/ret {"fun":"test.metasyntactic","fun_args":[{"locality":"us","nosuch":"x"}],"jid":"JID","retcode":254,"return":"The following keyword argument is not valid: nosuch=x","success":false}`},
		{name: "wheel", load: wheel(), ours: listed("root")},
		{name: "wheel of somebody with root's key", load: wheel("user", "somebody"), ours: listed("somebody")},
		{name: "wheel, wrong key", load: wheel("key", "KEY:wrong")},
		{name: "wheel, no key", load: wheel("key", absent)},
		{name: "wheel of carol", load: wheel("user", "carol", "key", "KEY:carol"), ours: noRights},
		{name: "wheel of carol as root", load: wheel("key", "KEY:carol"), ours: noKey},
		{name: "wheel that there is not", load: wheel("fun", "nosuch.fun"), ours: noWheel("root")},
		{name: "wheel without fun", load: wheel("fun", absent)},
	}
}

func eauthOrders() []ordered {
	// with has the credentials at top level, as runner and wheel have them.
	eauth := func(cmd, user, fun string, pairs ...any) wire.Map {
		return setIn(dict("cmd", cmd, "fun", fun, "eauth", "auto", "username", user, "password", "pw-secret"), pairs...)
	}
	token := func(cmd, user, fun string, pairs ...any) wire.Map {
		return setIn(dict("cmd", cmd, "fun", fun, "token", "TOKEN:"+user), pairs...)
	}
	both := func(args []any, kwargs wire.Map) wire.Map { return dict("arg", args, "kwarg", kwargs) }
	var out []ordered
	for _, by := range []struct {
		name string
		make func(user string, pairs ...any) wire.Map
	}{{"eauth", byEauth}, {"token", byToken}} {
		out = append(out, []ordered{
			{name: by.name + ": what alice may", load: by.make("alice")},
			{name: by.name + ": what alice may on web-a", load: by.make("alice", "fun", "network.interfaces")},
			{name: by.name + ": what alice may on web-a only", load: by.make("alice", "fun", "network.interfaces", "tgt", "*")},
			{name: by.name + ": arguments that alice may", load: by.make("alice", "fun", "state.sls", "arg", []any{"app", dict("__kwarg__", true, "saltenv", "base")})},
			{name: by.name + ": arguments that alice may not", load: by.make("alice", "fun", "state.sls", "arg", []any{"top", dict("__kwarg__", true, "saltenv", "base")})},
			{name: by.name + ": what alice may not", load: by.make("alice", "fun", "cmd.run", "arg", []any{"id"})},
			{name: by.name + ": what alice may not, with a jid", load: by.make("alice", "fun", "cmd.run", "arg", []any{"id"}, "jid", "20260101000000000005")},
			{name: by.name + ": find_job", load: by.make("alice", "fun", "saltutil.find_job", "arg", []any{"20260101000000000001"})},
			{name: by.name + ": somebody whom only * means", load: by.make("zed", "fun", "test.version")},
			{name: by.name + ": somebody whom only * means, more", load: by.make("zed")},
			{name: by.name + ": bob may run, not order", load: by.make("bob")},
			{name: by.name + ": nobody", load: by.make("alice", "tgt", "nosuch")},
			{name: by.name + ": a user of the load on the blacklist", load: by.make("alice", "user", "eve")},
			{name: by.name + ": a function on the blacklist", load: by.make("alice", "fun", "test.exception_with")},
		}...)
	}
	for _, by := range []struct {
		name string
		make func(cmd, user, fun string, pairs ...any) wire.Map
	}{{"eauth", eauth}, {"token", token}} {
		out = append(out, []ordered{
			{name: by.name + ": runner of bob", load: by.make("runner", "bob", "test.arg", "kwarg", both([]any{"x"}, dict("k", "v"))), ret: true},
			{name: by.name + ": runner of bob, by name", load: by.make("runner", "bob", "test.metasyntactic", "kwarg", dict("locality", "us")), ret: true},
			{name: by.name + ": runner of joe's module", load: by.make("runner", "joe", "test.metasyntactic"), ret: true},
			{name: by.name + ": runner not of joe's module", load: by.make("runner", "joe", "manage.up")},
			{name: by.name + ": runner not of joe's functions", load: by.make("runner", "joe", "jobs.last_run")},
			{name: by.name + ": runner of sue's functions", load: by.make("runner", "sue", "test.metasyntactic"), ret: true},
			{name: by.name + ": runner not of sue's functions", load: by.make("runner", "sue", "manage.up")},
			{name: by.name + ": runner of alice", load: by.make("runner", "alice", "test.arg")},
			{name: by.name + ": runner of somebody whom only * means", load: by.make("runner", "zed", "test.arg")},
			{name: by.name + ": runner without a dot", load: by.make("runner", "bob", "nodots")},
			{name: by.name + ": runner with two dots", load: by.make("runner", "bob", "a.b.c")},
			{name: by.name + ": wheel of bob", load: by.make("wheel", "bob", "key.list_all")},
			{name: by.name + ": wheel of bob with a parameter", load: by.make("wheel", "bob", "key.list", "match", "accepted")},
			{name: by.name + ": wheel of bob, arg and kwarg", load: by.make("wheel", "bob", "key.list", "arg", []any{"accepted"}, "kwarg", dict())},
			{name: by.name + ": wheel of joe", load: by.make("wheel", "joe", "key.list_all")},
			{name: by.name + ": wheel of sue", load: by.make("wheel", "sue", "key.list_all")},
			{name: by.name + ": wheel not of sue's", load: by.make("wheel", "sue", "key.finger", "match", "*")},
			{name: by.name + ": wheel of alice", load: by.make("wheel", "alice", "key.list_all")},
			{name: by.name + ": wheel without a dot", load: by.make("wheel", "bob", "nodots")},
			{name: by.name + ": wheel that there is not", load: by.make("wheel", "bob", "nosuch.fun"), ours: noWheel("bob")},
		}...)
	}
	return append(out, []ordered{
		{name: "eauth: a back end that is not enabled", load: byEauth("alice", "kwargs", dict("eauth", "pam", "username", "alice", "password", "pw-secret"))},
		{name: "eauth: a back end that there is not", load: byEauth("alice", "kwargs", dict("eauth", "nosuch", "username", "alice", "password", "pw-secret"))},
		{name: "eauth: no password", load: byEauth("alice", "kwargs", dict("eauth", "auto", "username", "alice"))},
		{name: "eauth at top level is not looked at", load: jobOf("key", absent, "eauth", "auto", "username", "alice", "password", "pw-secret")},
		{name: "token that is none", load: byToken("alice", "kwargs", dict("token", strings.Repeat("0", 64)))},
		{name: "token that is empty", load: byToken("alice", "kwargs", dict("token", ""))},
		{name: "runner: a back end that is not enabled", load: eauth("runner", "bob", "test.arg", "eauth", "pam")},
		{name: "runner: no username", load: eauth("runner", "bob", "test.arg", "eauth", "pam", "username", absent)},
		{name: "runner: token that is none", load: token("runner", "bob", "test.arg", "token", strings.Repeat("0", 64))},
		{name: "wheel: a back end that is not enabled", load: eauth("wheel", "bob", "key.list_all", "eauth", "pam")},
		{name: "wheel: token that is none", load: token("wheel", "bob", "key.list_all", "token", strings.Repeat("0", 64))},
		{name: "mk_token", load: dict("cmd", "mk_token", "eauth", "auto", "username", "alice", "password", "pw-secret")},
		{name: "mk_token with an age", load: dict("cmd", "mk_token", "eauth", "auto", "username", "alice", "password", "pw-secret", "token_expire", int64(60))},
		{name: "mk_token with an age that is not up to bob", load: dict("cmd", "mk_token", "eauth", "auto", "username", "bob", "password", "pw-secret", "token_expire", int64(60))},
		{name: "mk_token, a back end that is not enabled", load: dict("cmd", "mk_token", "eauth", "pam", "username", "alice", "password", "pw-secret")},
		{name: "mk_token, nothing", load: dict("cmd", "mk_token")},
		{name: "mk_token, no password", load: dict("cmd", "mk_token", "eauth", "auto", "username", "alice")},
		{name: "get_token", load: dict("cmd", "get_token", "token", "TOKEN:alice")},
		{name: "get_token, unknown", load: dict("cmd", "get_token", "token", strings.Repeat("0", 64))},
		{name: "get_token, nothing", load: dict("cmd", "get_token")},
		{name: "get_token, empty", load: dict("cmd", "get_token", "token", "")},
	}...)
}

// clearMaster is a master that takes orders of users, with two minions that have signed in.
func clearMaster(t *testing.T, k kind, more string) *subject {
	t.Helper()
	m := newMaster(t, k, variant{
		name: "orders", options: clearOptions + more, files: map[string]string{"autosign.conf": "web-*\n", "autoreject.conf": "marker*\n"},
	})
	m.start(t)
	for id, os := range map[string]string{"web-a": "Plan9", "web-b": "Inferno"} { // Salt lists several that have a grain in no order
		c := m.signIn(t, id, 3)
		m.send(t, c.seal(t, c.pillarLoad(t).Set("grains", dict("os", os, "id", id))))
	}
	e2e.Eventually(t, 20*time.Second, "keys are written", func() error { return errors.Join(m.hasKey("root"), m.hasKey("carol"), m.hasKey("nobodyinhere")) })
	m.events = listen(t, t, m)
	return m
}

// hasKey waits for the file of a user's key.
func (m *subject) hasKey(user string) error {
	_, err := os.Stat(m.path("cache", "."+user+"_key"))
	return err
}

// filled puts keys and tokens of this master in the place of their names.
func (m *subject) filled(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case wire.Map:
		out := make(wire.Map, len(v))
		for i, p := range v {
			out[i] = wire.Pair{Key: p.Key, Value: m.filled(t, p.Value)}
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
			token, _ := unpack(t, m.clear(t, 3, dict("cmd", "mk_token", "eauth", "auto", "username", user, "password", "pw-secret"))).(wire.Map)
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

// outcome is what became of an order: the reply, and the events that it led to.
func (m *subject) outcome(t *testing.T, o ordered) string {
	t.Helper()
	load := m.filled(t, o.load)
	mark := m.events.mark()
	reply := unpack(t, m.clear(t, 3, load))
	if o.ret && !(o.silent && m.salt()) { // a call runs on after the reply
		if r, ok := reply.(wire.Map); ok && r.String("tag") != "" {
			_, _ = m.events.find(mark, 20*time.Second, func(h happening) bool { return h.Tag == r.String("tag")+"/ret" })
		}
	}
	m.events.flush(t, m)
	lines := []string{say(t, m, reply)}
	for _, h := range m.events.since(mark, func(h happening) bool {
		return strings.HasPrefix(h.Tag, "salt/job/") || strings.HasPrefix(h.Tag, "salt/run/") || strings.HasPrefix(h.Tag, "salt/wheel/")
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
	text = local.ReplaceAllString(marker.ReplaceAllString(stamped.ReplaceAllString(text, ""), ""), "LOCAL")
	return epoch.ReplaceAllString(tokenText.ReplaceAllString(jids.ReplaceAllString(text, "JID"), "TOKEN"), "EPOCH")
}

// withoutSecrets takes out what Salt's master tells in events.
func withoutSecrets(data map[string]any) {
	for _, secret := range []string{"password", "token"} {
		delete(data, secret)
	}
	if kwargs, ok := data["kwargs"].(map[string]any); ok {
		withoutSecrets(kwargs)
	}
}

// TestClearOrders sends the same orders of users to Salt's master and to ours and compares replies and events.
func TestClearOrders(t *testing.T) {
	if len(kinds()) < 2 {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
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
			same := 0
			for i, o := range mode.orders {
				mine, want := got[ours][i], got[theirs][i]
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

func sudoOrders() []ordered {
	return []ordered{
		{name: "root", load: jobOf()},
		{name: "nobody", load: jobOf("tgt", "nosuch")},
		{name: "root for a sudoer, what she may", load: as("sudo_carol", "root")},
		{name: "root for a sudoer, what she may not", load: as("sudo_carol", "root", "fun", "grains.items")},
		{name: "root for a sudoer without rights", load: as("sudo_mallory", "root")},
		{name: "carol for a sudoer", load: as("sudo_carol", "carol"), ours: `{error: {message: Authentication error occurred., name: AuthenticationError}}` + "\n" + refusedEvent("test.ping", "sudo_carol")},
		{name: "carol", load: as("carol", "carol", "tgt", "*")},
		{name: "carol, to nobody what she may", load: as("carol", "carol", "tgt", "nosuch")},
		{name: "auth_list that allows", load: jobOf("kwargs", dict("auth_list", []any{"test.ping"}))},
		{name: "auth_list that does not", load: jobOf("kwargs", dict("auth_list", []any{"grains.items"}))},
		{name: "auth_list that is empty", load: jobOf("kwargs", dict("auth_list", []any{}))},
	}
}

// secretsAreNotTold looks for passwords, tokens and keys in what ours wrote. Salt's writes some.
func (m *subject) secretsAreNotTold(t *testing.T) {
	t.Helper()
	if m.salt() {
		return
	}
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	key := string(readFile(t, m.path("cache", ".root_key")))
	for _, h := range m.events.seen {
		if text := fmt.Sprint(h); strings.Contains(text, "pw-secret") || strings.Contains(text, key) {
			t.Errorf("a secret in an event: %s", text)
		}
	}
	for _, file := range []string{m.Log, m.Output} {
		if text := string(readFile(t, file)); strings.Contains(text, "pw-secret") || strings.Contains(text, key) || tokenText.MatchString(text) {
			t.Errorf("a secret in %s", file)
		}
	}
}
