package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// folderWiring has the folders of the site's own Python modules, one of each kind, and options of
// such modules.
func folderWiring() wiring {
	printed := func(options string, args ...string) wired {
		return wired{options: options, ask: func(t *testing.T, m *subject) string {
			r := m.Runner(t, args...)
			return fmt.Sprint(r.Code, " ", r.Stdout)
		}}
	}
	return wiring{
		name:   "folders",
		python: true,
		both: `pillar_roots: {base: [DIR/pillar]}
runner_dirs: [DIR/own/runners]
kept: {driver: mine}
schedule: {ticks: {function: test.arg, seconds: 1}}
`,
		set: `auth_dirs: [DIR/own/auth]
outputter_dirs: [DIR/own/output]
pillar_dirs: [DIR/own/pillar]
render_dirs: [DIR/own/renderers]
returner_dirs: [DIR/own/returners]
sdb_dirs: [DIR/own/sdb]
states_dirs: [DIR/own/states]
top_dirs: [DIR/own/tops]
utils_dirs: [DIR/own/utils]
wheel_dirs: [DIR/own/wheel]
external_auth: {mine: {ann: ['@runner']}}
ext_pillar: [{mine: x}]
master_tops: {mine: True}
event_return: [mine]
event_return_queue: 100000
event_return_queue_max_seconds: 1
schedule_returner: mine
extmod_blacklist: {runners: [second]}
extmod_whitelist: {engines: [first]}
optimization_order: [2, 1, 0]
enable_zip_modules: True
cython_enable: True
`,
		files: map[string]string{
			"pillar/top.sls":         "base: {renders: [own]}\n",
			"pillar/own.sls":         "#!mine\nv: 1\n",
			"srv/state.sls":          "a: {mine.there: []}\n",
			"srv/wheel.sls":          "a: {salt.wheel: [{name: mine.turn}]}\n",
			"srv/_runners/first.py":  "def f():\n    return 1\n",
			"srv/_runners/second.py": "def f():\n    return 2\n",
			"srv/_engines/first.py":  "def start():\n    pass\n",
			"srv/_engines/second.py": "def start():\n    pass\n",
			"own/auth/mine.py":       "def auth(username, password):\n    return password == \"right\"\n",
			"own/output/mine.py":     "def output(data, **kwargs):\n    return \"printed by mine: %s\" % sorted(data)\n",
			"own/pillar/mine.py":     "def ext_pillar(minion_id, pillar, *args):\n    return {\"ext\": [minion_id, list(args)]}\n",
			"own/renderers/mine.py":  "def render(data, saltenv=\"base\", sls=\"\", **kwargs):\n    return {\"v\": \"rendered in \" + sls}\n",
			"own/returners/mine.py": "def event_return(events):\n    open(\"DIR/returned\", \"w\").close()\n\n\n" +
				"def returner(ret):\n    open(\"DIR/ran-\" + ret[\"schedule\"], \"w\").close()\n\n\n" +
				"def get_jids():\n    return {}\n",
			"own/sdb/mine.py":     "def get(key, profile=None):\n    return \"value of \" + key\n",
			"own/states/mine.py":  "def there(name):\n    return {\"name\": name, \"result\": True, \"changes\": {}, \"comment\": \"done by mine\"}\n",
			"own/tops/mine.py":    "def top(**kwargs):\n    return {\"base\": [\"from mine\"]}\n",
			"own/utils/mine.py":   "def text():\n    return \"from mine\"\n",
			"own/wheel/mine.py":   "def turn():\n    return \"turned\"\n",
			"own/runners/uses.py": "def it():\n    return __utils__[\"mine.text\"]()\n",
			"own/runners/sees.py": "def it(name):\n    return __opts__[name]\n",
		},
		prepare: compileLevels,
		looks: []wired{
			printed("auth_dirs", "-a", "mine", "--username=ann", "--password=right", "test.arg", "a"),
			printed("outputter_dirs", "--out=mine", "test.arg", "a"),
			pillarKey("pillar_dirs", "extends", "ext"),
			pillarKey("render_dirs", "renders", "v"),
			printed("returner_dirs", "jobs.list_jobs", "ext_source=mine"),
			printed("sdb_dirs", "sdb.get", "sdb://kept/key"),
			orchestrated("states_dirs", "state", linesWith("Comment: ")),
			{options: "top_dirs", ask: func(t *testing.T, m *subject) string {
				return say(t, m, m.signIn(t, "asks", 3).request(t, "_master_tops", pair("opts", dict("id", "asks",
					"grains", value.Map{})), pair("id", "asks")))
			}},
			printed("utils_dirs", "uses.it"),
			orchestrated("wheel_dirs", "wheel", linesWith("Result: ", "turned")),
			{options: "event_return_queue_max_seconds", ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "fires", 3)
				return fmt.Sprint("returned: ", endsWithin(25*time.Second, func() bool {
					c.request(t, "_minion_event", pair("tag", "my/event"), pair("data", dict("a", "b")))
					_, err := os.Stat(m.path("returned"))
					return err == nil
				}))
			}},
			{options: "schedule_returner", ask: func(_ *testing.T, m *subject) string {
				return fmt.Sprint("returned: ", endsWithin(25*time.Second, func() bool {
					_, err := os.Stat(m.path("ran-ticks"))
					return err == nil
				}))
			}},
			printed("extmod_blacklist", "saltutil.sync_runners"),
			printed("extmod_whitelist", "saltutil.sync_engines"),
			printed("optimization_order", "level.it"),
			printed("enable_zip_modules", "sees.it", "enable_zip_modules"),
			printed("cython_enable", "sees.it", "cython_enable"),
		},
	}
}

// compileLevels makes the runner "level", of which only the compiled forms of the levels 1 and 2 of
// optimization exist.
func compileLevels(t *testing.T, m *subject) {
	t.Helper()
	python := filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin", "python3")
	cmd := exec.Command(python, "-c", `import os, py_compile
for level in 1, 2:
    with open("level.py", "w") as f:
        f.write("def it():\n    return %d\n" % level)
    py_compile.compile("level.py", optimize=level)
os.remove("level.py")
`)
	cmd.Dir = m.path("own", "runners")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
