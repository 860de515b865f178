package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// reactorOptions map tags to files. DIR is the folder of the side's master.
const reactorOptions = `reactor:
  - 't/local': [DIR/react/local.sls]
  - 't/forms': DIR/react/forms.sls
  - 't/runner': [DIR/react/runner.sls]
  - 't/wheel': [DIR/react/wheel.sls]
  - 't/caller': [DIR/react/caller.sls]
  - 't/tgt': [DIR/react/tgt.sls]
  - 't/data/*': [DIR/react/data.sls]
  - 't/glob': ['DIR/react/glob/*.sls', 'DIR/react/none*.sls']
  - 't/salt': ['salt://react/here.sls', 'salt://react/none.sls']
  - 't/twice': [DIR/react/twice.sls]
  - 't/tw*': [DIR/react/twice2.sls, DIR/react/missing.sls]
  - 't/wrong/[a-f]': [DIR/react/wrong-ok.sls]
  - 't/wrong/a': [DIR/react/wrong-colon.sls]
  - 't/wrong/b': [DIR/react/wrong-list.sls]
  - 't/wrong/c': [DIR/react/wrong-jinja.sls]
  - 't/wrong/d': [DIR/react/wrong-yaml.sls]
  - 't/wrong/e': [DIR/react/wrong-top.sls]
  - 't/wrong/f': [DIR/react/wrong-text.sls]
  - 't/args': [DIR/react/args.sls]
  - 't/renderers': [DIR/react/json.sls, DIR/react/py.sls]
  - 't/order': [DIR/react/order.sls]
  - 't/order/missing': [DIR/react/order-missing.sls]
  - 't/order/circle': [DIR/react/order-circle.sls]
  - 't/order/prereq': [DIR/react/order-prereq.sls]
  - 't/nocache': [DIR/react/nocache.sls]
  - 't/end': [DIR/react/end.sls]
  - 'salt/run/*/ret': [DIR/react/ret.sls]
  - 'salt/minion/web-b/start': [DIR/react/start.sls]
  - 'salt/beacon/*/load/': [DIR/react/beacon.sls]
`

// scheduleOptions fire the events of the schedule's returns. Salt's master evaluates the schedule
// when its smallest interval has passed.
const scheduleOptions = `schedule:
  plain: {function: test.arg, seconds: 3, args: [q]}
  full: {function: test.arg, seconds: 4, args: [1, {a: b}], kwargs: {k: [v]}, metadata: {m: x}, maxrunning: 2}
  fails: {function: error.error, seconds: 4, kwargs: {name: ValueError, message: wrong}}
  wrong arguments: {function: test.sleep, seconds: 4, kwargs: {nosuch: 1}}
  unknown: {function: nosuch.fun, seconds: 4}
  uncached: {function: test.arg, seconds: 4, return_job: nocache}
  silent: {function: test.arg, seconds: 4, args: [silent], return_job: False}
  disabled: {function: test.arg, seconds: 4, args: [disabled], enabled: False}
  named: {function: test.arg, seconds: 4, name: by another name}
`

// reactions are the SLS files, below DIR. Each reaction carries its own name, by which the events
// are recognized.
var reactions = map[string]string{
	"react/local.sls": `
local-args-list:
  local.test.arg:
    - tgt: web-a
    - args:
      - n: local-args-list
      - deep: {a: [1, two]}
local-args-map:
  local.test.arg:
    - tgt: web-b
    - args: {n: local-args-map, none: null, yes: true}
local-old:
  local.test.arg:
    - tgt: web-a
    - arg: [local-old, 2, '3']
    - kwarg: {k: v}
local-arg-only:
  local.test.arg:
    - tgt: web-a
    - arg: [local-arg-only]
local-kwarg-only:
  local.test.arg:
    - tgt: web-a
    - kwarg: {n: local-kwarg-only}
local-none:
  local.test.ping:
    - tgt: web-a
`,
	"react/forms.sls": `
forms-cmd:
  cmd.test.arg: [{tgt: web-a}, {arg: [forms-cmd]}]
forms-list:
  local:
    - test.arg
    - tgt: web-a
    - arg: [forms-list]
forms-short: runner.test.arg
forms-names:
  runner.test.arg:
    - names: [one, two: [{kwarg: {n: forms-names-two}}]]
    - arg: []
    - kwarg: {n: forms-names}
forms-both:
  runner.test.arg: [{args: {n: forms-both}}]
  local.test.arg: [{tgt: web-a}, {arg: [forms-both]}]
forms-old-and-new:
  runner.test.arg:
    - arg: [old]
    - args: {n: forms-old-and-new}
`,
	"react/runner.sls": `
runner-args-map:
  runner.test.arg:
    - args: {n: runner-args-map, deep: {a: [1]}}
runner-args-list:
  runner.test.arg:
    - args: [n: runner-args-list, m: 2]
runner-keys:
  runner.test.arg:
    - n: runner-keys
    - other: [1, 2]
runner-both:
  runner.test.arg:
    - arg: [runner-both, 1]
    - kwarg: {k: v}
runner-arg-only:
  runner.test.arg:
    - arg: [runner-arg-only]
runner-fixed:
  runner.test.sleep:
    - s_time: 0.01
runner-unknown-new:
  runner.nosuch.new:
    - args: {n: runner-unknown-new}
runner-unknown-old:
  runner.nosuch.old:
    - n: runner-unknown-old
runner-unknown-keyword:
  runner.test.sleep:
    - args: {nosuch: runner-unknown-keyword}
runner-invalid-key:
  runner.test.sleep:
    - nosuch: runner-invalid-key
runner-fails:
  runner.error.error:
    - args: {name: ValueError, message: runner-fails}
runner-missing-argument:
  runner.event.send:
    - data: {a: 1}
`,
	"react/wheel.sls": `
wheel-new:
  wheel.key.name_match:
    - args: {match: web-a}
wheel-keys:
  wheel.key.finger:
    - match: web-*
wheel-list:
  wheel.key.list:
    - arg: [accepted]
    - kwarg: {}
wheel-unknown:
  wheel.nosuch.fun:
    - args: {n: wheel-unknown}
`,
	"react/caller.sls": "caller-args:\n  caller.cmd.run:\n    - args:\n      - cmd: touch DIR/react/caller-args\n" +
		"caller-old:\n  caller.cmd.run:\n    - args: ['touch DIR/react/caller-old']\n" +
		"caller-unknown:\n  caller.nosuch.fun: [{args: [1]}]\n",
	"react/tgt.sls": `
tgt-list:
  local.test.arg: [{tgt: [web-a, web-b]}, {tgt_type: list}, {arg: [tgt-list]}]
tgt-compound:
  local.test.arg: [{tgt: 'E@web-[ab] and not web-b'}, {tgt_type: compound}, {arg: [tgt-compound]}]
tgt-nodegroup:
  local.test.arg: [{tgt: one}, {tgt_type: nodegroup}, {arg: [tgt-nodegroup]}]
tgt-nobody:
  local.test.arg: [{tgt: nobody}, {arg: [tgt-nobody]}]
tgt-missing:
  local.test.arg: [{arg: [tgt-missing]}]
`,
	"react/data.sls": `
data-{{ tag | replace('/', '-') }}:
  local.test.arg:
    - tgt: {{ data.get('to', data.get('id', 'web-a')) }}
    - arg: [data, {{ tag }}, {{ data.get('x', data.get('data', {}).get('x')) | json }}]
    - kwarg: {id: {{ opts.id }}, grain: {{ grains.kernel }}, pinged: {{ salt['test.echo']('pong') }}, env: {{ saltenv }}}
`,
	"react/glob/a.sls":      "glob:\n  runner.test.arg: [{args: {n: glob-a}}]\n",
	"react/glob/b.sls":      "glob-b:\n  runner.test.arg: [{args: {n: glob-b}}]\n",
	"react/glob/.c.sls":     "glob-c:\n  runner.test.arg: [{args: {n: glob-hidden}}]\n",
	"react/glob/d.txt":      "glob-d:\n  runner.test.arg: [{args: {n: glob-text}}]\n",
	"srv/react/here.sls":    "{% from 'react/map.jinja' import name %}\nsalt-here:\n  runner.test.arg: [{args: {n: salt-{{ name }}}}]\n",
	"srv/react/map.jinja":   "{% set name = 'imported' %}\n",
	"react/twice.sls":       "twice:\n  runner.test.arg: [{args: {n: twice-first}}]\ntwice-other:\n  runner.test.arg: [{args: {n: twice-other}}]\n",
	"react/twice2.sls":      "twice:\n  runner.test.arg: [{args: {n: twice-second}}]\n",
	"react/wrong-ok.sls":    "wrong-ok:\n  runner.test.arg: [{args: {n: 'wrong-ok-{{ tag }}'}}]\n",
	"react/wrong-colon.sls": "wrong-colon:\n  runner.test.arg:\n",
	"react/wrong-list.sls":  "wrong-list:\n  runner.test.arg: {args: {n: wrong-list}}\n",
	"react/wrong-jinja.sls": "wrong-jinja:\n  runner.test.arg: [{args: {n: {{ nosuch.deep.down }}}}]\n",
	"react/wrong-yaml.sls":  "wrong-yaml:\n  runner.test.arg: [{args: {n: wrong-yaml}\n",
	"react/wrong-top.sls":   "- wrong-top\n- runner.test.arg\n",
	"react/wrong-text.sls":  "wrong-text: text without a point\n",
	"react/args.sls": `
args-empty:
  runner.test.arg: [{args: []}]
args-none:
  runner.test.arg: [{args: null}]
args-names:
  runner.test.arg: [{args: [args-names, 5]}]
args-text:
  runner.test.arg: [{args: '[n: args-text]'}]
args-two-keys:
  runner.test.arg: [{args: [{a: args-two-keys, b: 2}]}]
args-empty-map:
  runner.test.arg: [{args: {}}]
arg-is-text:
  local.test.arg: [{tgt: web-a}, {arg: xyz}]
`,
	"react/nocache.sls": jobIDReactions,
	"react/order.sls": `
z:
  local.test.arg: [{tgt: web-a}, {arg: [order-z]}]
a:
  local.test.arg: [{tgt: web-a}, {arg: [order-a]}, {require: [b, {local: z}]}]
b:
  local.test.arg: [{tgt: web-a}, {arg: [order-b]}, {onchanges: [{local: c}]}, {watch_any: [{id: 'y*'}]}]
c:
  local.test.arg: [{tgt: web-a}, {arg: [order-c]}, {order: last}]
d:
  local.test.arg: [{tgt: web-a}, {arg: [order-d]}, {onfail: [{local: y2}]}, {order: 1}]
y1:
  local.test.arg: [{tgt: web-a}, {arg: [order-y1]}, {order: 5}]
y2:
  local.test.arg: [{tgt: web-a}, {arg: [order-y2]}, {order: 4}, {require: [{local: y1}]}]
`,
	"react/order-missing.sls": "a:\n  local.test.arg: [{tgt: web-a}, {arg: [order-missing]}]\nb:\n  local.test.arg: [{tgt: web-a}, {arg: [order-missing]}, {require: [{local: nosuch}]}]\n",
	"react/order-circle.sls":  "a:\n  local.test.arg: [{tgt: web-a}, {arg: [order-circle]}, {require: [b]}]\nb:\n  local.test.arg: [{tgt: web-a}, {arg: [order-circle]}, {watch: [a]}]\n",
	"react/order-prereq.sls":  "a:\n  local.test.arg: [{tgt: web-a}, {arg: [order-prereq-a]}]\nb:\n  local.test.arg: [{tgt: web-a}, {arg: [order-prereq-b]}, {prereq: [a]}]\n",
	"react/json.sls":          "#!json\n{\"json\": {\"runner.test.arg\": [{\"args\": {\"n\": \"renderer-json\"}}]}}\n",
	"react/py.sls":            "#!py\ndef run():\n    return {'py': {'runner.test.arg': [{'args': {'n': 'renderer-py-' + tag}}]}}\n",
	"react/end.sls":           "end:\n  runner.test.arg: [{args: {n: '{{ data.n }}'}}]\nend-local:\n  local.test.arg: [{tgt: web-a}, {arg: ['{{ data.n }}']}]\n",
	"react/ret.sls":           "ret:\n  runner.test.arg: [{args: {n: 'ret of {{ data.fun }} by {{ data.user }}'}}]\n",
	"react/start.sls":         "start:\n  local.test.arg: [{tgt: '{{ data.id }}'}, {arg: ['start of {{ data.id }}']}]\n  runner.test.arg: [{args: {n: 'start of {{ data.id }}'}}]\n  wheel.key.name_match: [{args: {match: '{{ data.id }}'}}]\n",
	"react/beacon.sls":        "beacon:\n  local.test.arg: [{tgt: '{{ data.id }}'}, {arg: ['beacon', {{ data.data.load }}]}]\n",
}

// reacting is one event of the bus, as far as it must be equal.
type reacting struct {
	Tag  string
	Data map[string]any
}

// Names of days and months are masked: Salt's answers were kept on some day.
var (
	days   = regexp.MustCompile(`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b`)
	months = regexp.MustCompile(`\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b`)
)

// reactionLine describes the reaction of an event: the tag's kind, the function, its arguments,
// user and outcome. It is "" for other events.
func reactionLine(e reacting) string {
	if e.Tag == "__schedule_return" {
		delete(e.Data, "pid")
		delete(e.Data, "_stamp")
		if meta, ok := e.Data["metadata"].(map[string]any); ok {
			for _, at := range []string{"_TOS", "_TS", "_TT"} {
				if text, ok := meta[at].(string); ok {
					text = months.ReplaceAllString(days.ReplaceAllString(text, "Day"), "Month")
					meta[at] = digits.ReplaceAllString(text, "9")
				}
			}
		}
		b, _ := json.Marshal(e.Data) // it was read as JSON
		return "scheduled " + string(b)
	}
	parts := strings.Split(e.Tag, "/")
	if len(parts) < 4 || parts[0] != "salt" {
		return ""
	}
	d := e.Data
	text := func(keys ...string) string {
		var out []string
		for _, k := range keys {
			if v, ok := d[k]; ok {
				b, _ := json.Marshal(v) // it was read as JSON
				out = append(out, k+"="+string(b))
			}
		}
		return strings.Join(out, " ")
	}
	switch {
	case parts[1] == "job" && parts[3] == "new":
		return "job " + text("fun", "tgt", "tgt_type", "arg", "user", "minions", "missing")
	case parts[1] == "job" && parts[3] == "ret":
		return "return " + text("fun", "id", "fun_args", "success", "retcode")
	case (parts[1] == "run" || parts[1] == "wheel") && d["user"] == "Reactor":
		if ret, ok := d["return"].(string); ok && strings.HasPrefix(ret, "Exception occurred in ") {
			d["return"], _, _ = strings.Cut(ret, ": ") // in Salt's a traceback follows
		} else if ok && strings.HasPrefix(ret, "\nPassed invalid arguments") {
			d["return"], _, _ = strings.Cut(ret, "\n\nUsage:")
		}
		return parts[1] + " " + parts[3] + " " + text("fun", "fun_args", "user", "success",
			"retcode", "return")
	}
	return ""
}

// reactionSettings are what Salt's reactions depend on, besides the events that TestReactions
// fires.
func reactionSettings() string {
	text := settings() + reactorOptions + scheduleOptions
	for _, name := range slices.Sorted(maps.Keys(reactions)) {
		text += fmt.Sprintf("%s %q\n", name, reactions[name])
	}
	return text
}

// digits are those of a time, which is not compared.
var digits = regexp.MustCompile(`\d`)

var keyHash = regexp.MustCompile(`([0-9a-f]{2}:){31}[0-9a-f]{2}`)

// reactorSide follows the reactions of one side.
type reactorSide struct {
	*side
	listener *e2e.Process
}

func (s *reactorSide) lines(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(s.listener.Output)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		tag, data, ok := strings.Cut(line, "\t")
		e := reacting{Tag: tag}
		if !ok || json.Unmarshal([]byte(data), &e.Data) != nil {
			continue
		}
		if line := reactionLine(e); line != "" && !strings.Contains(line, `"fun":"event.send"`) &&
			!strings.Contains(line, `fun="event.send"`) {
			out = append(out, strings.ReplaceAll(s.unnamed(line), s.ID, "MASTER"))
		}
	}
	return out
}

// reacted is the summary of one side's events: how often each came, and the jobs whose order
// follows from requisites.
type reacted struct {
	Events map[string]int `json:"events"`
	Order  []string       `json:"order"`
}

// inOrder are the reactions whose order follows from requisites, in the order of publication.
func inOrder(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool {
		return !strings.HasPrefix(l, "job ") || !strings.Contains(l, `["order-`)
	})
}

// reactorLines are the functions of the family reactor, in this order, on sides with
// reactorOptions.
func reactorLines() []line {
	// Before the answer Salt prints its request to the reactor, with the master's key in it.
	answer := func(theirs, ours result) error {
		request, ok := strings.CutSuffix(theirs.stdout, ours.stdout)
		if !ok || ours.stdout == "" || !strings.Contains(request, "salt/reactors/manage/") ||
			ours.stderr != theirs.stderr || ours.code != theirs.code {
			return errors.New("ours is to be Salt's without the request before it")
		}
		return nil
	}
	var lines []line
	for _, args := range [][]string{
		{"reactor.list"}, {"reactor.list", "--out=json"},
		{"reactor.add", "more/*", "DIR/react/more.sls"},
		{"reactor.add", "more/*", "DIR/react/other.sls"},
		{"reactor.add", "most/*", "reactors=[DIR/react/a.sls, DIR/react/b.sls]", "--out=json"},
		{"reactor.add", "t/local", "x.sls"},
		{"reactor.delete", "more/*"}, {"reactor.delete", "more/*", "--out=json"},
		{"reactor.delete", "nosuch"},
		{"reactor.delete", "t/runner"}, {"reactor.delete", "t/runner"},
		{"reactor.add", "t/runner", "DIR/react/runner2.sls"},
		{"reactor.list", "--out=yaml"},
		{"reactor.is_leader"}, {"reactor.set_leader", "False"}, {"reactor.is_leader", "--out=json"},
		{"reactor.set_leader", "value=True"}, {"reactor.set_leader"},
	} {
		lines = append(lines, run(args...).mask(`[A-Za-z0-9+/]{75}=`,
			"KEY").unlike("The key in what reactor functions print", answer))
	}
	return append(lines, run("reactor.add").unlike("Texts of the runner functions",
		ownText("\nPassed invalid arguments: add() missing 2 required positional arguments: 'event' and 'reactors'\n\nUsage:\n\n")))
}

// TestReactions fires the same events at Salt's master and at ours. It compares the jobs, returns,
// and runner and wheel events of all reactions.
func TestReactions(t *testing.T) {
	t.Parallel()
	p := startPairWith(t, func(s *side) {
		for name, text := range reactions {
			path := filepath.Join(s.Dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(s.fill(text)), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		s.Configure(t, s.Config(t)+strings.ReplaceAll(reactorOptions, "DIR", s.Dir)+scheduleOptions+
			"unique_jid: True\n")
	})
	answers := answers.Open[reacted](t, answersOf("reactions"), reference, reactionSettings(), *update)
	var sides []*reactorSide
	for _, s := range p.sides() {
		sides = append(sides, &reactorSide{side: s})
	}
	for _, s := range sides {
		s.listener = &e2e.Process{Name: s.kind + " events",
			Output: filepath.Join(s.Dir, "events.log")}
		s.listener.Start(t, s.program.Run, "-c", s.ConfDir, "state.event")
	}
	fire := func(tag,
		data string) {
		p.both(func(s *side) { s.must(t, "salt-run", "event.send", tag, data) })
	}
	has := func(s *reactorSide, text string) error {
		if lines := s.lines(t); !slices.ContainsFunc(lines,
			func(l string) bool { return strings.Contains(l, text) }) {
			return fmt.Errorf("no %q among\n%s", text, strings.Join(lines, "\n"))
		}
		return nil
	}
	for _, s := range sides { // once the listener hears one event, it hears all that follow
		e2e.Eventually(t, 60*time.Second, s.kind+" listens", func() error {
			s.must(t, "salt-run", "event.send", "t/end", "{n: ready}")
			return has(s, `"n":"ready"`)
		})
	}
	for _, tag := range []string{"t/local", "t/forms", "t/runner", "t/wheel", "t/tgt", "t/glob",
		"t/salt", "t/twice", "t/wrong/a", "t/wrong/b", "t/wrong/c", "t/wrong/d", "t/wrong/e",
		"t/wrong/f", "t/args", "t/renderers", "t/nocache", "t/order", "t/order/missing",
		"t/order/circle", "t/order/prereq"} {
		fire(tag, "{a: 1}")
	}
	fire("t/data/run", "{x: [1, {y: z}], to: web-b}")
	p.both(func(s *side) {
		s.must(t, "salt", "web-a", "event.send", "t/data/minion", `{x: "it's\na text"}`)
		s.must(t, "salt", "web-a", "event.send", "salt/beacon/web-a/load/", "{load: 3}")
		s.minions["web-b"].End() // one of Salt's own sometimes hangs at SIGTERM
		s.minions["web-b"].Run(t)
	})
	// Each of the hundred jobs is a Python process of a minion, so they take minutes on two cores
	// that other tests use too. The speed of reactions is measured elsewhere.
	const all = 4 * time.Minute
	for _, s := range sides {
		e2e.Eventually(t, all, s.kind+" reacts to the start of a minion",
			func() error {
				return has(s,
					`return fun="test.arg" id="web-b" fun_args=["start of web-b"]`)
			})
	}
	fire("t/end", "{n: last}")
	for _, s := range sides {
		e2e.Eventually(t, all, s.kind+" comes to the end", func() error {
			for _, sign := range []string{`return fun="test.arg" id="web-a" fun_args=["last"]`,
				`run ret fun="runner.test.arg" fun_args=[{"n":"last"}]`} {
				if err := has(s, sign); err != nil {
					return err
				}
			}
			return nil
		})
	}
	count := func(lines []string) map[string]int {
		n := map[string]int{}
		for _, l := range lines {
			switch {
			case strings.Contains(l, "ready"), strings.Contains(l, "test.ping"): // at first
			case strings.Contains(l,
				"saltutil.find_job"): // minions of a busy machine are asked this
			case strings.Contains(l, "ret of runner.event.send by root"),
				strings.HasPrefix(l, "scheduled "): // as often as time allowed
				n[l] = 1
			default:
				n[keyHash.ReplaceAllString(l, "FINGERPRINT")]++
			}
		}
		return n
	}
	compare := func(theirs, ours map[string]int) error {
		var diff []string
		for l, n := range theirs {
			if ours[l] != n {
				diff = append(diff, fmt.Sprintf("Salt %d, ours %d: %s", n, ours[l], l))
			}
		}
		for l, n := range ours {
			if theirs[l] == 0 {
				diff = append(diff, fmt.Sprintf("Salt 0, ours %d: %s", n, l))
			}
		}
		if len(diff) > 0 {
			slices.Sort(diff)
			return errors.New(strings.Join(diff, "\n"))
		}
		if len(theirs) < 60 {
			return fmt.Errorf("only %d different lines", len(theirs))
		}
		return nil
	}
	ours := sides[len(sides)-1]
	var salts func() reacted
	if p.theirs != nil {
		salts = func() (theirs reacted) {
			e2e.Eventually(t, 30*time.Second, "all reactions of both are equal", func() error {
				theirs = reacted{count(sides[0].lines(t)), inOrder(sides[0].lines(t))}
				return compare(theirs.Events, count(ours.lines(t)))
			})
			return theirs
		}
	}
	theirs := answers.Salt(t, answers.Turn(), "reactions", salts)
	e2e.Eventually(t, all, "all reactions are Salt's",
		func() error { return compare(theirs.Events, count(ours.lines(t))) })
	if got := inOrder(ours.lines(t)); len(theirs.Order) != 10 || !slices.Equal(theirs.Order, got) {
		t.Errorf("requisites order reactions\n%s\nin Salt, here\n%s",
			strings.Join(theirs.Order, "\n"), strings.Join(got, "\n"))
	}
	t.Run("family", func(t *testing.T) { p.play(t, scene{name: "reactor", lines: reactorLines()}) })
	t.Run("ids", func(t *testing.T) { p.play(t, scene{name: "job_ids", lines: jobIDLines()}) })
	// For the first such reaction Salt's master signs in as a minion, and reacts to nothing else
	// until that is done.
	p.ours.must(t, "salt-run", "event.send", "t/caller", "{}")
	for _, name := range []string{"caller-args", "caller-old"} {
		e2e.Eventually(t, 30*time.Second, name,
			func() error {
				_, err := os.Stat(filepath.Join(p.ours.Dir, "react",
					name))
				return err
			})
	}
}
