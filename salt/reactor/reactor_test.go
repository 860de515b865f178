package reactor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/salt/function"
	"clustermaster/salt/render"
	"clustermaster/salt/render/rendertest"
	"clustermaster/serve/event"
	"clustermaster/test/logtest"
	"clustermaster/value"
)

func TestMain(m *testing.M) { rendertest.Main(m) }

// nothing is a Host without functions and files.
type nothing struct{}

func (nothing) Call(_ context.Context, fun string, _ []any, _ value.Map) (any, error) {
	return nil, fmt.Errorf("%s: %w", fun, render.ErrUnknownFunction)
}
func (nothing) File(context.Context, string, string) ([]byte, bool, error) {
	return nil,
		false, nil
}

// world is what a reactor of a test does.
type world struct {
	*Reactor
	bus *event.Bus
	dir string
	log *logtest.Buffer

	metrics *prometheus.Registry

	mu   sync.Mutex // guards what follows
	done []string
	hold chan struct{} // runner functions wait for it
	c    Changes
}

func (w *world) note(form string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, fmt.Sprintf(form, args...))
}

func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.done)
}

func (w *world) change(c Changes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.c = c
}

// newWorld runs a reactor with these rules (tag to files below its folder) and files.
func newWorld(t testing.TB, rules map[string][]string, files map[string]string, o Options) *world {
	t.Helper()
	r := rendertest.Renderer()
	w := &world{bus: event.NewBus(0, nil, nil), dir: t.TempDir(), log: &logtest.Buffer{},
		metrics: prometheus.NewRegistry()}
	for name, text := range files {
		path := filepath.Join(w.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for tag, list := range rules {
		var paths []any
		for _, f := range list {
			if !strings.HasPrefix(f, "salt://") {
				f = filepath.Join(w.dir, f)
			}
			paths = append(paths, f)
		}
		o.Rules = append(o.Rules, Rule{tag, paths})
	}
	if o.Renderer == "" {
		o.Renderer = "jinja|yaml"
	}
	w.Reactor = New(Deps{
		Bus: w.bus, Renderer: r, Host: nothing{},
		File: func(env, path string) (string, []byte, bool, error) {
			b, err := os.ReadFile(filepath.Join(w.dir, env, path))
			return filepath.Join(w.dir, env, path), b, err == nil, nil
		},
		Changes: func() Changes {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.c
		},
		Publish: func(_ context.Context, j Job) error {
			w.note("local %s %v %s", j.Fun, j.Tgt, value.Repr(j.Args))
			return nil
		},
		Run: func(ctx context.Context, client string, c Call) {
			if hold := w.hold; hold != nil {
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			w.note("%s %s %s", client, c.Fun, value.Repr(c.Kwargs))
		},
		Caller: func(_ context.Context, c Call) error {
			w.note("caller %s %s", c.Fun,
				value.Repr(c.Args))
			return nil
		},
		Signature: func(_, fun string) (function.Signature, bool) {
			return function.Signature{VarKwargs: true}, fun != "nosuch.fun"
		},
	}, o, slog.New(slog.NewTextHandler(w.log, nil)), w.metrics)
	return w
}

// run runs the reactor until the test ends.
func (w *world) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for !w.bus.Wanted(w.opts.Rules[0].Tag) {
		time.Sleep(time.Millisecond) // until it has subscribed
	}
}

// until waits for the reactions so far to be these, in any order.
func (w *world) until(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = w.took(); len(got) >= len(want) {
			slices.Sort(got)
			if slices.Equal(got, want) {
				return
			}
			if len(got) > len(want) {
				break
			}
		}
	}
	t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func data(pairs ...any) value.Map {
	var m value.Map
	for i := 0; i < len(pairs); i += 2 {
		key, _ := pairs[i].(string)
		m = append(m, value.Pair{Key: key, Value: pairs[i+1]})
	}
	return m
}

const sayN = "{{ tag }}:\n  runner.test.arg: [{args: {n: '{{ data.n }}'}}]\n"

// Equal templates with other data are rendered again; events of the reactor itself, and those that
// tell of it, are not reacted to.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string][]string{"*": {"n.sls"}}, map[string]string{"n.sls": sayN},
		Options{WorkerThreads: 4, WorkerHWM: 100})
	w.run(t)
	for n := range 3 {
		w.bus.Fire("a/b", data("n", int64(n)))
	}
	w.bus.Fire("a/b", data("n", int64(1)))
	w.bus.Fire("a/b", data("n", "by itself", "user", User))
	w.bus.Fire("salt/reactors/manage/add-complete", data("n", "manage"))
	w.bus.Fire("salt/run/1/salt/reactors/manage/add", data("n", "manage"))
	w.bus.Fire("end", data("n", "end", "user", "root"))
	w.until(t, "runner test.arg {'n': '0'}", "runner test.arg {'n': '1'}",
		"runner test.arg {'n': '1'}", "runner test.arg {'n': '2'}", "runner test.arg {'n': 'end'}")
}

// A reaction that panics, while it is made or while it runs, ends neither the reactor nor the
// master.
func TestCrashOfAReaction(t *testing.T) {
	t.Parallel()
	const caller = "c:\n  caller.test.arg: [{args: [1]}]\n"
	w := newWorld(t, map[string][]string{"end": {"n.sls"}, "file": {"salt://crash.sls"}, "run": {"n.sls"},
		"call": {"c.sls"}}, map[string]string{"n.sls": sayN, "c.sls": caller},
		Options{WorkerThreads: 1, WorkerHWM: 10})
	run := w.deps.Run
	w.deps.Run = func(ctx context.Context, client string, c Call) {
		if strings.Contains(value.Repr(c.Kwargs), "crash") {
			panic("in a runner function")
		}
		run(ctx, client, c)
	}
	w.deps.Caller = func(context.Context, Call) error { panic("in an execution function") }
	w.deps.File = func(_, path string) (string, []byte, bool, error) { panic("in the file " + path) }
	w.run(t)
	w.bus.Fire("file", data("n", "1"))
	w.bus.Fire("run", data("n", "crash"))
	w.bus.Fire("call", data("n", "1"))
	w.bus.Fire("end", data("n", "end"))
	w.until(t, "runner test.arg {'n': 'end'}")
	for _, where := range []string{"a runner function", "an execution function", "the file crash.sls"} {
		if log := w.log.String(); !strings.Contains(log, "in "+where) || !strings.Contains(log, "reactor_test.go") {
			t.Errorf("the crash in %s is not in the log: %s", where, log)
		}
	}
}

// What operators change counts from the next event on.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string][]string{"a": {"n.sls"}, "end": {"n.sls"}},
		map[string]string{"n.sls": sayN}, Options{WorkerThreads: 1, WorkerHWM: 10})
	w.run(t)
	file := filepath.Join(w.dir, "n.sls")
	var reactions []string
	// step fires events under changes, and waits for the reactions to these tags. The rules of an
	// event are those of the moment at which it is taken.
	step := func(n string, c Changes, tags ...string) {
		w.change(c)
		for _, tag := range []string{"a", "b", "end"} {
			w.bus.Fire(tag, data("n", n+tag))
		}
		for _, tag := range tags {
			reactions = append(reactions, "runner test.arg {'n': '"+n+tag+"'}")
		}
		w.until(t, reactions...)
	}
	added := []Rule{{"b", []any{file}}}
	step("0", Changes{}, "a", "end")
	step("1", Changes{Deleted: []string{"a"}}, "end")
	step("2", Changes{Added: added, Deleted: []string{"a"}}, "b", "end")
	step("3", Changes{Off: true, Added: added})
	step("4", Changes{Added: added}, "a", "b", "end")
	if got := effective(w.opts.Rules, Changes{Added: []Rule{{"b", "x"}},
		Deleted: []string{"a"}}); len(got) != 2 || got[0].Tag != "end" || got[1].Tag != "b" {
		t.Errorf("rules %v", got)
	}
}

// Runner functions that take their time hold up neither jobs nor events; as many wait as
// reactor_worker_hwm says, and those beyond are dropped, counted and logged.
func TestHWM(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string][]string{"r": {"n.sls"}, "l": {"l.sls"}},
		map[string]string{"n.sls": sayN,
			"l.sls": "l:\n  local.test.ping: [{tgt: '{{ data.n }}'}]\n"},
		Options{WorkerThreads: 2, WorkerHWM: 3})
	w.hold = make(chan struct{})
	w.run(t)
	const fired = 10
	for n := range fired {
		w.bus.Fire("r", data("n", int64(n)))
	}
	w.bus.Fire("l", data("n", "past them"))
	w.until(t, "local test.ping past them []")
	close(w.hold)
	var dropped, ran int
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) &&
		dropped+ran < fired; time.Sleep(5 * time.Millisecond) {
		dropped, ran = int(w.counted(t, "dropped")), len(w.took())-1
	}
	// Two are with the workers and three wait, unless the workers had not taken theirs yet.
	if dropped+ran != fired || ran < 3 || ran > 5 {
		t.Errorf("%d dropped and %d run of %d", dropped, ran, fired)
	}
	if n := strings.Count(w.log.String(), "TaskPool queue is full!"); n != dropped {
		t.Errorf("%d of %d drops are logged", n, dropped)
	}
}

// counted is the number of runner reactions with this outcome.
func (w *world) counted(t *testing.T, outcome string) float64 {
	t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := m.GetLabel()
			if f.GetName() == "clustermaster_reactor_reactions_total" && len(labels) == 2 &&
				labels[0].GetValue() == "runner" && labels[1].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestFiles(t *testing.T) {
	t.Parallel()
	say := func(n string) string { return n + ":\n  runner.test.arg: [{args: {n: " + n + "}}]\n" }
	w := newWorld(t, map[string][]string{
		"glob": {"g/*.sls", "g/[!ab].txt"}, "salt": {"salt://s.sls", "salt://d.sls?saltenv=dev",
			"salt://none.sls"}, "none": {"none.sls", "last.sls"},
		"deep": {"*/deep/x.sls"}, "empty": {"empty.sls", "last.sls"},
	}, map[string]string{
		"g/a.sls": say("a"), "g/b.sls": say("b"), "g/.h.sls": say("hidden"), "g/c.txt": say("c"),
		"g/a.txt":    say("not"),
		"base/s.sls": say("s"), "dev/d.sls": say("d"), "last.sls": say("last"),
		"p/deep/x.sls": say("p"), "q/deep/x.sls": say("q"), "empty.sls": "\n  \n",
	}, Options{WorkerThreads: 1, WorkerHWM: 100})
	w.run(t)
	for _, tag := range []string{"glob", "salt", "none", "deep", "empty"} {
		w.bus.Fire(tag, value.Map{})
	}
	var want []string
	for _, n := range []string{"a", "b", "c", "s", "d", "last", "p", "q", "last"} {
		want = append(want, "runner test.arg {'n': '"+n+"'}")
	}
	w.until(t, want...)
}

// A wrong reaction is logged in Salt's words, and the next event is reacted to.
func TestWrong(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"ok.sls":     sayN,
		"jinja.sls":  "x:\n  runner.test.arg: [{{ nosuch.a.b }}]\n",
		"colon.sls":  "x:\n  runner.test.arg:\n",
		"list.sls":   "- x\n",
		"kind.sls":   "x:\n  ssh.test.ping: [{tgt: a}]\n",
		"empty.sls":  "x:\n  runner.test.arg: [{args: []}]\n",
		"nofun.sls":  "x:\n  runner.nosuch.fun: [{args: {a: 1}}]\n",
		"notgt.sls":  "x:\n  local.test.ping: []\n",
		"number.sls": "x:\n  local.test.ping: [{tgt: a}, {arg: 5}]\n",
	}
	said := map[string]string{
		"jinja":   `Failed to render \"DIR/jinja.sls\": `,
		"colon":   "Unable to render reactions for event w/colon due to errors (ID 'x' in SLS 'DIR/colon.sls' contains a short declaration",
		"list":    `Failed to render \"DIR/list.sls\"`,
		"kind":    "ReactWrap is missing a wrapper function for 'ssh'",
		"missing": "Can not render SLS DIR/missing.sls for tag w/missing. File missing or not found.",
		"empty":   "Reactor 'x' failed to execute runner 'test.arg'\" sls=DIR/empty.sls err=\"Incorrect argument format, check the Reactor System documentation for the correct format.",
		"nofun":   "Reactor 'x' failed to execute runner 'nosuch.fun'\" sls=DIR/nofun.sls err=\"function not available", "notgt": "Reactor 'x' failed to execute local 'test.ping'", "number": "arg is 5; write a list",
	}
	rules := map[string][]string{"end": {"ok.sls"}}
	for name := range said {
		rules["w/"+name] = []string{name + ".sls"}
	}
	w := newWorld(t, rules, files, Options{WorkerThreads: 1, WorkerHWM: 100})
	w.run(t)
	for name := range said {
		w.bus.Fire("w/"+name, value.Map{})
	}
	w.bus.Fire("end", data("n", "end"))
	w.until(t, "runner test.arg {'n': 'end'}")
	log := strings.ReplaceAll(w.log.String(), w.dir, "DIR")
	for name, text := range said {
		if !strings.Contains(strings.ReplaceAll(log, `component=reactor `, ""), text) &&
			!strings.Contains(log, text) {
			t.Errorf("%s: no %q in\n%s", name, text, log)
		}
	}
}

// BenchmarkReactions: events to reactions, each of a Jinja template that reads the event.
func BenchmarkReactions(b *testing.B) {
	for name, text := range map[string]string{"jinja": "r:\n  local.test.ping: [{tgt: '{{ data.n }}'}]\n", "plain": "r:\n  local.test.ping: [{tgt: a}]\n"} {
		b.Run(name, func(b *testing.B) {
			opts := value.Map{}
			for i := range 500 { // as many as a master has
				opts = append(opts, value.Pair{Key: fmt.Sprintf("option_%d", i), Value: "value"})
			}
			w := newWorld(b, map[string][]string{"r": {"r.sls"}}, map[string]string{"r.sls": text},
				Options{WorkerThreads: 10, WorkerHWM: 10000, Opts: opts})
			// starts the worker
			chunks := w.reactions(context.Background(), "r", data("n", int64(0)),
				[]any{filepath.Join(w.dir, "r.sls")})
			if len(chunks) != 1 {
				b.Fatal(w.log.String())
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				packed, err := value.Pack(data("n", int64(n), "_stamp",
					"2026-11-21T09:32:30.576440"))
				if err != nil {
					b.Fatal(err)
				}
				w.react(context.Background(), event.Event{Tag: "r", Data: packed})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reactions/s")
		})
	}
}
