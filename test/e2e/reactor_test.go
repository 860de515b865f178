package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// watched is a running `salt-run state.event`.
type watched struct{ Process }

// watch follows the events of the whole cluster from one master, which must not be killed.
func watch(t *testing.T, m *Master) *watched {
	t.Helper()
	w := &watched{Process{Name: "events", Output: filepath.Join(m.Dir, "events.log")}}
	w.Start(t, m.programs.Run, "-c", m.ConfDir, "state.event")
	Eventually(t, 30*time.Second, "the watcher hears", func() error {
		m.Runner(t, "event.send", "watch/ready")
		if len(w.events(t, regexp.MustCompile(`^watch/ready$`))) == 0 {
			return fmt.Errorf("nothing yet")
		}
		return nil
	})
	return w
}

// events are the data of the events whose tag matches.
func (w *watched) events(t *testing.T, tags *regexp.Regexp) (all []string) {
	t.Helper()
	b, err := os.ReadFile(w.Output)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if tag, data, ok := strings.Cut(line, "\t"); ok && tags.MatchString(tag) {
			all = append(all, data)
		}
	}
	return all
}

var (
	newRun   = regexp.MustCompile(`^salt/run/\d+/new$`)
	newWheel = regexp.MustCompile(`^salt/wheel/\d+/new$`)
	newJob   = regexp.MustCompile(`^salt/job/\d+/new$`)
)

// reactedTo counts the local, runner and wheel reactions that carry a mark.
func (w *watched) reactedTo(t *testing.T, mark string) (counts [3]int) {
	t.Helper()
	quoted, _ := json.Marshal("mark " + mark) // inside a text
	for i, tags := range []*regexp.Regexp{newJob, newRun, newWheel} {
		for _, data := range w.events(t, tags) {
			if strings.Contains(data, string(quoted)) {
				counts[i]++
			}
		}
	}
	return counts
}

const reactorExtra = `fileserver_events: True
reactor:
  - 'salt/fileserver/*/update': [DIR/files.sls]
  - 'my/tag': [DIR/react.sls]
  - 'salt/beacon/*/load/*': [DIR/react.sls]
  - 'salt/minion/*/start': [DIR/react.sls]
  - 'my/orchestration': [DIR/orchestrate.sls]
  - 'salt/run/*/ret': [DIR/loop.sls]
schedule:
  tick: {function: test.arg, seconds: 2, args: [tick]}
  orchestrating: {function: state.orchestrate, seconds: 3600, args: [orch.one]}
  failing: {function: error.error, seconds: 3600, kwargs: {name: ValueError, message: wrong}}
`

// orchestrateOne is an orchestration without minions. The caller names itself in the pillar.
const orchestrateOne = "one:\n  salt.runner:\n    - name: test.arg\n    - arg: ['{{ pillar.get('of', 'nobody') }}']\n"

const orchestrateSLS = `orchestrate:
  runner.state.orchestrate:
    - args:
      - mods: orch.one
      - pillar: {of: 'mark {{ data.mark }}'}
`

const filesSLS = `{% if 'once.txt' in data.files.added | join(' ') %}
files:
  runner.test.arg: [{args: {n: 'mark files'}}]
{% endif %}
`

const reactSLS = `{% set sent = data.data if data.get('data') is mapping else data %}{% set mark = 'mark ' ~ sent.get('mark', 'start ' ~ data.get('id')) %}
react:
  local.test.arg:
    - tgt: '{{ data.get('id', 'reacting-3008-3') }}'
    - arg: ['{{ mark }}']
  runner.test.arg:
    - args: {n: '{{ mark }}'}
  wheel.key.name_match:
    - args: {match: '{{ mark }}'}
`

// TestReactorAndSchedule: one reaction per event in the cluster, whatever master the event enters,
// and one run per period for an entry of the schedule, both while masters are killed.
func TestReactorAndSchedule(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	Venvs(t)
	dir := Folder(t)
	for name, text := range map[string]string{"react.sls": reactSLS,
		"orchestrate.sls": orchestrateSLS, "files.sls": filesSLS,
		"loop.sls": "loop:\n  runner.test.arg: [{args: {n: 'mark loop of {{ data.user }}'}}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := NewCluster(t, ClusterOptions{Extra: strings.ReplaceAll(reactorExtra, "DIR", dir)})
	for _, m := range c.Masters {
		path := filepath.Join(m.Dir, "srv", "orch", "one.sls")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(orchestrateOne), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	c.Start(t)
	c.AddMinions(t, "reacting", quick, "3008.3", "3006.28")
	lead := c.Leader(t, c.Masters[0])
	rest := c.Others(lead)
	stays, dies := rest[0], rest[1] // a watcher is on the master that is never killed
	w := watch(t, stays)
	Eventually(t, 90*time.Second, "all keys are pending",
		func() error { return hasKeys(t, stays, "minions_pre", c.IDs()) })
	if r := stays.Key(t, "-A", "-y"); r.Code != 0 {
		t.Fatalf("%v", r)
	}
	once := func(what string, marks ...string) {
		t.Helper()
		Eventually(t, 60*time.Second, "once: "+what, func() error {
			for _, mark := range marks {
				if got := w.reactedTo(t, mark); got != [3]int{1, 1, 1} {
					return fmt.Errorf("%q: local, runner and wheel %v times", mark, got)
				}
			}
			return nil
		})
	}

	// Each start event of a minion, however many it sent.
	Eventually(t, 90*time.Second, "reactions to the starts of minions", func() error {
		for _, id := range c.IDs() {
			starts := len(w.events(t, regexp.MustCompile(`^salt/minion/`+id+`/start$`)))
			if got := w.reactedTo(t, "start "+id); starts == 0 ||
				got != [3]int{starts, starts, starts} {
				return fmt.Errorf("%s: %d starts, reactions %v", id, starts, got)
			}
		}
		return nil
	})
	var all []string
	fromMasters := func(prefix string, masters ...*Master) (marks []string) {
		for _, m := range masters {
			for n := range 3 {
				mark := fmt.Sprintf("%s %s %d", prefix, m.ID, n)
				if r := m.Runner(t, "event.send", "my/tag", "{mark: "+mark+"}"); r.Code != 0 {
					t.Errorf("%v", r)
				}
				marks = append(marks, mark)
			}
		}
		all = append(all, marks...)
		return marks
	}
	fromMinions := func(prefix string) (marks []string) {
		for n := range 3 {
			mark := fmt.Sprintf("%s %d", prefix, n)
			id := c.IDs()[n%2]
			for _, tag := range []string{"my/tag", "salt/beacon/" + id + "/load/"} {
				if r := stays.Salt(t, id, "event.send", tag, "{mark: "+mark+tag+"}"); r.Code != 0 {
					t.Errorf("%v", r)
				}
				marks = append(marks, mark+tag)
			}
		}
		all = append(all, marks...)
		return marks
	}
	// across fires events on the master that stays, one after the other, during a fault of another.
	across := func(prefix string, fault func()) {
		t.Helper()
		stop, fired := make(chan struct{}), make(chan []string, 1)
		var count atomic.Int32
		go func() {
			var marks []string
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-stop:
					fired <- marks
					return
				case <-t.Context().Done():
					return
				case <-tick.C:
				}
				mark := fmt.Sprintf("%s %d", prefix, n)
				marks = append(marks, mark)
				if r, err := run(testOf(t), stays.programs.Run, "-c", stays.ConfDir, "event.send", "my/tag",
					"{mark: "+mark+"}"); err != nil || r.Code != 0 {
					t.Errorf("%v, %v", err, r)
				}
				count.Add(1)
			}
		}()
		fired5 := func() error {
			if n := count.Load(); n < 5 {
				return fmt.Errorf("%d", n)
			}
			return nil
		}
		Eventually(t, 30*time.Second, "events are fired", fired5)
		fault()
		count.Store(0)
		Eventually(t, 30*time.Second, "events are fired after it", fired5)
		close(stop)
		marks := <-fired
		all = append(all, marks...)
		once(prefix, marks...)
	}
	once("fired on every master", fromMasters("m", c.Masters...)...)
	once("fired by minions", fromMinions("b")...)

	// Every master finds a change in its own tree. It is reported and reacted to once.
	for _, m := range c.Masters {
		if err := os.WriteFile(filepath.Join(m.Dir, "srv", "once.txt"), []byte("x"),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range c.Masters {
		if r := m.Runner(t, "fileserver.update"); r.Code != 0 {
			t.Errorf("%v", r)
		}
	}
	Eventually(t, 90*time.Second, "a change of files is reacted to", func() error {
		if got := w.reactedTo(t, "files"); got != [3]int{0, 1, 0} {
			return fmt.Errorf("%v times", got)
		}
		return nil
	})
	if r := stays.Runner(t, "event.send", "my/orchestration", "{mark: orchestrated}"); r.Code != 0 {
		t.Errorf("%v", r)
	}
	Eventually(t, 60*time.Second, "an orchestration is run by a reaction", func() error {
		runs := w.events(t, regexp.MustCompile(`^salt/run/\d+/ret$`))
		if !slices.ContainsFunc(runs, func(e string) bool {
			return strings.Contains(e, `"fun": "runner.state.orchestrate"`) &&
				strings.Contains(e, "mark orchestrated") &&
				strings.Contains(e, `"user": "Reactor"`) && strings.Contains(e, `"success": true`)
		}) {
			return fmt.Errorf("not among %d runs", len(runs))
		}
		return nil
	})

	across("while a follower dies", func() { dies.Kill(t) })
	once("with a follower dead", fromMasters("follower", stays, lead)...)
	dies.Run(t)
	c.WaitReady(t, 60*time.Second, c.Masters...)
	before := len(ticks(t, c))
	across("while the leader dies", func() {
		lead.Kill(t)
		Eventually(t, 30*time.Second, "another one leads", func() error {
			if now := c.Leader(t, stays); now == lead {
				return fmt.Errorf("%s does", now.ID)
			}
			return nil
		})
	})
	once("with the leader dead", fromMasters("leader", stays, dies)...)
	Eventually(t, 60*time.Second, "the schedule goes on", func() error {
		if n := len(ticks(t, c)); n < before+5 {
			return fmt.Errorf("%d runs, %d before", n, before)
		}
		return nil
	})
	Eventually(t, 60*time.Second, "minions answer through the others", func() error {
		if got, r := stays.Ping(t); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	once("fired by minions with the leader dead", fromMinions("late")...)
	lead.Run(t)
	c.WaitReady(t, 60*time.Second, c.Masters...)

	// A leader that is frozen and then continues finds its claims stale.
	before = len(ticks(t, c))
	frozen := c.Leader(t, stays)
	if frozen == stays {
		if r := stays.Runner(t, "cluster.transfer_leader", lead.ID); r.Code != 0 {
			t.Fatalf("%v", r)
		}
		frozen = lead
		Eventually(t, 30*time.Second, "another one leads", func() error {
			if now := c.Leader(t, stays); now != frozen {
				return fmt.Errorf("%s does", now.ID)
			}
			return nil
		})
	}
	across("while the leader stands still", func() {
		frozen.Freeze(t)
		Eventually(t, 60*time.Second, "the schedule goes on without a frozen leader", func() error {
			if n := len(ticks(t, c)); n < before+5 {
				return fmt.Errorf("%d runs, %d before", n, before)
			}
			return nil
		})
		frozen.Thaw(t)
		c.WaitReady(t, 60*time.Second, c.Masters...)
	})

	// Changes by operators hold on every master, also on one that was dead.
	if r := lead.Runner(t, "reactor.add", "my/other",
		filepath.Join(dir, "react.sls")); r.Code != 0 ||
		!strings.Contains(r.Stdout, "Reactor added.") {
		t.Errorf("%v", r)
	}
	for _, m := range c.Masters {
		mark := "added " + m.ID
		if r := m.Runner(t, "event.send", "my/other", "{mark: "+mark+"}"); r.Code != 0 {
			t.Errorf("%v", r)
		}
		once("by an added reactor", mark)
	}
	if r := stays.Runner(t, "reactor.set_leader", "False"); r.Code != 0 || r.Stdout != "False\n" {
		t.Errorf("%v", r)
	}
	if r := dies.Runner(t, "reactor.is_leader"); r.Stdout != "False\n" {
		t.Errorf("%v", r)
	}
	off := fromMasters("off", c.Masters...)
	if r := dies.Runner(t, "reactor.set_leader"); r.Code != 0 || r.Stdout != "True\n" {
		t.Errorf("%v", r)
	}
	once("on again", fromMasters("on", c.Masters...)...)
	for _, mark := range off {
		if got := w.reactedTo(t, mark); got != [3]int{} {
			t.Errorf("%q was reacted to with reactors off: %v", mark, got)
		}
	}
	for _, mark := range append(all, "files") { // nothing came a second time
		if got := w.reactedTo(t, mark); got[0] > 1 || got[1] > 1 || got[2] > 1 {
			t.Errorf("%q: %v", mark, got)
		}
	}
	// Reactions end as events of runners too. There is no reaction to those of the user Reactor.
	if loops := w.reactedTo(t, "loop of Reactor"); loops != [3]int{} {
		t.Errorf("a reaction caused another: %v", loops)
	}
	if loops := w.reactedTo(t, "loop of root"); loops[1] < 10 {
		t.Errorf("operators' calls were not reacted to: %v", loops)
	}
	checkTicks(t, ticks(t, c))
	checkReturns(t, w)
	orchestrations := 0
	for _, m := range c.Masters {
		b, err := os.ReadFile(m.Log)
		if err != nil {
			t.Fatal(err)
		}
		orchestrations += strings.Count(string(b), "scheduled job runs name=orchestrating ")
	}
	if orchestrations != 1 {
		t.Errorf("an hour's orchestration was begun %d times", orchestrations)
	}
}

// ticks are the times of all runs of the entry tick, from the logs of all masters. The jid is the
// time at which the leader evaluated the entry.
func ticks(t *testing.T, c *Cluster) (at []time.Time) {
	t.Helper()
	run := regexp.MustCompile(`scheduled job runs name=tick fun=test.arg jid=(\d{20})`)
	for _, m := range c.Masters {
		b, err := os.ReadFile(m.Log)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range run.FindAllSubmatch(b, -1) {
			when, err := time.Parse("20060102150405.000000",
				string(found[1][:14])+"."+string(found[1][14:]))
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, when)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// checkTicks: two runs are a period apart, in whole seconds as the schedule counts.
func checkTicks(t *testing.T, at []time.Time) {
	t.Helper()
	if len(at) < 10 {
		t.Errorf("only %d runs", len(at))
	}
	for i := 1; i < len(at); i++ {
		if gap := at[i].Truncate(time.Second).Sub(at[i-1].Truncate(time.Second)); gap < 2*time.Second {
			t.Errorf("two runs in one period: %s and %s", at[i-1], at[i])
		}
	}
}

// checkReturns checks the events of the schedule.
func checkReturns(t *testing.T, w *watched) {
	t.Helper()
	seen := map[string]bool{}
	for _, data := range w.events(t, regexp.MustCompile(`^__schedule_return$`)) {
		var e struct {
			Cmd, ID, Fun, Schedule, JID string
			FunArgs                     []any `json:"fun_args"`
			Return                      any
			Retcode                     int
			Success                     bool
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		seen[e.Schedule] = true
		if e.Schedule == "orchestrating" {
			if !e.Success || !strings.Contains(data, "Runner function 'test.arg' executed.") {
				t.Errorf("the schedule's orchestration: %s", data)
			}
			continue
		}
		got := fmt.Sprint(e.Cmd, e.Fun, e.JID, e.FunArgs, e.Return, e.Retcode, e.Success)
		want := map[string]string{
			"tick": fmt.Sprint("_return", "test.arg", "req", []any{"tick"},
				map[string]any{"args": []any{"tick"}, "kwargs": map[string]any{}}, 0, true),
			"failing": fmt.Sprint("_return", "error.error", "req",
				[]any{map[string]any{"name": "ValueError", "message": "wrong"}},
				"Unhandled exception running error.error", 254, false),
		}[e.Schedule]
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if !seen["tick"] {
		t.Error("no return of the schedule")
	}
}
