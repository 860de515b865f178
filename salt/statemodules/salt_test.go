package statemodules

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/salt/function"
	"clustermaster/salt/gather"
	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/output"
	"clustermaster/test/answers"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// prepared is a master whose minions and runners answer as a case of testdata/cases.yaml says.
type prepared struct {
	c       value.Map
	mu      sync.Mutex // guards calls, events, streams
	calls   []any
	events  []any
	streams map[string][]stream // of jobs, by jid
	made    atomic.Int64        // job ids
}

func (p *prepared) minions() value.Map {
	v, _ := p.c.Get("minions")
	m, _ := v.(value.Map)
	return m
}

// stream is a subscription that delivers the prepared events and then nothing.
type stream chan gather.Event

func (s stream) C() <-chan gather.Event { return s }
func (s stream) Close()                 {}

func packed(t any) value.Raw {
	b, err := value.Pack(t)
	if err != nil {
		panic(err)
	}
	return b
}

// Subscribe implements gather.Master. Publish delivers a job's events.
func (p *prepared) Subscribe(_ context.Context, prefix string) (gather.Events, error) {
	s := make(stream, 100)
	if seen, ok := p.c.Get("seen"); ok {
		for _, e := range seen.([]any) {
			tag := e.([]any)[0].(string)
			if strings.HasPrefix(tag, prefix) {
				s <- gather.Event{Tag: tag, Data: packed(e.([]any)[1])}
			}
		}
		return s, nil
	}
	jid := strings.Split(prefix, "/")[2]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams == nil {
		p.streams = make(map[string][]stream)
	}
	p.streams[jid] = append(p.streams[jid], s)
	return s, nil
}

// Publish implements gather.Master.
func (p *prepared) Publish(_ context.Context, job gather.Publish) (gather.Published, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := gather.Published{JID: job.JID}
	if job.Fun != "saltutil.find_job" {
		p.calls = append(p.calls, []any{job.Fun, value.Plain(job.Tgt), job.TgtType,
			append([]any{}, job.Arg...)})
	}
	if e := p.c.String("error"); e != "" {
		out.Error = e
		return out, nil
	}
	for _, m := range p.minions() {
		out.Minions = append(out.Minions, m.Key.(string))
	}
	missing, _ := p.c.Get("missing")
	for _, id := range elements(missing) {
		out.Missing = append(out.Missing, id.(string))
	}
	if job.Fun == "saltutil.find_job" {
		return out, nil
	}
	if len(out.Minions) == 0 {
		out.Error = "Master could not resolve minions for target x"
	}
	if only, ok := job.Tgt.([]string); ok && job.TgtType == "list" {
		out.Minions = slices.DeleteFunc(out.Minions,
			func(id string) bool { return !slices.Contains(only, id) })
	}
	for _, m := range p.minions() {
		id, does := m.Key.(string), m.Value.(value.Map)
		ret, returns := does.Get("ret")
		if !returns || !slices.Contains(out.Minions, id) {
			continue
		}
		code, told := does.Get("retcode")
		if !told {
			code = int64(0)
		}
		e := gather.Event{Tag: "salt/job/" + job.JID + "/ret/" + id,
			Data: packed(value.Map{{Key: "id", Value: id}, {Key: "return", Value: ret},
				{Key: "retcode", Value: code}})}
		for _, s := range p.streams[job.JID] {
			s <- e
		}
	}
	return out, nil
}

// NewJID implements gather.Master.
func (p *prepared) NewJID(context.Context) (string, error) {
	return fmt.Sprintf("2026112112000000000%d", p.made.Add(1)), nil
}

// ReadReturns implements gather.Master.
func (p *prepared) ReadReturns(context.Context, string, []string,
	func(string, gather.Return) error) error {
	return nil
}

func (p *prepared) functions(name string) ([]any, bool) {
	v, _ := p.c.Get("functions")
	m, _ := v.(value.Map)
	params, ok := m.Get(name)
	return elements(params), ok
}

// Takes implements Runners.
func (p *prepared) Takes(_ bool, fun, param string) bool {
	params, _ := p.functions(fun)
	return slices.Contains(params, any(param)) || slices.Contains(params, any(param+"=None"))
}

// Check implements Runners.
func (p *prepared) Check(o Order) (Order, error) {
	if _, ok := p.functions(o.Fun); !ok {
		return o, fmt.Errorf("'%s' is not available.", o.Fun) // Salt's text
	}
	return o, nil
}

// Run implements Runners.
func (p *prepared) Run(_ context.Context, o Order) (Outcome, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	word := "runner"
	if o.Wheel {
		word = "wheel"
	}
	p.calls = append(p.calls, []any{word, o.Fun, append([]any{}, o.Args...),
		append(value.Map{}, o.Kwargs...)})
	v, _ := p.c.Get("returns")
	ret, _ := v.(value.Map).Get(o.Fun)
	out := ret.(value.Map)
	returned, _ := out.Get("return")
	success, told := out.Get("success")
	return Outcome{JID: "JID", Return: returned, Success: !told || success == true}, nil
}

// Cmd implements SSH: what salt-ssh says of each target is in the case, or made of minions.
func (p *prepared) Cmd(_ context.Context, tgt any, fun string, kwargs value.Map) (value.Map, string,
	error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	arg, _ := kwargs.Get("arg")
	args := append([]any{}, elements(arg)...)
	kwarg, _ := kwargs.Get("kwarg")
	if m, _ := kwarg.(value.Map); len(m) > 0 {
		args = append(args, append(value.Map{{Key: "__kwarg__", Value: true}}, m...))
	}
	p.calls = append(p.calls, []any{fun, tgt, kwargs.String("tgt_type"), args})
	if remote, told := p.c.Get("remote"); told {
		m, _ := remote.(value.Map)
		return m, p.c.String("logged"), nil
	}
	var out value.Map
	for _, m := range p.minions() {
		ret, _ := m.Value.(value.Map).Get("ret")
		out = append(out, value.Pair{Key: m.Key, Value: value.Map{{Key: "ret", Value: ret},
			{Key: "retcode", Value: int64(0)}, {Key: "jid", Value: "JID"}}})
	}
	return out, "", nil
}

func elements(v any) []any {
	list, _ := v.([]any)
	return list
}

// judge has the one function that cases name as fail_function.
type judge struct{ Modules }

func (judge) Has(_ context.Context, fun string) bool { return fun == "test.is_good" }
func (judge) Call(_ context.Context, _ modules.Minion, _ string, args []any, _ value.Map) (any,
	error) {
	return args[0] == "good", nil
}

func (p *prepared) deps() Deps {
	return Deps{
		Minions: p, Runners: p, SSH: p, Modules: judge{}, Timeout: 5 * time.Second,
		GatherJobTimeout: 10 * time.Second,
		Failhard:         truth(p.c, "failhard"),
		Fire: func(tag string, data value.Map) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.events = append(p.events, []any{tag, data})
		},
		Nested: func(v any, indent int) string {
			return output.Defaults().Text(output.Result{Value: v, Outputter: "nested",
				Indent: indent})
		},
	}
}

// ofBatch reports whether an event is one that a batch fires.
func ofBatch(event any) bool {
	tag, _ := event.([]any)[0].(string)
	return strings.HasPrefix(tag, "salt/batch/")
}

func truth(m value.Map, key string) bool {
	v, _ := m.Get(key)
	return value.Truth(v)
}

// call runs a function as package orchestrate does: parameters first, given or
// default, then further keywords.
func call(ctx context.Context, f orchestrate.Function, c orchestrate.Call,
	given value.Map) (value.Map, error) {
	c.Name = given.String("name")
	for _, p := range f.Params {
		v, ok := given.Get(p.Name)
		if !ok {
			v = p.Default
		}
		c.Args = append(c.Args, value.Pair{Key: p.Name, Value: v})
	}
	for _, p := range given {
		if !slices.ContainsFunc(f.Params, func(q function.Param) bool { return q.Name == p.Key }) {
			c.Args = append(c.Args, p)
		}
	}
	return f.Run(ctx, c)
}

var (
	jidText  = regexp.MustCompile(`\b20261121120000000[0-9]{3}\b`)
	tookText = regexp.MustCompile(`seen in [0-9.]+ seconds`)
)

// cases are the questions of TestSaltmod.
func cases(t *testing.T) []any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "cases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := yaml11.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.([]any)
}

// answersPath holds the answers of Salt's functions, a line for each case.
var answersPath = filepath.Join("testdata", "answers.jsonl")

// TestSaltmodIsSalts: testdata/answers.jsonl holds the answers of Salt's own functions. go test
// -run TestSaltmodIsSalts -update writes it.
func TestSaltmodIsSalts(t *testing.T) {
	t.Parallel()
	answers.OnlyLong(t, *update)
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	asked, err := value.JSON(cases(t), value.JSONStyle{Indent: -1})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(venvs, "salt-3008.3", "bin", "python3"),
		"testdata/states.py")
	cmd.Stdin, cmd.Stderr = strings.NewReader(asked), os.Stderr
	said, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(answersPath, said, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(answersPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, said) {
		t.Errorf("Salt's functions no longer give the answers in %s:\n%s", answersPath, said)
	}
}

// TestSaltmod gives our functions the same answers of minions and runners as Salt's own.
// Returns, events and orders must be equal byte by byte, except in cases whose line says
// under unlike why they differ.
func TestSaltmod(t *testing.T) {
	t.Parallel()
	kept, err := os.ReadFile(answersPath)
	if err != nil {
		t.Fatal(err)
	}
	list, answers := cases(t), strings.Split(strings.TrimSpace(string(kept)), "\n")
	if len(list) != len(answers) {
		t.Fatalf("%d answers of %d", len(answers), len(list))
	}
	for i, one := range list {
		c := one.(value.Map)
		want := tookText.ReplaceAllString(answers[i], "seen in SPAN seconds")
		t.Run(c.String("name"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := tookText.ReplaceAllString(prepare(t, c), "seen in SPAN seconds")
				unlike := c.String("unlike")
				switch {
				case unlike == "" && got != want:
					t.Errorf("\nours   %s\nSalt's %s", got, want)
				case unlike != "" && got == want:
					t.Errorf("should differ (%s) but is equal: %s", unlike, got)
				case unlike != "":
					if ours := c.String("ours"); !strings.Contains(got, ours) || ours == "" {
						t.Errorf("\nours   %s\nlacks  %s\nSalt's %s", got, ours, want)
					}
				}
			})
		})
	}
}

// TestSignatures: the functions have Salt's parameters, in Salt's order and with Salt's defaults.
func TestSignatures(t *testing.T) {
	t.Parallel()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	all := New(Deps{})
	args := append([]string{"testdata/signatures.py"}, slices.Sorted(maps.Keys(all))...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(venvs, "salt-3008.3", "bin", "python3"),
		args...)
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	if len(lines) != len(all) {
		t.Fatalf("%d signatures of %d", len(lines), len(all))
	}
	for i, name := range args[1:] {
		params := []any{}
		for _, p := range all[name].Params {
			if one := []any{p.Name}; p.Required {
				params = append(params, one)
			} else {
				params = append(params, append(one, p.Default))
			}
		}
		got, err := value.JSON([]any{name, params, all[name].VarKwargs},
			value.JSONStyle{Indent: -1})
		if err != nil {
			t.Fatal(err)
		}
		if got != lines[i] {
			t.Errorf("\nours   %s\nSalt's %s", got, lines[i])
		}
	}
}

// prepare runs a case and writes the result in the form of testdata/states.py.
func prepare(t *testing.T, c value.Map) string {
	p := &prepared{c: c}
	d := p.deps()
	f, ok := New(d).Lookup(c.String("fun"))
	if !ok {
		t.Fatalf("no function %s", c.String("fun"))
	}
	given, _ := c.Get("args")
	ret, err := call(t.Context(), f, orchestrate.Call{JID: "ORCH", Env: "base", User: "root",
		Test: truth(c, "test")}, given.(value.Map))
	if err != nil {
		t.Log(err)
		ret = value.Map{{Key: "exception", Value: err.Error()}}
	}
	// Salt's function leaves these two to its client
	for _, key := range []string{"batch", "subset"} {
		if _, ok := given.(value.Map).Get(key); ok {
			p.calls = nil
			p.events = slices.DeleteFunc(p.events, ofBatch)
		}
	}
	text, err := value.JSON(value.Map{{Key: "ret", Value: ret},
		{Key: "events", Value: append([]any{}, p.events...)},
		{Key: "calls", Value: append([]any{}, p.calls...)}}, value.JSONStyle{Indent: -1})
	if err != nil {
		t.Fatal(err)
	}
	return jidText.ReplaceAllString(text, "JID")
}
