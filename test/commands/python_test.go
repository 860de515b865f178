package commands

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// pythonOptions are those of a site with its own runners and wheel modules.
const pythonOptions = `extension_modules: DIR/ext
module_dirs: [DIR/dirs]
runner_dirs: [DIR/own-runners]
reactor:
  - 't/python': [DIR/react/python.sls]
schedule:
  site: {function: site.note, seconds: 3, args: [scheduled]}
`

// pythonFiles are the site's modules and their callers, below DIR.
var pythonFiles = map[string]string{
	"own-runners/site.py": `
import os
import sys
import time

import salt.client
import salt.runner
import salt.utils.event
import salt.wheel
from salt.exceptions import CommandExecutionError


def hello(name, *args, greeting="hello", **kwargs):
    """
    Greet somebody.

    CLI Example:

    .. code-block:: bash

        salt-run site.hello you
    """
    return {"said": f"{greeting} {name}", "args": list(args), "more": kwargs, "id": __opts__["id"]}


def fixed(a, b=2):
    """Add two numbers."""
    return a + b


def talk():
    print("one line")
    print("é", "and", "more")
    sys.stdout.write("no end of line")
    print()
    __jid_event__.fire_event({"message": "half way", "outputter": "pprint"}, "progress")
    return [__jid__ != "", __user__]


def code(number):
    __context__["retcode"] = number
    return "with a retcode"


def returned(number):
    return {"retcode": number, "text": "x"}


def shaped():
    return {"outputter": "txt", "data": {"a": 1}}


def failed_states():
    return {"outputter": "nested", "data": {"m": {"test_|-a_|-a_|-nop": {"result": False}}}}


def fails(text):
    raise CommandExecutionError(text)


def leaves():
    sys.exit(3)


def types():
    return [(1, 2), {"x": 1.5}, None, True, 2**40, "é"]


def others():
    return [__salt__["test.arg"](1, a=2), __salt__["site.fixed"](3), "site.nosuch" in __salt__, sorted(__salt__["manage.up"]())]


def note(text):
    with open(os.path.join(os.path.dirname(__opts__["conf_file"]), "notes"), "a") as out:
        out.write(text + "\n")
    return text


def local(tgt, *funs):
    client = salt.client.get_local_client(__opts__["conf_file"])
    out = {"cmd": client.cmd(tgt, "test.echo", ["x"])}
    out["kwarg"] = client.cmd(tgt, "test.kwarg", kwarg={"a": 1})
    out["iter"] = sorted(list(r)[0] for r in client.cmd_iter(tgt, "test.ping"))
    out["list"] = client.cmd("web-a,web-b", "test.ping", tgt_type="list", full_return=False)
    out["full"] = {k: sorted(v) for k, v in client.cmd(tgt, "test.ping", full_return=True).items()}
    out["several"] = client.cmd(tgt, ["test.ping", "test.echo"], [[], ["two"]])
    out["none"] = client.cmd("nosuch*", "test.ping")
    out["async"] = client.cmd_async(tgt, "test.ping") != ""
    job = client.run_job(tgt, "test.ping")
    out["job"] = sorted(job["minions"])
    out["cli"] = sorted(list(r)[0] for r in client.get_cli_returns(job["jid"], job["minions"], timeout=10))
    for _ in range(100):  # Salt's master keeps a return a moment after its event
        out["cached"] = client.get_cache_returns(job["jid"])
        if len(out["cached"]) == 2:
            break
        time.sleep(0.1)
    return _sorted(out)


def _sorted(value):
    return {k: _sorted(value[k]) for k in sorted(value)} if isinstance(value, dict) else value


def runners():
    client = salt.runner.RunnerClient(__opts__)
    out = {"native": client.cmd("test.arg", ["a", "b=c"], print_event=False)}
    out["own"] = client.cmd("site.fixed", [1], kwarg={"b": 5}, print_event=False)
    full = client.cmd("site.hello", ["full"], print_event=False, full_return=True)
    out["full"] = [sorted(full), full["fun"], full["fun_args"], full["success"]]
    try:
        client.cmd("site.nosuch", [])
    except KeyError as exc:
        out["unknown"] = str(exc)
    started = client.asynchronous("site.note", {"arg": ["by asynchronous"], "kwarg": {}})
    out["asynchronous"] = sorted(started)
    return out


def wheels():
    client = salt.wheel.WheelClient(__opts__)
    out = {"native": client.cmd("key.list", ["acc"], print_event=False)}
    out["own"] = client.cmd("sitewheel.turn", ["left"], kwarg={"by": 90}, print_event=False)
    out["low"] = client.call_func("key.name_match", match="web-*", print_event=False)
    return out


def events():
    with salt.utils.event.get_event("master", sock_dir=__opts__["sock_dir"], opts=__opts__, listen=True) as bus:
        bus.subscribe("my/")
        if not bus.connect_pub(timeout=10):
            return "no bus"
        bus.fire_event({"n": 1, "deep": {"a": [1, None]}}, "my/tag")
        got = bus.get_event(wait=20, tag="my/tag", full=True)
    return [got["tag"], {k: v for k, v in got["data"].items() if k != "_stamp"}]
`,
	"own-runners/error.py":    "def error(name=None, message=''):\n    return ['the site', name]\n",
	"own-runners/broken.py":   "import nosuch_module\n\ndef x():\n    return 1\n",
	"ext/runners/extended.py": "def where():\n    return 'extension_modules'\n",
	"dirs/runners/placed.py":  "def where():\n    return 'module_dirs'\n",
	"dirs/wheel/sitewheel.py": "def turn(way, by=0):\n    return {'way': way, 'by': by, 'list': __opts__['id']}\n",
	"srv/_runners/synced.py":  "def where():\n    '''Say where.'''\n    return 'salt://_runners'\n",
	"srv/_wheel/rolled.py":    "def where():\n    return 'salt://_wheel'\n",
	"react/python.sls":        "note:\n  runner.site.note:\n    - args:\n        text: reacted\n",
	"srv/orch/python.sls": `
call:
  salt.runner:
    - name: site.hello
    - m_name: you
    - kwarg: {name: orchestrated, greeting: hi}
turn:
  salt.wheel:
    - name: sitewheel.turn
    - way: right
    - by: 45
wrong:
  salt.runner:
    - name: site.fails
    - text: as it should
`,
}

// sdbOptions are profiles of sdb, and options whose values they hold.
const sdbOptions = `kept: {driver: jsonfile, path: DIR/sdb.json}
yamls: {driver: yaml, files: [DIR/sdb.yaml]}
env_profile: {driver: env}
overridden: {driver: env}
site_secret: sdb://yamls/secret
site_nested: {list: [sdb://kept/start, plain], deep: {a: 'sdb://yamls/tree:leaf'}}
`

// sdbDriver stores values in a JSON file.
const sdbDriver = `
import json


def _read(profile):
    with open(profile["path"]) as source:
        return json.load(source)


def get(key, profile=None):
    if key == "fails":
        raise ValueError("the driver fails")
    return _read(profile).get(key)


def set_(key, value, profile=None):
    all = _read(profile)
    all[key] = value
    with open(profile["path"], "w") as out:
        json.dump(all, out)
    return True


def delete(key, profile=None):
    all = _read(profile)
    gone = all.pop(key, None) is not None
    with open(profile["path"], "w") as out:
        json.dump(all, out)
    return gone


__func_alias__ = {"set_": "set"}
`

// sdbFiles are the files that sdbOptions name, below DIR.
var sdbFiles = map[string]string{
	"sdb.json": `{"start": "from the start"}`, "sdb.yaml": "secret: s3cret\ntree: {leaf: [1, two]}\n",
	"ext/sdb/jsonfile.py":   sdbDriver,
	"srv/_sdb/jsonfile.py":  sdbDriver,
	"srv/_sdb/synced_db.py": "def get(key, profile=None):\n    return 'synced ' + key\n",
	"pillar/top.sls":        "base:\n  'web-a': [a, sdb]\n  '*': [all]\n",
	"pillar/sdb.sls": `secret: {{ salt['sdb.get']('sdb://yamls/secret') }}
kept: {{ salt['sdb.get']('sdb://kept/start') }}
tree: {{ salt['sdb.get']('sdb://yamls/tree:leaf') }}
option: {{ salt['config.get']('site_secret') }}
nested: {{ salt['config.get']('site_nested:deep:a') }}
none: {{ salt['sdb.get']('sdb://kept/nosuch') }}
literal: {{ salt['sdb.get']('sdb://nosuch/key') }}
hash: {{ salt['sdb.get_or_set_hash']('sdb://kept/start') }}
set: {{ salt['sdb.set']('sdb://kept/by_pillar', 'x') }}
`,
}

// doorOptions are a site's back end of external_auth and module of master_tops.
const doorOptions = `master_tops: {sitetops: {states: [from_tops]}}
`

// eauthOption goes below external_auth.
const eauthOption = `  siteauth:
    alice: [test.ping]
    ops%: [test.echo]
    dora: [testers, {'web-b': [test.version]}]
`

var doorFiles = map[string]string{
	"ext/auth/siteauth.py": `
def auth(username, password):
    return password == "open " + username


def groups(username, **kwargs):
    return ["ops"] if username == "bob" else []


def acl(username, **kwargs):
    return ["test.version"] if username == "carla" else None


def process_acl(auth_list, opts=None):
    return [{"web-*": ["test.echo"]} if entry == "testers" else entry for entry in auth_list]
`,
	"ext/output/lines.py": "def output(data, **kwargs):\n    return f'{len(data)} in {type(data).__name__}: {data!r}'\n",
	"ext/tops/sitetops.py": `
def top(**kwargs):
    states = list(__opts__["master_tops"]["sitetops"]["states"])
    return {"base": states + ["for_" + kwargs["opts"]["id"], "on_" + kwargs["grains"]["kernel"]]}
`,
}

func doorSettings() string {
	return fmt.Sprintf("%s%s%q", doorOptions, eauthOption, doorFiles)
}

func sdbSettings() string {
	var b strings.Builder
	b.WriteString(sdbOptions)
	for _, name := range slices.Sorted(maps.Keys(sdbFiles)) {
		fmt.Fprintf(&b, "%s %q\n", name, sdbFiles[name])
	}
	return b.String()
}

// targetsRunner looks at minions with Salt's own code, as a roster does.
const targetsRunner = `
import salt.roster
import salt.utils.minions


def rostered(tgt, tgt_type="glob"):
    order = {"host": ["id"], "user": {"pillar": "text"}}
    opts = dict(__opts__, roster_order=order)
    return salt.roster.Roster(opts, "cache").targets(tgt, tgt_type)


def matched(tgt, tgt_type="glob"):
    found = salt.utils.minions.CkMinions(__opts__).check_minions(tgt, tgt_type)
    return [sorted(found["minions"]), sorted(found["missing"]), found["ssh_minions"]]


def data(minion):
    name, grains, pillar = salt.utils.minions.get_minion_data(minion, __opts__)
    return [name, grains and grains["id"], pillar and sorted(pillar)]
`

// wheel is a line that calls a wheel function and prints what it returned.
func wheel(args ...string) line {
	return run(append([]string{"salt.cmd", "saltutil.wheel", "--out=json"}, args...)...).
		mask(`(?m)^ *"(_stamp|user)": .*\n|,$`, "")
}

// pythonScenes call the site's functions, and functions of Salt that this program lacks.
func pythonScenes() []scene {
	return []scene{
		{name: "python_runners", more: pythonSettings, lines: []line{
			run("site.hello", "you"), run("site.hello", "you", "2", "greeting=hi", "deep={a: [1]}"),
			run("site.hello"), run("site.fixed", "1", "c=2"), run("site.fixed", "1", "2", "3"),
			run("site.fixed", "1", "b=text"), run("site.nosuch"), run("nosuch.fun"),
			run("site.talk"), run("site.talk", "--out=json").mask(`(?s)\A.*\z`, "printed"),
			run("site.code", "3"), run("site.returned", "4"), run("site.shaped"),
			run("site.failed_states"), run("site.fails", "some text"), run("site.leaves"),
		}},
		{name: "python_modules", more: pythonSettings, lines: []line{
			run("site.types", "--out=json"), run("site.others", "--out=json"),
			run("error.error", "name=x"), run("extended.where"), run("placed.where"),
			run("synced.where"), run("saltutil.sync_runners"), run("synced.where"),
			run("saltutil.sync_wheel"), run("-d", "synced"), run("-d", "site.hello"),
			run("-d", "site.f*"), run("broken.x").mask(`; DIR/own-runners/broken.py: .*`, ""),
			run("queue.insert", "q", "[a, b]"), run("queue.list_items", "q"),
			run("survey.hash", "web-*", "test.echo", "same"),
		}},
		{name: "python_clients", more: pythonSettings, lines: []line{
			run("site.local", "web-*", "--out=json").mask(`(?s)"jid": "[^"]*"`, "JID"),
			run("site.runners", "--out=json"), run("site.wheels", "--out=json"),
			run("site.events", "--out=json"),
			run("state.orchestrate", "orch.python", "--out=json").mask(`"(duration|start_time|jid|__jid__)": [^,\n]*`, `"$1"`).
				mask(`(?m)^\[ERROR   \] \{'return': .*\n`, ""),
		}, do: func(t *testing.T, p *pair) {
			p.both(func(s *side) {
				s.must(t, "salt-run", "event.send", "t/python", "{a: 1}")
				e2e.Eventually(t, 60*time.Second, s.kind+": schedule, reactor and runner noted",
					func() error {
						text, err := os.ReadFile(filepath.Join(s.ConfDir, "notes"))
						for _, note := range []string{"scheduled", "reacted", "by asynchronous"} {
							if !strings.Contains(string(text), note+"\n") {
								err = errors.Join(err, fmt.Errorf("no %s", note))
							}
						}
						return err
					})
			})
		}},
		{name: "python_sdb", more: sdbSettings, lines: []line{
			run("sdb.get", "sdb://kept/start"), run("sdb.set", "sdb://kept/new", "[1, {a: b}]"),
			run("sdb.get", "sdb://kept/new", "--out=json"), run("sdb.delete", "sdb://kept/new"),
			run("sdb.get", "sdb://kept/new"),
			run("sdb.get", "sdb://kept/fails").unlike("Python's tracebacks",
				prints("Exception occurred in runner sdb.get: the driver fails\n", "", 1)),
			run("sdb.set", "sdb://nosuch/key", "x"), run("sdb.get", "sdb://nosuch/key"),
			run("sdb.get_or_set_hash", "sdb://kept/start"),
			run("sdb.get_or_set_hash", "sdb://kept/made", "6", "a"),
			run("sdb.get", "sdb://kept/made"),
			run("sdb.get", "sdb://yamls/tree:leaf"), run("sdb.set", "sdb://yamls/secret", "x"),
			run("config.get", "site_secret"), run("config.get", "site_nested", "--out=json"),
			run("pillar.show_pillar", "web-a"), run("sdb.get", "sdb://kept/by_pillar"),
			run("saltutil.sync_sdb"),
		}},
		{name: "python_targets", more: func() string { return targetsRunner },
			before: func(t *testing.T, p *pair) {
				for _, s := range p.sides() {
					if err := os.WriteFile(filepath.Join(s.Dir, "own-runners", "targets.py"),
						[]byte(targetsRunner), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}, lines: []line{
				run("targets.matched", "web-*", "--out=json"),
				run("targets.matched", "G@id:web-a or I@for:nobody", "tgt_type=compound", "--out=json"),
				run("targets.matched", "[web-b, ghost]", "tgt_type=list", "--out=json"),
				run("targets.matched", "both", "nodegroup", "--out=json"),
				run("targets.data", "web-a", "--out=json"), run("targets.data", "ghost", "--out=json"),
				run("targets.rostered", "web-a", "--out=json"),
			}},
		{name: "python_keys", before: offering("by-1", "by-2", "by-3"), lines: []line{
			wheel("key.accept_dict", "{minions_pre: [by-2]}"),
			wheel("key.reject_dict", "{minions_pre: [by-3], minions: ['by-?', nosuch]}"),
			wheel("key.delete_dict", "{minions: [by-2], minions_rejected: [by-3]}"),
			wheel("key.delete_dict", "{minions_pre: [by-1]}"),
		}},
		{name: "python_doors", more: doorSettings, lines: []line{
			salt("web-a", "state.show_top", "--out=json"),
			salt("web-b", "test.echo", "x", "--out=lines"),
			salt("web-a", "test.echo", "x", "--out=nosuch"),
			run("--out=lines", "manage.up"),
			salt("-a", "siteauth", "--username=alice", "--password=open alice", "web-a", "test.ping"),
			salt("-a", "siteauth", "--username=alice", "--password=open alice", "web-a", "test.version"),
			salt("-a", "siteauth", "--username=alice", "--password=wrong", "web-a", "test.ping"),
			salt("-a", "siteauth", "--username=bob", "--password=open bob", "web-a", "test.echo", "x"),
			salt("-a", "siteauth", "--username=carla", "--password=open carla", "web-a", "test.version"),
			salt("-a", "siteauth", "--username=carla", "--password=open carla", "web-a", "test.ping"),
			salt("-a", "siteauth", "--username=dora", "--password=open dora", "web-a", "test.echo", "x"),
			salt("-a", "siteauth", "--username=dora", "--password=open dora", "web-a", "test.version"),
			salt("-a", "siteauth", "--username=dora", "--password=open dora", "web-b", "test.version"),
			salt("-a", "siteauth", "--username=dora", "--password=open dora", "web-a", "testers"),
		}},
	}
}

// TestPython calls runner and wheel functions that are written in Python on Salt's master and on
// ours.
func TestPython(t *testing.T) {
	t.Parallel()
	python := filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin", "python3")
	p := startPairWith(t, func(s *side) {
		files := maps.Clone(pythonFiles)
		maps.Copy(files, sdbFiles)
		maps.Copy(files, doorFiles)
		for name, text := range files {
			path := filepath.Join(s.Dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(s.fill(text)), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.Replace(s.Config(t), "external_auth:\n", "external_auth:\n"+eauthOption, 1) +
			strings.ReplaceAll(pythonOptions+sdbOptions+doorOptions, "DIR", s.Dir)
		if s.kind != "salt" {
			text += "python_host: " + python + "\n"
		}
		s.Configure(t, text)
	})
	for _, c := range pythonScenes() {
		t.Run(c.name, func(t *testing.T) { p.play(t, c) })
	}
}

// pythonSettings are what Salt's answers to pythonScenes depend on, besides settings.
func pythonSettings() string {
	var b strings.Builder
	b.WriteString(pythonOptions)
	for _, name := range slices.Sorted(maps.Keys(pythonFiles)) {
		fmt.Fprintf(&b, "%s %q\n", name, pythonFiles[name])
	}
	return b.String()
}
