package orchestrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/salt/function"
	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/statemodules"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

// with makes an orchestrator of high data with functions of the test's own beside test.*.
func with(deps orchestrate.Deps, o orchestrate.Options,
	own orchestrate.Table) *orchestrate.Orchestrator {
	all := statemodules.Test()
	for name, f := range own {
		all[name] = f
	}
	deps.Functions = all
	if deps.Modules == nil {
		deps.Modules = noModules{}
	}
	if deps.Pillar == nil {
		deps.Pillar = func(context.Context, string, value.Map, string, string,
			value.Map) (value.Map, error) {
			return nil, nil
		}
	}
	o.ID, o.AutoOrder = "master1", true
	return orchestrate.New(deps, o, nil, nil)
}

func stateOf(run func(ctx context.Context, c orchestrate.Call) (value.Map,
	error)) orchestrate.Function {
	return orchestrate.Function{Params: []function.Param{function.Need("name")}, VarKwargs: true,
		Run: run}
}

// high runs high data of a YAML text.
func high(t *testing.T, ctx context.Context, o *orchestrate.Orchestrator, text string) (value.Map,
	error) {
	t.Helper()
	ret, err := o.High(ctx, salttrees.YAML(t, text),
		orchestrate.Request{JID: "20260101000000000000", User: "root"})
	m, ok := ret.(value.Map)
	if err == nil && !ok {
		t.Fatalf("not compiled: %v", ret)
	}
	return m, err
}

// results are the ids with their results, in the order of the run.
func results(ret value.Map) (out []string) {
	for _, p := range ret {
		one := p.Value.(value.Map)
		result, _ := one.Get("result")
		out = append(out, fmt.Sprintf("%s=%v", strings.Split(p.Key.(string), "_|-")[1], result))
	}
	return out
}

// TestCancelled: a run ends when its context does, whatever a state is at: its function, a parallel
// one, the time between retries.
func TestCancelled(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"function": "a: {own: [wait]}\nb: {own: [never]}",
		"parallel": "a: {own: [wait, {parallel: true}]}\nb: {own: [never, {require: [{own: a}]}]}",
		"retry":    "a: {own: [fail, {retry: {attempts: 9, interval: 3600}}]}\nb: {own: [never]}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			o := with(orchestrate.Deps{}, orchestrate.Options{}, orchestrate.Table{
				"own.wait": stateOf(func(ctx context.Context, c orchestrate.Call) (value.Map,
					error) {
					cancel()
					<-ctx.Done()
					return nil, ctx.Err()
				}),
				"own.fail": stateOf(func(_ context.Context, c orchestrate.Call) (value.Map, error) {
					time.AfterFunc(10*time.Millisecond, cancel)
					return orchestrate.Return(c.Name, nil, false, "no"), nil
				}),
				"own.never": stateOf(func(context.Context, orchestrate.Call) (value.Map, error) {
					t.Error("a state ran after the end")
					return nil, nil
				}),
			})
			if _, err := high(t, ctx, o, text); !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// TestParallelStatesRunAtOnce: two that wait for each other both end; with state_max_parallel 1 the
// second begins after the first.
func TestParallelStatesRunAtOnce(t *testing.T) {
	t.Parallel()
	text := "a: {own: [meet, {parallel: true}]}\nb: {own: [meet, {parallel: true}]}\nc: {test: [nop, {require: [{own: a}, {own: b}]}]}"
	met := make(chan string)
	o := with(orchestrate.Deps{}, orchestrate.Options{},
		orchestrate.Table{"own.meet": stateOf(func(ctx context.Context,
			c orchestrate.Call) (value.Map, error) {
			select {
			case met <- c.Name:
			case other := <-met:
				return orchestrate.Return(c.Name, nil, true, "met "+other), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return orchestrate.Return(c.Name, nil, true, "was met"), nil
		})})
	ret, err := high(t, t.Context(), o, text)
	if got := results(ret); err != nil ||
		!slices.Equal(got, []string{"a=true", "b=true", "c=true"}) {
		t.Error(got, err)
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		o := with(orchestrate.Deps{}, orchestrate.Options{MaxParallel: 1},
			orchestrate.Table{"own.meet": stateOf(func(_ context.Context,
				c orchestrate.Call) (value.Map, error) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Millisecond) // until all that may begin has begun
				mu.Lock()
				now--
				mu.Unlock()
				return orchestrate.Return(c.Name, nil, true, ""), nil
			})})
		ret, err := high(t, t.Context(), o, text)
		if got := results(ret); err != nil || most != 1 ||
			!slices.Equal(got, []string{"a=true", "b=true", "c=true"}) {
			t.Error(got, err, "at once:", most)
		}
	})
}

// TestReturnsSoFar: a parallel state sees the returns as they were when it began, whatever ends
// meanwhile. A listener sees the low data of the listeners.
func TestReturnsSoFar(t *testing.T) {
	t.Parallel()
	begun, settled := make(chan struct{}), make(chan struct{})
	late := stateOf(func(ctx context.Context, c orchestrate.Call) (value.Map, error) {
		close(begun)
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return orchestrate.Return(c.Name, nil, true, fmt.Sprint(results(c.Running))), nil
	})
	late.Wants.Running = true
	hears := stateOf(func(_ context.Context, c orchestrate.Call) (value.Map, error) {
		return orchestrate.Return(c.Name, nil, true, fmt.Sprint(len(c.Lowstate))), nil
	})
	hears.Wants.Lowstate = true
	o := with(orchestrate.Deps{}, orchestrate.Options{}, orchestrate.Table{
		"own.late": late, "own.hears": hears, "own.mod_watch": hears,
		"own.soon": stateOf(func(ctx context.Context, c orchestrate.Call) (value.Map, error) {
			select {
			case <-begun:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return orchestrate.Return(c.Name, nil, true, ""), nil
		}),
		"own.settles": stateOf(func(_ context.Context, c orchestrate.Call) (value.Map, error) {
			close(settled)
			return orchestrate.Return(c.Name, value.Map{{Key: "a", Value: "b"}}, true, ""), nil
		}),
	})
	ret, err := high(t, t.Context(), o, "a: {own: [soon, {parallel: true}]}\n"+
		"b: {own: [late, {parallel: true}]}\nc: {own: [settles, {require: [{own: a}]}]}\n"+
		"d: {own: [hears, {listen: [{own: c}]}]}")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, p := range ret {
		said[strings.Split(p.Key.(string), "_|-")[1]] = p.Value.(value.Map).String("comment")
	}
	if said["b"] != "[a=<nil>]" || said["d"] != "4" || said["listener_d"] != "1" {
		t.Errorf("%q", said)
	}
}

// asked are pauses of a test.
type asked struct {
	mu        sync.Mutex
	of        value.Map
	forgotten string
	looks     int
	err       error
}

func (a *asked) Pause(context.Context, string) (value.Map, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks++
	return slices.Clone(a.of), a.err
}

func (a *asked) Forget(_ context.Context, jid string) error {
	a.forgotten = jid
	return nil
}

func (a *asked) set(m value.Map) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of = m
}

// TestPauses: a run waits before a state, or all of them, until it is resumed or the time is over;
// it ends before the one that is killed.
func TestPauses(t *testing.T) {
	t.Parallel()
	const text = "a: {test: [nop]}\nb: {test: [nop]}\nc: {test: [nop]}"
	for _, c := range []struct {
		name   string
		asked  string
		resume time.Duration
		took   [2]time.Duration
		ran    []string
	}{
		{"nothing", "{}", 0, [2]time.Duration{0, 0}, []string{"a=true", "b=true", "c=true"}},
		{"duration", "b: {duration: 60}", 0, [2]time.Duration{60 * time.Second, 62 * time.Second},
			[]string{"a=true", "b=true", "c=true"}},
		{"resumed", "__all__: {}", 30 * time.Second,
			[2]time.Duration{30 * time.Second, 32 * time.Second},
			[]string{"a=true", "b=true", "c=true"}},
		{"killed", "b: {kill: true}", 0, [2]time.Duration{0, 0}, []string{"a=true"}},
		{"all killed", "__all__: {kill: true}", 0, [2]time.Duration{0, 0}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &asked{of: salttrees.YAML(t, c.asked)}
				if c.resume > 0 {
					time.AfterFunc(c.resume, func() { a.set(nil) })
				}
				began := time.Now()
				ret, err := high(t, t.Context(),
					with(orchestrate.Deps{Pauses: a}, orchestrate.Options{}, nil), text)
				took := time.Since(began)
				if got := results(ret); err != nil || !slices.Equal(got, c.ran) ||
					took < c.took[0] || took > c.took[1] {
					t.Errorf("ran %q in %v: %v", got, took, err)
				}
				if a.forgotten != "20260101000000000000" {
					t.Error("the pause stays")
				}
			})
		})
	}
	a := &asked{err: errors.New("no quorum")}
	if ret, err := high(t, t.Context(), with(orchestrate.Deps{Pauses: a}, orchestrate.Options{},
		nil), text); err != nil || len(ret) != 3 {
		t.Errorf("pauses that can't be read stop a run: %v %v", ret, err)
	}
}

// TestReturnsOfFunctions: what functions may give back, wrong as it may be, becomes a return.
func TestReturnsOfFunctions(t *testing.T) {
	t.Parallel()
	give := func(ret value.Map, err error) orchestrate.Function {
		return stateOf(func(context.Context, orchestrate.Call) (value.Map,
			error) {
			return slices.Clone(ret), err
		})
	}
	o := with(orchestrate.Deps{}, orchestrate.Options{}, orchestrate.Table{
		"own.nothing": give(nil, nil), "own.changes": give(value.Map{{Key: "changes", Value: "x"}},
			nil), "own.little": give(value.Map{{Key: "changes", Value: value.Map{}}}, nil),
		"own.number": give(orchestrate.Return("n", nil, int64(5), []any{"one", int64(2)}), nil),
		"own.error":  give(nil, errors.New("it broke")),
		"own.panic": stateOf(func(context.Context, orchestrate.Call) (value.Map,
			error) {
			panic("oh")
		}),
		"own.sub": give(append(orchestrate.Return("n", nil, true, ""),
			value.Pair{Key: "sub_state_run", Value: []any{value.Map{
				{Key: "low", Value: value.Map{{Key: "state", Value: "x"},
					{Key: "__id__", Value: "y"},
					{Key: "name", Value: "z"}, {Key: "fun", Value: "f"}}},
				{Key: "result", Value: false}, {Key: "changes", Value: value.Map{}},
			}}}), nil),
	})
	ret, err := high(t, t.Context(), o,
		"nothing: {own: [nothing]}\nchanges: {own: [changes]}\nlittle: {own: [little]}\nnumber: {own: [number]}\nerror: {own: [error]}\npanic: {own: [panic]}\nsub: {own: [sub]}")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"nothing": "An exception occurred in this state: Malformed state return. Data must be a dictionary type.", "changes": "An exception occurred in this state: 'Changes' should be a dictionary.",
		"little": "An exception occurred in this state: The following keys were not present in the state return: name, result, comment.", "number": "one\n2",
		"error": "An exception occurred in this state: it broke\n",
		"panic": "An exception occurred in this state: function own.panic crashed: oh; the " +
			"master's log has the details\n", "sub": "", "y": "",
	}
	for _, p := range ret {
		one := p.Value.(value.Map)
		id := strings.Split(p.Key.(string), "_|-")[1]
		if comment, _ := one.Get("comment"); comment != want[id] {
			t.Errorf("%s: %q, want %q", id, comment, want[id])
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("no return of %v", want)
	}
	if got := results(ret); !slices.Contains(got, "number=true") ||
		!slices.Contains(got, "y=false") {
		t.Error(got)
	}
}

// TestReloadPillar: a state may have the pillar made anew for those after it; the caller's override
// stays on top.
func TestReloadPillar(t *testing.T) {
	t.Parallel()
	made := 0
	var seen []string
	o := with(orchestrate.Deps{Pillar: func(_ context.Context, id string, _ value.Map, saltenv,
		_ string, over value.Map) (value.Map, error) {
		made++
		return value.Map{{Key: "n", Value: int64(made)}, {Key: "id", Value: id}}, nil
	}}, orchestrate.Options{MergeStrategy: "recurse"},
		orchestrate.Table{"own.see": stateOf(func(_ context.Context, c orchestrate.Call) (value.Map,
			error) {
			n, _ := c.Master.Pillar.Get("n")
			seen = append(seen, fmt.Sprint(n, c.Master.Pillar.String("id"), c.Env))
			return orchestrate.Return(c.Name, nil, true, ""), nil
		})})
	_, err := o.High(t.Context(), salttrees.YAML(t,
		"a: {own: [see, {reload_pillar: true}]}\nb: {own: [see, {saltenv: dev}]}"),
		orchestrate.Request{Pillar: value.Map{{Key: "id", Value: "over"}}})
	if want := []string{"1overbase", "2overdev"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("%q, want %q: %v", seen, want, err)
	}
}

// TestArguments: a function gets its parameters, given or default, then further keywords, and
// nothing of the compiler's own.
func TestArguments(t *testing.T) {
	t.Parallel()
	var got []string
	see := func(_ context.Context, c orchestrate.Call) (value.Map, error) {
		got = append(got, strings.TrimSpace(fmt.Sprintln(c.Fun, c.SFun, c.Args, c.Test, c.User,
			c.ID, c.SLS, c.Umask, c.Watched)))
		return orchestrate.Return(c.Name, nil, true, ""), nil
	}
	o := with(orchestrate.Deps{}, orchestrate.Options{}, orchestrate.Table{
		"own.some": {Params: []function.Param{function.Need("name"),
			function.Opt("size", int64(3)), function.Opt("onlyif", nil)}, Run: see},
		"own.mod_watch": {Params: []function.Param{function.Need("name"), function.Need("sfun")},
			VarKwargs: true, Run: see},
	})
	_, err := high(t, t.Context(), o,
		"c: {test: [succeed_with_changes]}\na: {__sls__: s, own: [some, {size: 5}, {umask: '077'}, {runas: x}, {order: 5}, {watch: [{test: c}]}]}")
	want := []string{"some  [{name a} {size 5} {onlyif <nil>}] false root a s 63 []",
		"mod_watch some [{name a} {sfun some} {size 5}] false root a s 63 [{test c true}]"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q\n%v", got, want, err)
	}
}

// TestPillarOverride: an override is decrypted by a renderer that may do that, and lies over the
// master's pillar; with another renderer it stays as it is.
func TestPillarOverride(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ enc, want string }{{"", "sealed kept"}, {"GPG", "plain kept"},
		{"yaml", "sealed kept"}} {
		var seen string
		o := with(orchestrate.Deps{
			Pillar: func(context.Context, string, value.Map, string, string, value.Map) (value.Map,
				error) {
				return value.Map{{Key: "a", Value: "old"}, {Key: "b", Value: "kept"}}, nil
			},
			Decrypt: func(_ context.Context, v any, renderer string) (any, error) {
				if renderer != "gpg" {
					t.Errorf("decrypted by %s", renderer)
				}
				return v.(value.Map).Set("a", "plain"), nil
			},
		}, orchestrate.Options{DecryptRenderers: []string{"gpg"}},
			orchestrate.Table{"own.see": stateOf(func(_ context.Context,
				c orchestrate.Call) (value.Map, error) {
				seen = c.Master.Pillar.String("a") + " " + c.Master.Pillar.String("b")
				return orchestrate.Return(c.Name, nil, true, ""), nil
			})})
		_, err := o.High(t.Context(), salttrees.YAML(t, "a: {own: [see]}"),
			orchestrate.Request{Pillar: value.Map{{Key: "a", Value: "sealed"}}, PillarEnc: c.enc})
		if err != nil || seen != c.want {
			t.Errorf("%q: %q, want %q: %v", c.enc, seen, c.want, err)
		}
	}
}

// answering is Modules in which a command's retcode is 1 if it is "false".
type answering struct{}

func (answering) Has(_ context.Context, name string) bool { return name == "cmd.retcode" }

func (answering) Call(_ context.Context, _ modules.Minion, _ string, args []any,
	_ value.Map) (any, error) {
	if args[0] == "false" {
		return int64(1), nil
	}
	return int64(0), nil
}

// TestCheckCmdOfOthers: check_cmd judges each function but those that have a parameter of that name
// in a module with mod_run_check_cmd, such as file.managed.
func TestCheckCmdOfOthers(t *testing.T) {
	t.Parallel()
	done := stateOf(func(_ context.Context, c orchestrate.Call) (value.Map, error) {
		return orchestrate.Return(c.Name, nil, true, "done"), nil
	})
	judges := done
	judges.Params = append(slices.Clone(done.Params), function.Opt("check_cmd", nil))
	o := with(orchestrate.Deps{Modules: answering{}}, orchestrate.Options{},
		orchestrate.Table{"file.managed": judges, "file.directory": done,
			"file.mod_run_check_cmd": done, "other.judges": judges})
	ret, err := high(t, t.Context(), o, "a: {file: [managed, {check_cmd: 'false'}]}\n"+
		"b: {file: [directory, {check_cmd: 'false'}]}\nc: {other: [judges, {check_cmd: 'false'}]}\n"+
		"d: {file: [directory, {check_cmd: 'true'}]}")
	if got := results(ret); err != nil ||
		!slices.Equal(got, []string{"a=true", "b=false", "d=true", "c=false"}) {
		t.Error(got, err)
	}
}
