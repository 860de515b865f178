package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// bus records events.
type bus struct {
	mu    sync.Mutex
	fired []Event
}

func (b *bus) Fire(tag string, data value.Map) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fired = append(b.fired, Event{Tag: tag, Data: data})
}

func (b *bus) tags() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var tags []string
	for _, e := range b.fired {
		tags = append(tags, e.Tag)
	}
	return strings.Join(tags, " ")
}

// shelf records stored calls.
type shelf struct {
	jid, id   string
	load, ret value.Map
	fired     int // events that were out when it was stored
	bus       *bus
}

func (s *shelf) SaveRun(_ context.Context, jid string, load value.Map, id string,
	ret value.Map) error {
	s.jid, s.load, s.id, s.ret, s.fired = jid, load, id, ret, len(s.bus.fired)
	return nil
}

func newRunner(t *testing.T, families ...[]Function) (*Runner, *bus, *shelf) {
	t.Helper()
	reg, err := NewRegistry(families...)
	if err != nil {
		t.Fatal(err)
	}
	b := &bus{}
	s := &shelf{bus: b}
	return New(RunnerClient, reg, Deps{ID: "m1", Events: b, Store: s,
		NewJID: func() string { return "20261121093513244628" }}), b, s
}

func TestRun(t *testing.T) {
	t.Parallel()
	r, b, s := newRunner(t, Test())
	res := r.Run(t.Context(), Request{Fun: "test.arg", Args: []any{int64(1)},
		Kwargs: value.Map{{Key: "a", Value: "b"}, {Key: "__x", Value: 1}}, User: "root"}, nil)
	if got := value.Repr(res.Return); got != "{'args': [1], 'kwargs': {'a': 'b'}}" ||
		!res.Success || res.Retcode != 0 {
		t.Errorf("result %s %+v", got, res)
	}
	tag := "salt/run/20261121093513244628/"
	if got := b.tags(); got != tag+"new "+tag+"ret" {
		t.Errorf("events %s", got)
	}
	if got, want := value.Repr(b.fired[0].Data),
		"{'fun': 'runner.test.arg', 'jid': '20261121093513244628', 'user': 'root', 'fun_args': [1, {'a': 'b', '__x': 1}], '_stamp': '"; !strings.HasPrefix(got, want) {
		t.Errorf("new event %s, want %s", got, want)
	}
	if got := value.Repr(b.fired[1].Data); !strings.HasSuffix(got,
		"'return': {'args': [1], 'kwargs': {'a': 'b'}}, 'success': True}") {
		t.Errorf("ret event %s", got)
	}
	if s.fired != 1 || s.id != "m1" || value.Repr(s.ret) != value.Repr(b.fired[1].Data) {
		t.Errorf("stored after %d events for %s: %v", s.fired, s.id, s.ret)
	}
	if got, want := value.Repr(s.load),
		"{'id': 'm1', 'tgt': 'm1', 'tgt_type': 'list', 'jid': '20261121093513244628', 'fun': 'runner.test.arg', 'user': 'root', 'arg': []}"; got != want {
		t.Errorf("stored load %s, want %s", got, want)
	}
}

func TestRunFailures(t *testing.T) {
	t.Parallel()
	broken := []Function{
		{Name: "x.fail", Run: func(context.Context, *Call) (any, error) {
			return nil,
				errors.New("no luck")
		}},
		{Name: "x.panic", Run: func(context.Context, *Call) (any, error) { panic("oh") }},
		{Name: "x.orch", Run: func(context.Context, *Call) (any, error) {
			return value.Map{{Key: "data", Value: value.Map{}},
				{Key: "outputter", Value: "highstate"}, {Key: "retcode", Value: int64(1)}}, nil
		}},
	}
	tests := []struct {
		name    string
		req     Request
		ret     string // beginning of the return as text
		success bool
		retcode int
		notRun  bool
	}{
		{"unknown", Request{Fun: "nosuch.fun"}, "'nosuch.fun' is not available.", false, 0, true},
		{"no dot", Request{Fun: "nodot"}, "'nodot' is not available.", false, 0, true},
		{"wrong keyword", Request{Fun: "test.metasyntactic",
			Kwargs: value.Map{{Key: "foo", Value: "bar"}}},
			"{'test.metasyntactic': '\\n    Return common", false, 0, true},
		{"wrong arguments", Request{Fun: "test.metasyntactic", Args: []any{"a", "b"}},
			"\nPassed invalid arguments: metasyntactic() takes from 0 to 1 positional arguments but 2 were given\n\nUsage:\n\n    Return common", true, 0, false},
		{"bad value", Request{Fun: "test.sleep", Args: []any{"long"}},
			"\nPassed invalid arguments: s_time must be a number, not 'long'\n\nUsage:\n", true, 0,
			false},
		{"error", Request{Fun: "x.fail"}, "Exception occurred in runner x.fail: no luck", false, 1,
			false},
		{"panic", Request{Fun: "x.panic"},
			"Exception occurred in runner x.panic: function x.panic crashed: oh", false, 1, false},
		{"retcode", Request{Fun: "x.orch"}, "{'data': {}, 'outputter': 'highstate', 'retcode': 1}",
			false, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, b, _ := newRunner(t, Test(), broken)
			res := r.Run(t.Context(), tt.req, nil)
			if got := value.Str(res.Return); !strings.HasPrefix(got, tt.ret) ||
				res.Success != tt.success || res.Retcode != tt.retcode || res.NotRun != tt.notRun {
				t.Errorf("%+v", res)
			}
			last := b.fired[len(b.fired)-1]
			code, told := last.Data.(value.Map).Get("retcode") // of exceptions only, as in Salt
			if !strings.HasSuffix(last.Tag, "/ret") || tt.notRun && code != int64(254) ||
				told != (tt.notRun || strings.HasPrefix(tt.ret, "Exception")) ||
				len(r.Running()) > 0 {
				t.Errorf("last event %v, still running %v", last, r.Running())
			}
		})
	}
}

func TestRunShows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, b, _ := newRunner(t, Test())
		var shown []string
		out := func(kind string, v any) { shown = append(shown, kind+" "+value.Str(v)) }
		res := r.Run(t.Context(), Request{Fun: "test.sleep", Args: []any{int64(3)}}, out)
		if res.Return != true || len(shown) != 1 || shown[0] != "print 3\n" {
			t.Errorf("shown %q, result %+v", shown, res)
		}
		shown = nil
		r.Run(t.Context(), Request{Fun: "test.stream"}, out)
		if len(shown) != 99 || !strings.HasPrefix(shown[0],
			"progress {'message': 'Runner is 1% done', '_stamp': '") || len(b.fired) != 103 {
			t.Errorf("%d shown, first %q; %d events", len(shown), shown[:1], len(b.fired))
		}
	})
}

func TestStartAndBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, err := NewRegistry(Test())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		r := New(RunnerClient, reg, Deps{MaxRuns: 1,
			NewJID: func() string { n++; return fmt.Sprint(n) }})
		ctx, cancel := context.WithCancel(t.Context())
		jid, err := r.Start(ctx, Request{Fun: "test.sleep", Args: []any{int64(100)}})
		if err != nil || jid != "1" {
			t.Fatal(jid, err)
		}
		synctest.Wait()
		if got := r.Running(); len(got) != 1 || got[0].String("fun") != "runner.test.sleep" {
			t.Errorf("running %v", got)
		}
		if _, err := r.Start(ctx, Request{Fun: "test.arg"}); !errors.Is(err, ErrBusy) {
			t.Errorf("second Start: %v, want ErrBusy", err)
		}
		if res := r.Run(ctx, Request{Fun: "test.arg"}, nil); res.Retcode != 1 || !res.NotRun {
			t.Errorf("second Run: %+v", res)
		}
		cancel()
		r.Wait()
		if len(r.Running()) != 0 {
			t.Error("still running after Wait")
		}
	})
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	if _, err := NewRegistry(Test(), Test()); err == nil {
		t.Error("the same functions twice were taken")
	}
	reg, err := NewRegistry(Test(), Jobs(JobsDeps{}), Manage(ManageDeps{}), Cluster(nil),
		State(nil), Events(nil), CacheFamily(noData{}, nil), Config(nil), Salt(nil),
		Documentation(nil, nil), KeyFamily(KeyFamilyDeps{}))
	if err != nil {
		t.Fatal(err)
	}
	if len(reg.Names()) < 50 {
		t.Errorf("%d functions", len(reg.Names()))
	}
	for prefix, want := range map[string]string{
		"test.arg": "test.arg", "cache": "cache.grains cache.mine cache.pillar",
		"cache.": "cache.grains cache.mine cache.pillar", "nosuch": "",
		"test.*arg": "test.arg test.raw_arg", "tes": "",
	} {
		var got []string
		for _, p := range reg.Docs(prefix) {
			got = append(got, p.Key.(string))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("Docs(%q) = %q, want %s", prefix, got, want)
		}
	}
	for _, name := range reg.Names() {
		if f, _ := reg.Lookup(name); strings.TrimSpace(f.Doc) == "" {
			t.Errorf("%s has no documentation", name)
		}
	}
}

type noData struct{}

func (noData) Grains(context.Context, string) (value.Map, bool, error) { return nil, false, nil }
func (noData) Pillar(context.Context, string) (value.Map, bool, error) { return nil, false, nil }
func (noData) Mine(context.Context, string) (value.Map, error)         { return nil, nil }

// stream is a Watcher over a list.
type stream struct {
	events []Event
	prefix string
}

func (s *stream) Watch(_ context.Context, prefix string) (<-chan Event, []string, error) {
	s.prefix = prefix
	c := make(chan Event, len(s.events))
	for _, e := range s.events {
		c <- e
	}
	close(c)
	return c, []string{"m3"}, nil
}

func TestStateEvent(t *testing.T) {
	t.Parallel()
	packed, err := value.Pack(value.Map{{Key: "jid", Value: "1"}, {Key: "arg", Value: []any{}}})
	if err != nil {
		t.Fatal(err)
	}
	events := []Event{
		{"salt/job/1/new", value.Raw(packed)},
		{"salt/auth", value.Map{{Key: "result", Value: true}, {Key: "id", Value: "é"}}},
		{"salt/job/1/ret/web", value.Map{{Key: "return", Value: 1.5}}},
		{"my/cert", value.Map{{Key: "der", Value: []byte{0xff, 0}}}},
	}
	tests := []struct {
		name   string
		args   []any
		kwargs value.Map
		shown  string
		prefix string
	}{
		{"all", nil, value.Map{{Key: "count", Value: int64(3)}},
			"salt/job/1/new\t{\"jid\": \"1\", \"arg\": []}\nsalt/auth\t{\"result\": true, \"id\": \"é\"}\nsalt/job/1/ret/web\t{\"return\": 1.5}\n", ""},
		{"glob", []any{"salt/job/*"}, value.Map{{Key: "count", Value: int64(2)}},
			"salt/job/1/new\t{\"jid\": \"1\", \"arg\": []}\nsalt/job/1/ret/web\t{\"return\": 1.5}\n", "salt/job/"},
		{"one", []any{"salt/auth", int64(1)}, nil, "salt/auth\t{\"result\": true, \"id\": \"é\"}\n",
			"salt/auth"},
		{"regular expression", []any{`salt/job/\d+/ret/.*`, int64(1)}, nil,
			"salt/job/1/ret/web\t{\"return\": 1.5}\n", ""},
		{"regular expression of Python", []any{`salt/(?!job/1/new).*`, int64(1)}, nil,
			"salt/auth\t{\"result\": true, \"id\": \"é\"}\n", ""},
		{"alternatives", []any{"salt/job|salt/auth", int64(2)}, nil,
			"salt/job/1/new\t{\"jid\": \"1\", \"arg\": []}\nsalt/auth\t{\"result\": true, \"id\": \"é\"}\n",
			""},
		{"bytes", []any{"my/*", int64(1)}, nil, "my/cert\t{\"der\": \"/wA=\"}\n", "my/"},
		{"pretty", []any{"salt/auth", int64(1), false, nil, true}, nil,
			"salt/auth\t{\n    \"id\": \"é\",\n    \"result\": true\n}\n", "salt/auth"},
		{"quiet", []any{"salt/*/*/new", int64(1), true}, nil, "", "salt/"},
		{"zero", []any{"*", int64(0)}, nil, "salt/job/1/new\t{\"jid\": \"1\", \"arg\": []}\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &stream{events: events}
			r, _, _ := newRunner(t, State(s))
			var shown, warned strings.Builder
			res := r.Run(t.Context(), Request{Fun: "state.event", Args: tt.args, Kwargs: tt.kwargs},
				func(kind string, v any) {
					if kind == "warning" {
						warned.WriteString(v.(string))
					} else {
						shown.WriteString(v.(string))
					}
				})
			if shown.String() != tt.shown || s.prefix != tt.prefix || res.Return != nil ||
				!res.Success {
				t.Errorf("shown\n%s\nwant\n%s\nprefix %q, want %q; %+v", shown.String(), tt.shown,
					s.prefix, tt.prefix, res)
			}
			if !strings.Contains(warned.String(), "master m3") {
				t.Errorf("no word of the master that did not answer: %q", warned.String())
			}
		})
	}
	r, _, _ := newRunner(t, State(&stream{}))
	if res := r.Run(t.Context(), Request{Fun: "state.event"}, nil); res.Success ||
		res.Retcode != 1 {
		t.Errorf("a stream that ended: %+v", res)
	}
}

func TestEventSend(t *testing.T) {
	t.Parallel()
	b := &bus{}
	r, _, _ := newRunner(t, Events(b.Fire))
	if res := r.Run(t.Context(), Request{Fun: "event.send",
		Args: []any{"a/b", value.Map{{Key: "x", Value: "y"}}}}, nil); res.Return != true ||
		b.tags() != "a/b" {
		t.Errorf("%+v, fired %s", res, b.tags())
	}
	res := r.Run(t.Context(), Request{Fun: "event.send", Args: []any{"a", "b"}}, nil)
	if res.Return != "Exception occurred in runner event.send: Dict object expected, not 'b'." ||
		res.Retcode != 1 {
		t.Errorf("%+v", res)
	}
}

func TestConfigGet(t *testing.T) {
	t.Parallel()
	options := func() value.Map {
		return value.Map{{Key: "id", Value: "m1"},
			{Key: "file_roots",
				Value: value.Map{{Key: "base",
					Value: []any{"/srv", value.Map{{Key: "k", Value: "v"}}}}}}}
	}
	r, _, _ := newRunner(t, Config(options))
	for args, want := range map[string]string{
		"id": "m1", "nosuch": "", "nosuch|d": "d", "file_roots:base": "['/srv', {'k': 'v'}]",
		"file_roots:base:0": "/srv", "file_roots:base:-1:k": "v", "file_roots:base:k": "v",
		"file_roots:base:9": "", "id:x": "",
	} {
		var list []any
		for _, a := range strings.Split(args, "|") {
			list = append(list, a)
		}
		if res := r.Run(t.Context(), Request{Fun: "config.get", Args: list},
			nil); value.Str(res.Return) != want {
			t.Errorf("config.get %s = %v, want %s", args, res.Return, want)
		}
	}
}

func TestClusterFunctions(t *testing.T) {
	t.Parallel()
	r, _, _ := newRunner(t, Cluster(twoMasters{}))
	warned := ""
	res := r.Run(t.Context(), Request{Fun: "cluster.members"},
		func(_ string, v any) { warned += v.(string) })
	want := "{'node_id': 'm1', 'voters': ['m1'], 'learners': ['m2'], 'membership_version': 7, 'voter_count': 1, 'learner_count': 1, 'leader_id': 'm1', 'term': 3, " +
		"'unhealthy_voters': [], 'recently_demoted': ['m2'], 'removed': ['m9'], 'level': {'cluster': 1, 'highest': 2, 'held_back_by': ['m2'], 'releases': {'1': ['m2'], '2': ['m1']}, 'skew': True}, " +
		"'peers': {'m1': {'address': '10.0.0.1:4520', 'state': 'voter', 'phase': 'member', 'version': '2', 'level': 2, 'lag': 0, 'last_contact': 0.0, 'clock': None, 'extensions': None, 'ready': True}, " +
		"'m2': {'address': '10.0.0.2:4520', 'state': 'learner', 'phase': 'syncing', 'version': '1', 'level': 1, 'lag': 4, 'last_contact': None, 'clock': None, 'extensions': 'none', 'ready': False, 'roots': 5}}}"
	if got := value.Repr(res.Return); got != want || warned != "no quorum\n" {
		t.Errorf("members %s, want %s; warned %q", got, want, warned)
	}
	res = r.Run(t.Context(), Request{Fun: "cluster.ring_info"}, nil)
	m, _ := res.Return.(value.Map)
	var keys []any
	for _, p := range m {
		keys = append(keys, p.Key)
	}
	if !reflect.DeepEqual(keys[:4], []any{"is_clustered", "node_count", "nodes", "vnodes"}) ||
		!strings.Contains(value.Repr(m), "'shares': {'m1': 0.3333, 'm2': 0.6667}") {
		t.Errorf("ring %s", value.Repr(m))
	}
}

type twoMasters struct{}

func (twoMasters) View(context.Context) (ClusterView, error) {
	return ClusterView{ID: "m1", MembershipIndex: 7, Leader: "m1", Term: 3, Level: 1, Supported: 2,
		Note: "no quorum", Demoted: []string{"m2"}, Barred: []string{"m9"}, Peers: []PeerView{
			{ID: "m2", Addr: "10.0.0.2:4520", Version: "1", Level: 1, State: "learner",
				Phase: "syncing", Lag: 4, LastContact: -time.Second, Extensions: "none",
				More: value.Map{{Key: "roots", Value: int64(5)}}},
			{ID: "m1", Addr: "10.0.0.1:4520", Version: "2", Level: 2, State: "voter",
				Phase: "member",
				Voter: true, Ready: true},
		}}, nil
}

func (twoMasters) Ring(context.Context) (RingView, error) {
	return RingView{Clustered: true, Nodes: []string{"m2", "m1"}, VirtualNodes: 128, Epoch: 2,
		Replicas: 2, Partitions: 256,
		Shares: map[string]float64{"m1": 1.0 / 3, "m2": 2.0 / 3}}, nil
}

// low makes a map from keys and values in turn.
func low(kv ...any) (m value.Map) {
	for i := 0; i < len(kv); i += 2 {
		m = append(m, value.Pair{Key: kv[i], Value: kv[i+1]})
	}
	return m
}

// TestByName: low data become a call as in Salt, where events list what is required first and then
// all options with their values.
func TestByName(t *testing.T) {
	t.Parallel()
	var got []string
	f := Function{Name: "x.f", Params: []function.Param{function.Need("a"), function.Need("match"),
		function.Opt("b", int64(2)), function.Opt("c", nil)},
		Run: func(_ context.Context, c *Call) (any, error) {
			got = append(got, value.Str(c.Arg("a"))+value.Str(c.Arg("match"))+value.Str(c.Arg("b"))+
				value.Str(c.Arg("c")))
			return nil, nil
		}}
	open := f
	open.Name, open.VarKwargs = "x.open", true
	open.Run = func(_ context.Context, c *Call) (any, error) { return c.Kwargs(), nil }
	for _, tt := range []struct {
		fun     string
		low     value.Map
		args    string // fun_args of the last event
		want    string // what the function saw
		refused string
	}{
		{"x.f", low("a", "1", "match", "m"), "['1', 'm', {'b': 2, 'c': None}]", "1m2None", ""},
		{"x.f", low("c", "3", "match", "m", "a", "1", "cmd", "wheel", "eauth", "pam", "token", "t",
			"__jid__", "7"), "['1', 'm', {'b': 2, 'c': '3'}]", "1m23", ""},
		// a is missing, and is not m
		{"x.f", low("match", "m"), "[{'match': 'm', 'b': 2, 'c': None}]", "", ""},
		{"x.f", low("a", "1", "match", "m", "nosuch", "x"),
			"['1', 'm', {'b': 2, 'c': None, 'nosuch': 'x'}]", "",
			"The following keyword argument is not valid: nosuch=x"},
		{"x.open", low("a", "1", "match", "m", "more", "x", "cmd", "runner"),
			"['1', 'm', {'b': 2, 'c': None, 'more': 'x'}]", "", ""},
		{"x.nosuch", low("a", "1", "cmd", "runner", "password", "p"), "[{'a': '1'}]", "",
			"'x.nosuch' is not available."},
	} {
		got = nil
		r, b, _ := newRunner(t, []Function{f, open})
		res := r.Run(t.Context(), Request{Fun: tt.fun, Kwargs: tt.low, ByName: true}, nil)
		last, _ := b.fired[len(b.fired)-1].Data.(value.Map).Get("fun_args")
		if text := value.Str(last); text != tt.args || strings.Join(got, ",") != tt.want ||
			res.Refused != tt.refused {
			t.Errorf("%s %v: events have %s, the function saw %q, refused %q", tt.fun, tt.low, text,
				got, res.Refused)
		}
	}
}

// TestShown: what many may see of a call has no secrets: neither its arguments as Check tells them,
// nor the result of a request that says so.
func TestShown(t *testing.T) {
	t.Parallel()
	r, b, _ := newRunner(t,
		[]Function{{Name: "x.tell", Params: []function.Param{function.Need("who"),
			function.Secret("word")}, Run: func(context.Context, *Call) (any, error) {
			return Told{Value: "the secret", Kept: "a secret"}, nil
		}}})
	req := Request{Fun: "x.tell", Kwargs: value.Map{{Key: "who", Value: "me"},
		{Key: "word", Value: "hidden"}}}
	if res := r.Run(t.Context(), req, nil); res.Return != "the secret" {
		t.Errorf("the caller sees %v", res.Return)
	}
	var told []string
	req.Reveal = func(tag string, data value.Map) {
		told = append(told, tag, data.String("return"))
	}
	r.Run(t.Context(), req, nil)
	req.Reveal = nil
	if last := b.fired[len(b.fired)-1]; len(told) != 2 || told[0] != last.Tag || told[1] != "the secret" ||
		last.Data.(value.Map).String("return") != "a secret" {
		t.Errorf("revealed %q, fired %v", told, last)
	}
	req.Shown = true
	if res := r.Run(t.Context(), req, nil); res.Return != "a secret" {
		t.Errorf("many see %v", res.Return)
	}
	shown, err := r.Check(req)
	if word, _ := shown.Kwargs.Get("word"); err != nil || word != redacted {
		t.Errorf("%+v, %v", shown, err)
	}
	if _, err := r.Check(Request{Fun: "x.tell",
		Kwargs: value.Map{{Key: "nosuch", Value: 1}}}); err == nil ||
		err.Error() != "The following keyword argument is not valid: nosuch=[redacted]" {
		t.Error(err)
	}
	if _, err := r.Check(Request{Fun: "x.nosuch"}); err == nil ||
		err.Error() != "'x.nosuch' is not available." {
		t.Error(err)
	}
	if !r.Takes("x.tell", "who") || r.Takes("x.tell", "nosuch") || r.Takes("x.nosuch", "who") {
		t.Error("wrong parameters")
	}
}
