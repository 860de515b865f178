package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// treeOptions are those of all masters with the tree. SHARED is a folder for what the returner and
// the engine write.
const treeOptions = `extension_modules: DIR/ext
timeout: 15
gather_job_timeout: 3
auto_accept: True
fileserver_list_cache_time: 0
ext_pillar: [{owners: {team: core}}]
kept: {driver: filedb, path: DIR/sdb.json}
event_return: [treelog]
event_return_whitelist: ['site/*']
master_job_cache: treelog
treelog: {path: SHARED/rows}
engines: [answering: {path: SHARED/ticks}]
master_tops: {treetops: {states: [from_tops]}}
external_auth: {treeauth: {alice: [test.ping]}}
`

// treeFiles are one extension of each kind, and what uses them, below a master's folder. Only the
// back end of external_auth has no folder that Salt copies.
var treeFiles = map[string]string{
	"srv/_utils/treesum.py": `
import hashlib


def of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]
`,
	"srv/_modules/facts.py": `
def sum(text):
    return __utils__["treesum.of"](text)


def about():
    return {"id": __grains__["id"], "sum": sum(__grains__["id"]), "owner": __salt__["pillar.get"]("owner")}
`,
	"srv/_pillar/owners.py": `
def ext_pillar(minion_id, pillar, team):
    return {"owner": f"{team} of {minion_id}", "summed": __salt__["facts.sum"](minion_id), "before": sorted(pillar)}
`,
	"srv/_sdb/filedb.py": `
import json


def get(key, profile=None):
    with open(profile["path"]) as source:
        return json.load(source).get(key)
`,
	"srv/_renderers/shout.py": `
def render(data, saltenv="base", sls="", **kwargs):
    return {key: value.upper() for key, value in data.items()} | {"sls": sls}
`,
	"srv/_serializers/pairs.py": `
def serialize(obj, **options):
    return ";".join(f"{key}={obj[key]}" for key in sorted(obj))
`,
	"srv/_output/lines.py": `
def output(data, **kwargs):
    return f"{len(data)} in {type(data).__name__}: {data!r}"
`,
	"srv/_roster/treeroster.py": `
def targets(tgt, tgt_type="glob", **kwargs):
    return {"box-" + tgt: {"host": "192.0.2.1", "user": __opts__["treelog"]["path"] and "u"}}
`,
	"srv/_tops/treetops.py": `
def top(**kwargs):
    states = list(__opts__["master_tops"]["treetops"]["states"])
    return {"base": states + ["for_" + kwargs["opts"]["id"], "on_" + kwargs["grains"]["kernel"]]}
`,
	"srv/_wheel/treewheel.py": `
def turn(way, by=0):
    return {"way": way, "by": by, "id": __opts__["id"]}
`,
	"srv/_runners/tree.py": `
import salt.roster
import salt.wheel


def hello(name):
    return {"said": "hello " + name, "id": __opts__["id"], "sum": __salt__["salt.cmd"]("facts.sum", name)}


def turned(way):
    return salt.wheel.WheelClient(__opts__).cmd("treewheel.turn", [way], kwarg={"by": 90}, print_event=False)


def rostered(tgt):
    return salt.roster.Roster(__opts__, "treeroster").targets(tgt, "glob")
`,
	"srv/_engines/answering.py": `
import os
import time

import salt.utils.event


def start(path):
    events = salt.utils.event.get_event("master", sock_dir=__opts__["sock_dir"], opts=__opts__, listen=True)
    events.subscribe("site/ask/")
    while True:
        with open(path, "a") as out:
            out.write(f"{__opts__['id']} {os.getpid()} {time.monotonic()}\n")
        asked = events.get_event(wait=0.2, tag="site/ask/", full=True)
        if asked:
            n = asked["tag"].rpartition("/")[2]
            found = {"sum": __salt__["facts.sum"](n), "told": __runners__["tree.hello"](n)["said"]}
            events.fire_event(found, "site/answer/" + n)
`,
	"srv/_returners/treelog.py": `
import json
import os

import salt.utils.jid


def _write(*row):
    out = os.open(__opts__["treelog"]["path"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(out, (json.dumps(row, sort_keys=True) + "\n").encode())
    os.close(out)


def _rows(kind):
    try:
        with open(__opts__["treelog"]["path"]) as source:
            return [row for row in map(json.loads, source) if row[0] == kind]
    except FileNotFoundError:
        return []


def event_return(events):
    for event in events:
        _write("event", event["tag"], event["data"])


def returner(ret):
    _write("return", ret["jid"], ret)


def prep_jid(nocache=False, passed_jid=None):
    return passed_jid if passed_jid is not None else salt.utils.jid.gen_jid(__opts__)


def save_load(jid, load, minions=None):
    _write("load", jid, load, sorted(minions or []))


def save_minions(jid, minions, syndic_id=None):
    pass


def get_load(jid):
    return ([row[2] for row in _rows("load") if row[1] == jid] or [{}])[0]


def get_jid(jid):
    return {row[2]["id"]: {"return": row[2]["return"]} for row in _rows("return") if row[1] == jid}


def get_fun(fun):
    return {row[2]["id"]: row[2] for row in _rows("return") if row[2]["fun"] == fun}


def get_jids():
    return {row[1]: salt.utils.jid.format_jid_instance(row[1], row[2]) for row in _rows("load")}


def get_minions():
    return sorted({row[2]["id"] for row in _rows("return")})
`,
	"ext/auth/treeauth.py": `
def auth(username, password):
    return password == "open " + username
`,
	"sdb.json":       `{"start": "from the start"}`,
	"pillar/top.sls": "base: {'*': [plain, shouted]}\n",
	"pillar/plain.sls": `sum: {{ salt['facts.sum']('a') }}
secret: {{ salt['sdb.get']('sdb://kept/start') }}
pairs: {{ salt['slsutil.serialize']('pairs', {'b': 2, 'a': 1}) }}
`,
	"pillar/shouted.sls": "#!jinja|yaml|shout\nwho: i am {{ grains['id'] }}\n",
}

// placeTree writes the tree and the configuration of a master.
func placeTree(t *testing.T, s *side, shared, more string) {
	t.Helper()
	for name, text := range treeFiles {
		path := filepath.Join(s.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	s.Configure(t, s.Config(t)+strings.NewReplacer("DIR", s.Dir, "SHARED", shared).
		Replace(treeOptions)+more)
}

// A treeLine uses one kind of extension, or several. Those that a minion answers fail while it
// changes to another master.
type treeLine struct {
	kinds, minion string
	line
}

var treeLines = []treeLine{
	{"runner, module, utils", "", run("tree.hello", "you", "--out=json")},
	{"runner, wheel", "", run("tree.turned", "left", "--out=json")},
	{"roster", "", run("tree.rostered", "x", "--out=json")},
	{"module, utils", "", run("salt.cmd", "facts.sum", "a")},
	{"sdb", "", run("sdb.get", "sdb://kept/start")},
	{"pillar, renderer, serializer, sdb, module", "",
		run("pillar.show_pillar", "web-a", "--out=json")},
	{"output", "", run("--out=lines", "tree.hello", "you")},
	{"tops", "web-a", salt("web-a", "state.show_top", "queue=True", "--out=json")},
	{"auth", "web-a", salt("-a", "treeauth", "--username=alice", "--password=open alice",
		"web-a", "test.ping")},
	{"auth", "", salt("-a", "treeauth", "--username=alice", "--password=open alice", "web-a",
		"test.version")},
	{"module and utils on a minion, pillar, output", "web-b",
		salt("web-b", "facts.about", "--out=json")},
}

// maskTree hides which of the masters answered.
func maskTree(l line) line { return l.mask(`\bmaster[1-3]\b`, "MASTER") }

// treeRow is what the returner wrote: event, tag and data; load, job, load and minions; or return,
// job and return.
type treeRow []any

// name says which item a row is of: the tag of an event, the argument of an order.
func (r treeRow) name() string {
	if r[0] == "event" {
		return fmt.Sprint(r[1])
	}
	m, _ := r[2].(map[string]any)
	list, ok := m["arg"].([]any)
	if !ok {
		list, _ = m["fun_args"].([]any)
	}
	if len(list) == 0 {
		return ""
	}
	if r[0] == "load" && m["cmd"] == "_return" { // Salt's master saves the load again
		return fmt.Sprint("load of return ", list[0])
	}
	return fmt.Sprint(r[0], " ", list[0])
}

func treeRows(t testing.TB, shared string) (out []treeRow) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(shared, "rows"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var row treeRow
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, row)
	}
	return out
}

// treeCounts counts the rows of each item.
func treeCounts(t testing.TB, shared string) map[string]int {
	out := map[string]int{}
	for _, r := range treeRows(t, shared) {
		out[r.name()]++
	}
	return out
}

// written waits until the returner has an item.
func written(t testing.TB, shared, name string) {
	t.Helper()
	e2e.Eventually(t, 60*time.Second, "the returner has "+name, func() error {
		if treeCounts(t, shared)[name] == 0 {
			return errors.New("it has not")
		}
		return nil
	})
}

// treeItems gives a returner and an engine of a running tree their work, and returns what the
// returner wrote of it.
func treeItems(t *testing.T, s *side, shared string) said {
	t.Helper()
	s.must(t, "salt-run", "event.send", "site/run", "{n: 1, list: [a, {b: null}], text: ü}")
	s.must(t, "salt", "web-a", "event.send", "site/minion", "{n: 2}")
	s.must(t, "salt", "web-a", "test.echo", "kept")
	s.must(t, "salt-run", "event.send", "site/ask/7")
	for _, name := range []string{"site/run", "site/minion", "load kept", "return kept",
		"site/answer/7"} {
		written(t, shared, name)
	}
	var rows []string
	for _, r := range treeRows(t, shared) {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if name := r.name(); strings.HasPrefix(name, "site/") || strings.HasSuffix(name, " kept") {
			rows = append(rows, maskTree(line{}).mask(`"ts":\d+`, `"ts":TS`).hide(s,
				string(text))+"\n")
		}
	}
	slices.Sort(rows)
	return said{Stdout: rows}
}

// treeSettings are what Salt's answers depend on.
func treeSettings() string {
	text := treeOptions + salts + minionOptions
	for _, name := range slices.Sorted(maps.Keys(treeFiles)) {
		text += fmt.Sprintf("%s %q\n", name, treeFiles[name])
	}
	return text
}

// startSaltsTree runs the tree on Salt's own master, which loads extensions at its start. copied is
// what the first line of treeSync printed before that.
func startSaltsTree(t *testing.T) (s *side, shared string, copied said) {
	t.Helper()
	p := e2e.Theirs(t, reference)
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true, Programs: p})
	s = &side{Master: c.Masters[0], kind: "salt", program: p, cmd: startLibrary(t, reference),
		minions: map[string]*e2e.Minion{}}
	placeTree(t, s, c.Dir, salts)
	whole := s.Config(t) // with which salt-run wants the returner
	s.Configure(t, strings.Replace(whole, "master_job_cache: treelog\n", "", 1))
	if err := os.MkdirAll(filepath.Join(s.Dir, "cache", "proc"), 0o755); err != nil {
		t.Fatal(err) // Salt's master makes it at its start
	}
	copied = treeSync[0].on(t, s).said()
	s.Configure(t, whole)
	if copied.Code != 0 {
		t.Fatalf("Salt copies nothing: %v", copied)
	}
	s.Run(t)
	e2e.Eventually(t, 60*time.Second, "Salt's master", s.Ready)
	for _, id := range []string{"web-a", "web-b"} {
		s.minions[id] = e2e.NewMinion(t, c.Dir, e2e.MinionOptions{ID: id, Release: reference,
			Master: s.Addr, Extra: minionOptions})
		s.minions[id].Run(t)
	}
	s.waitMinions(t)
	return s, c.Dir, copied
}

var treeSync = []line{run("saltutil.sync_all", "--out=json"),
	salt("web-b", "saltutil.sync_utils"), salt("web-b", "saltutil.sync_modules"),
	salt("web-b", "saltutil.refresh_pillar", "wait=True")}

// TestSiteTree runs a tree with one extension of each kind on three masters of ours. All give the
// results of Salt's own master, also while the leader is killed; the engine moves; and the returner
// gets every acknowledged event and return, once where nothing failed.
func TestSiteTree(t *testing.T) {
	kept := answers.Open[said](t, answersOf("site_tree"), reference, treeSettings(), *update)
	own := e2e.Ours(t)
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3})
	python := "python_host: " + filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin", "python3") +
		"\n"
	sides := map[*e2e.Master]*side{}
	minions := map[string]*e2e.Minion{}
	for _, m := range c.Masters {
		sides[m] = &side{Master: m, kind: m.ID, program: own,
			cmd: programs{filepath.Dir(own.Salt)}, minions: minions}
		placeTree(t, sides[m], c.Dir, python)
		// Salt's default instead: in 3 s a minion of a busy machine may not say what it is
		// running, and counts as lost. No kept answer depends on it, for all minions answer.
		m.Configure(t, strings.Replace(m.Config(t), "gather_job_timeout: 3\n", "", 1))
	}
	c.Start(t)
	for _, id := range []string{"web-a", "web-b"} {
		minions[id] = e2e.NewMinion(t, c.Dir, e2e.MinionOptions{ID: id, Release: reference,
			Master: c.Base.Balancer(), Extra: minionOptions})
		minions[id].Run(t)
	}
	var salts *side
	var saltsShared string
	var copied said
	if live() {
		salts, saltsShared, copied = startSaltsTree(t)
	}
	first := sides[c.Masters[0]]
	first.waitMinions(t)
	want := func(l line, on func(s *side) said) result {
		var ask func() said
		if salts != nil {
			ask = func() said { return on(salts) }
		}
		return kept.Salt(t, kept.Turn(), l.String(), ask).result()
	}
	for i, l := range treeSync {
		theirs := want(l, func(s *side) said {
			if i == 0 {
				return copied
			}
			return l.on(t, s).said()
		})
		if ours := l.on(t, first); !theirs.equal(ours) {
			t.Errorf("%s %q\n--- Salt: %v\n--- ours: %v", l.program, l.args, theirs, ours)
		}
	}
	wanted := make([]result, len(treeLines))
	for i := range treeLines {
		treeLines[i].line = maskTree(treeLines[i].line)
		wanted[i] = want(treeLines[i].line,
			func(s *side) said { return treeLines[i].on(t, s).said() })
	}
	same := func(t testing.TB, i int, s *side) error {
		if got := treeLines[i].on(t, s); !got.equal(wanted[i]) {
			return fmt.Errorf("%s at %s: %q\n--- Salt: %v\n--- ours: %v", treeLines[i].kinds, s.ID,
				treeLines[i].args, wanted[i], got)
		}
		return nil
	}
	everywhere := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, s := range sides {
			all.Go(func() {
				for i := range treeLines {
					if err := same(t, i, s); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	ticks := filepath.Join(c.Dir, "ticks")
	engineOn := func(m *e2e.Master, after float64) {
		t.Helper()
		e2e.Eventually(t, 60*time.Second, "the engine runs on "+m.ID, func() error {
			all := stampsOf(t, ticks)
			if len(all) == 0 || all[len(all)-1].id != m.ID || all[len(all)-1].at < after {
				return fmt.Errorf("%d lines", len(all))
			}
			return nil
		})
	}
	leader := c.Leader(t, c.Masters[0])
	engineOn(leader, 0)
	var saltsRows func() said
	if salts != nil {
		saltsRows = func() said { return treeItems(t, salts, saltsShared) }
	}
	rows := kept.Salt(t, kept.Turn(), "rows", saltsRows).Stdout
	if got := treeItems(t, sides[c.Others(leader)[0]], c.Dir).Stdout; !slices.Equal(got, rows) {
		t.Errorf("ours\n%s\nSalt's\n%s", strings.Join(got, ""), strings.Join(rows, ""))
	}
	everywhere()
	if t.Failed() {
		return
	}

	l := &treeLoad{t: t, same: same, sides: sides, killed: leader, alive: c.Others(leader),
		dying: make(chan struct{}), dead: make(chan struct{}), enough: make(chan struct{}),
		rounds: map[*e2e.Master]int{}, settled: map[string]bool{}}
	var all sync.WaitGroup
	for _, s := range sides {
		all.Go(func() { l.run(s) })
	}
	l.until("a round of calls at each master", c.Masters, 1)
	close(l.dying)
	leader.Kill(t)
	killed := uptime(t)
	close(l.dead)
	next := leader
	e2e.Eventually(t, 60*time.Second, "another leader", func() error {
		if next = c.Leader(t, l.alive[0]); next == leader {
			return errors.New("it is the killed one")
		}
		return nil
	})
	engineOn(next, killed)
	l.until("two rounds of calls after the engine has moved", l.alive, 2+l.most(l.alive))
	close(l.enough)
	all.Wait()

	sides[leader].Run(t)
	c.WaitReady(t, 60*time.Second, c.Masters...)
	first.waitMinions(t)
	everywhere()
	sides[leader].must(t, "salt-run", "event.send", "site/ask/8")
	written(t, c.Dir, "site/answer/8")
	for _, s := range sides {
		s.must(t, "salt-run", "event.send", "site/last/"+s.ID)
		written(t, c.Dir, "site/last/"+s.ID)
	}
	l.check(c.Dir)
	if err := oneAtATime(stampsOf(t, ticks)); err != nil {
		t.Errorf("two engines at once: %v", err)
	}
}

// treeLoad calls all lines at each master again and again, and has events and returns written.
type treeLoad struct {
	t      *testing.T
	same   func(t testing.TB, line int, s *side) error
	sides  map[*e2e.Master]*side
	killed *e2e.Master
	alive  []*e2e.Master
	// closed just before a master is killed, just after that, and when the load ends
	dying, dead, enough chan struct{}

	mu      sync.Mutex // guards the fields below
	rounds  map[*e2e.Master]int
	settled map[string]bool // minions that have answered since the master was killed
	items   []treeItem
}

// treeItem is something that a master acknowledged. Unless its master was killed or its minion was
// changing to another one, it is written once.
type treeItem struct {
	name string
	once bool
}

func over(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// until waits for a number of rounds at each of some masters.
func (l *treeLoad) until(what string, masters []*e2e.Master, rounds int) {
	l.t.Helper()
	e2e.Eventually(l.t, 120*time.Second, what, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, m := range masters {
			if l.rounds[m] < rounds {
				return fmt.Errorf("%d at %s", l.rounds[m], m.ID)
			}
		}
		return nil
	})
}

// most is the highest number of rounds at one of some masters.
func (l *treeLoad) most(masters []*e2e.Master) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range masters {
		n = max(n, l.rounds[m])
	}
	return n
}

func (l *treeLoad) run(s *side) {
	for round := 0; !over(l.enough); round++ {
		for i := range treeLines {
			if over(l.enough) || s.Master == l.killed && over(l.dead) {
				return
			}
			l.line(s, i)
			l.orders(s, fmt.Sprintf("%s-%d-%d", s.ID, round, i))
		}
		l.mu.Lock()
		l.rounds[s.Master]++
		l.mu.Unlock()
	}
}

// try does something at a master until it works. It may fail there only if that master was killed
// meanwhile, or if a minion takes part that has not answered since; then it is done again, by
// another master in the first case. once reports that nothing had failed before.
func (l *treeLoad) try(s *side, minion string, do func(s *side) error) (once bool) {
	for first := true; ; first = false {
		l.mu.Lock()
		began, steady := over(l.dead), l.settled[minion]
		l.mu.Unlock()
		err := do(s)
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			if began && s.Master != l.killed {
				l.settled[minion] = true
			}
			return first && s.Master != l.killed && (minion == "" || steady)
		}
		switch {
		case s.Master == l.killed && over(l.dying):
			s = l.sides[l.alive[0]]
		case minion == "" || !over(l.dying) || steady:
			l.t.Error(err)
			return false
		}
	}
}

func (l *treeLoad) line(s *side, i int) {
	l.try(s, treeLines[i].minion, func(s *side) error { return l.same(l.t, i, s) })
}

// orders has a master and a minion fire events, and a minion return.
func (l *treeLoad) orders(s *side, mark string) {
	for _, o := range []struct {
		minion, program string
		args, items     []string
	}{
		{"", "salt-run", []string{"event.send", "site/run/" + mark}, []string{"site/run/" + mark}},
		{"web-a", "salt", []string{"web-a", "event.send", "site/minion/" + mark},
			[]string{"site/minion/" + mark}},
		{"web-b", "salt", []string{"web-b", "test.echo", mark}, []string{"load " + mark,
			"return " + mark}},
	} {
		once := l.try(s, o.minion, func(s *side) error {
			r := s.call(l.t, o.program, call{args: o.args})
			if r.code != 0 || !strings.Contains(r.stdout, "True") &&
				!strings.Contains(r.stdout, mark) {
				return fmt.Errorf("%s at %s: %q: %v", o.program, s.ID, o.args, r)
			}
			return nil
		})
		l.mu.Lock()
		for _, name := range o.items {
			l.items = append(l.items, treeItem{name, once})
		}
		l.mu.Unlock()
	}
}

// check looks for every item in what the returner wrote.
func (l *treeLoad) check(shared string) {
	l.t.Helper()
	for _, item := range l.items {
		written(l.t, shared, item.name)
	}
	counts, once, twice := treeCounts(l.t, shared), 0, 0
	for _, item := range l.items {
		n := counts[item.name]
		if item.once {
			once++
		}
		if n > 1 {
			twice++
		}
		if item.once && n != 1 {
			l.t.Errorf("%s was written %d times", item.name, n)
		}
	}
	l.t.Logf("%v rounds, %d items, of which %d are to be written once; %d were written again",
		l.rounds, len(l.items), once, twice)
	if once < len(l.items)/4 {
		l.t.Errorf("%d of %d items are to be written once", once, len(l.items))
	}
}
