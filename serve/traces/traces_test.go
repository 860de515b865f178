package traces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"clustermaster/value"
)

// collector keeps the spans that it gets.
type collector struct {
	mu      sync.Mutex
	spans   []sdk.ReadOnlySpan
	batches int
	err     error         // nil: it takes them
	hold    chan struct{} // not nil: it answers once this is closed
}

func (c *collector) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	if c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	if c.err == nil {
		c.spans = append(c.spans, spans...)
	}
	return c.err
}

func (c *collector) Shutdown(context.Context) error { return nil }

func (c *collector) answers(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// named are the spans with a name.
func (c *collector) named(name string) (out []sdk.ReadOnlySpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

func newOne(t *testing.T, master string, ratio float64, returns int) (*Traces, *collector) {
	t.Helper()
	c := new(collector)
	traces := newTraces(Options{Ratio: ratio, Returns: returns, Cluster: "c", Master: master,
		Version: "1", Copies: func() int { return 3 }}, c, nil, nil)
	t.Cleanup(func() { traces.provider.Shutdown(context.Background()) })
	return traces, c
}

func (t *Traces) flush() { t.provider.ForceFlush(context.Background()) }

func attrs(s sdk.ReadOnlySpan) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

const jid = "20261123120000000001"

func rawMap(t *testing.T, m value.Map) value.RawMap {
	t.Helper()
	packed, err := value.Pack(m)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := value.UnpackRawMap(packed)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// good is what a minion returns to test.ping.
func good(t *testing.T) value.RawMap {
	t.Helper()
	return rawMap(t, value.Map{{Key: "return", Value: true}, {Key: "retcode", Value: int64(0)},
		{Key: "success", Value: true}})
}

// publish runs a job's publication up to its end.
func publish(t *Traces, ctx context.Context, id string) *Publishing {
	p := t.Publish(ctx, "", "root", "test.ping", "glob")
	p.Resolved(2, 0, "")
	p.Authorized(2)
	p.Named(id)
	p.Subscribed(nil)
	p.Stored()
	p.Settled()
	p.Sent(time.Now(), nil, false)
	p.Published(true)
	return p
}

// Two masters that tell each other nothing make one trace with the right parents.
func TestOneTraceOfTwoMasters(t *testing.T) {
	t.Parallel()
	a, ofA := newOne(t, "a", 1, 10)
	b, ofB := newOne(t, "b", 1, 10)
	g := a.Gather("salt/job/" + jid + "/")
	p := publish(a, context.Background(), jid)
	b.Deliver(jid).End(5, false)
	r := b.Return(jid, "m1", good(t))
	r.Stored("saved", nil)
	r.End()
	g.Event("salt/job/" + jid + "/ret/m1")
	g.Event("salt/job/" + jid + "/ret/m1") // a repeat
	g.Event("salt/job/" + jid + "/new")
	p.Watched()
	a.flush()
	if n := len(ofA.named("job test.ping")); n != 0 {
		t.Fatalf("%d ends of the job while a command gathers", n)
	}
	g.Close()
	a.flush()
	b.flush()
	roots := ofA.named("job test.ping")
	if len(roots) != 1 || roots[0].Parent().IsValid() {
		t.Fatalf("roots %v", roots)
	}
	root := roots[0].SpanContext()
	want := map[string]string{"salt.function": "test.ping", "salt.user": "root",
		"salt.target_type": "glob", "salt.jid": jid, "salt.minions": "2", "salt.returned": "1",
		"salt.outcome": "left without all returns"}
	if got := attrs(roots[0]); !maps.Equal(got, want) {
		t.Errorf("root has %v, want %v", got, want)
	}
	sent := ofA.named("publish")[0].SpanContext()
	for _, name := range []string{"resolve target", "authorize", "subscribe to returns",
		"store job", "publish", "gather returns", "deliver", "return", "store return"} {
		both := append(ofA.named(name), ofB.named(name)...)
		if len(both) != 1 {
			t.Fatalf("%s: %d spans", name, len(both))
		}
		above := root.SpanID()
		switch name {
		case "deliver":
			above = sent.SpanID()
		case "store return":
			above = ofB.named("return")[0].SpanContext().SpanID()
		}
		s := both[0]
		if s.SpanContext().TraceID() != root.TraceID() || s.Parent().SpanID() != above {
			t.Errorf("%s: %v below %v", name, s.SpanContext(), s.Parent())
		}
	}
	got := attrs(ofB.named("return")[0])
	if got["salt.minion"] != "m1" || got["salt.retcode"] != "0" || got["salt.success"] != "true" {
		t.Errorf("return has %v", got)
	}
	if v, _ := ofB.spans[0].Resource().Set().Value("service.instance.id"); v.AsString() != "b" {
		t.Errorf("resource %v", ofB.spans[0].Resource())
	}
	if len(a.open) != 0 {
		t.Errorf("open: %v", a.open)
	}
}

// The end of a job, in every order of those that see it.
func TestEndOfAJob(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]string{
		"async":                        "pub watched",
		"watched before it returns":    "watched pub",
		"gathered, then watched":       "gather pub close watched",
		"watched, then gathered":       "gather pub watched close",
		"the command was interrupted":  "gather close pub watched",
		"two commands":                 "gather gather pub close watched close",
		"not published":                "gather refused close",
		"nobody published it":          "gather close",
		"an event bus, never a gather": "other pub watched",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, c := newOne(t, "a", 1, 1)
			p := a.Publish(context.Background(), jid, "root", []any{"a", "b"}, "list")
			p.Resolved(1, 0, "")
			var open []*Gathering
			for step := range strings.FieldsSeq(steps) {
				switch step {
				case "pub":
					p.Published(true)
				case "refused":
					p.Refused()
					p.Published(false)
				case "watched":
					p.Watched()
				case "gather":
					open = append(open, a.Gather("salt/job/"+jid+"/"))
				case "other":
					for _, prefix := range []string{"", "salt/job/", "salt/job/" + jid + "/ret/"} {
						if a.Gather(prefix) != nil {
							t.Errorf("%q is the prefix of a job", prefix)
						}
					}
				case "close":
					open[0].Close()
					open = open[1:]
				}
			}
			a.flush()
			want := 1
			if steps == "gather close" {
				want = 0
			}
			if roots := c.named("job a,b"); len(roots) != want {
				t.Errorf("%d ends", len(roots))
			}
			if len(a.open) != 0 {
				t.Errorf("open: %v", a.open)
			}
		})
	}
}

func TestRefusedAndFailed(t *testing.T) {
	t.Parallel()
	a, c := newOne(t, "a", 1, 1)
	p := a.Publish(context.Background(), jid, "bob", "cmd.run", "glob")
	p.Resolved(3, 0, "")
	p.Refused()
	p.Published(false)
	p = a.Publish(context.Background(), jid, "bob", "test.ping", "glob")
	p.Resolved(3, 0, "")
	p.Authorized(3)
	p.Published(false)
	p = a.Publish(context.Background(), jid, "bob", "test.arg", "glob")
	p.Resolved(0, 1, "1 of 3")
	p.Published(false)
	a.Publish(context.Background(), "", "bob", "never.named", "glob").Published(false)
	a.flush()
	for name, want := range map[string]string{"job cmd.run": "not authorized",
		"job test.ping": "not published after: authorize",
		"job test.arg":  "no minion matches the target"} {
		if s := c.named(name); len(s) != 1 || s[0].Status().Description != want {
			t.Errorf("%s: %v, want %q", name, s, want)
		}
	}
	if s := c.named("job never.named"); len(s) != 0 {
		t.Errorf("a job without an id: %v", s)
	}
}

// All masters choose the same jobs.
func TestRatio(t *testing.T) {
	t.Parallel()
	a, _ := newOne(t, "a", 0.25, 1)
	b, _ := newOne(t, "b", 0.25, 1)
	none, _ := newOne(t, "n", 0, 1)
	n := 0
	for i := range 4000 {
		id := fmt.Sprintf("2026112312000%07d", i)
		first, wanted := a.job(id)
		second, alike := b.job(id)
		if first != second || wanted != alike {
			t.Fatalf("%s: %v %v, %v %v", id, first, wanted, second, alike)
		}
		if wanted {
			n++
		}
		if r := none.Return(id, "m", good(t)); r != nil || none.Deliver(id) != nil ||
			none.Publish(context.Background(), id, "", "", "") != nil {
			t.Fatal("a job is traced with a ratio of 0")
		}
	}
	if n < 850 || n > 1150 {
		t.Errorf("%d of 4000 jobs, want a quarter", n)
	}
	p := none.Publish(context.Background(), "", "root", "test.ping", "glob")
	p.Named(jid)
	p.Sent(time.Now(), nil, false)
	p.Published(true)
	p.Watched()
	if len(none.open) != 0 {
		t.Errorf("open: %v", none.open)
	}
}

func TestReturnsAreBounded(t *testing.T) {
	t.Parallel()
	a, c := newOne(t, "a", 1, 10)
	bad := rawMap(t, value.Map{{Key: "return", Value: "x"}, {Key: "retcode", Value: int64(2)}})
	for i := range 100 {
		a.Return(jid, fmt.Sprint("good", i), good(t)).End()
		a.Return(jid, fmt.Sprint("bad", i), bad).End()
	}
	for _, none := range []string{"req", "nocache"} {
		a.Return(none, "m", good(t)).End()
	}
	a.flush()
	failed := 0
	for _, s := range c.named("return") {
		if s.Status().Description != "" {
			failed++
		}
	}
	if n := len(c.named("return")); n != 20 || failed != 10 {
		t.Errorf("%d spans, %d of failures; want 20 and 10", n, failed)
	}
	if n := testutil.ToFloat64(a.metrics.leftOut); n != 180 {
		t.Errorf("%v left out, want 180", n)
	}
	for i := range 2 * countedJobs { // the counts are bounded, too
		a.returns.take(fmt.Sprint(i), false, 1)
	}
	if n := len(a.returns.jobs); n > countedJobs {
		t.Errorf("%d jobs are counted", n)
	}
}

// A collector that hangs delays nobody. What does not fit into the queue is counted.
func TestHangingCollector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &collector{hold: make(chan struct{})}
		a := newTraces(Options{Ratio: 1, Cluster: "c"}, c, nil, nil)
		const n = 3 * queueSpans
		began := time.Now()
		for range n {
			a.Deliver(jid).End(1, false)
		}
		if took := time.Since(began); took != 0 { // on the bubble's clock: nothing waited
			t.Errorf("%d spans took %v", n, took)
		}
		if full := testutil.ToFloat64(a.metrics.full); full != n-queueSpans {
			t.Errorf("%v dropped, want %d", full, n-queueSpans)
		}
		close(c.hold)
		time.Sleep(2 * batchEvery) // fake time
		synctest.Wait()
		if sent := testutil.ToFloat64(a.metrics.exported); sent != queueSpans {
			t.Errorf("%v sent, want %d", sent, queueSpans)
		}
		a.Deliver(jid).End(1, false) // there is room again
		a.flush()
		if full := testutil.ToFloat64(a.metrics.full); full != n-queueSpans {
			t.Errorf("%v dropped after the collector came back", full)
		}
		a.provider.Shutdown(context.Background())
	})
}

// Stopping waits for a collector that hangs no longer than a second.
func TestStopWithHangingCollector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &collector{hold: make(chan struct{})}
		a := newTraces(Options{Ratio: 1, Cluster: "c"}, c, nil, nil)
		a.Deliver(jid).End(1, false)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		began := time.Now()
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != flushTimeout {
			t.Errorf("took %v", took)
		}
		close(c.hold)
	})
}

func TestDeadCollectorIsReportedOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := new(collector)
	reg := prometheus.NewRegistry()
	a := newTraces(Options{Ratio: 1, Cluster: "c", Endpoint: "http://127.0.0.1:4318"}, c,
		slog.New(slog.NewTextHandler(&out, nil)), reg)
	c.answers(errors.New("connection refused"))
	for range 3 {
		a.Deliver(jid).End(1, false)
		a.flush()
	}
	c.answers(nil)
	for range 2 {
		a.Deliver(jid).End(1, false)
		a.flush()
	}
	a.provider.Shutdown(context.Background())
	if n := strings.Count(out.String(), "level=WARN"); n != 1 ||
		strings.Count(out.String(), "takes traces again") != 1 {
		t.Errorf("log:\n%s", out.String())
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP clustermaster_trace_spans_dropped_total Spans of traces that were lost, by reason: queue_full, or collector (it did not take them).
# TYPE clustermaster_trace_spans_dropped_total counter
clustermaster_trace_spans_dropped_total{reason="collector"} 3
clustermaster_trace_spans_dropped_total{reason="queue_full"} 0
# HELP clustermaster_trace_spans_exported_total Spans of traces that the collector took.
# TYPE clustermaster_trace_spans_exported_total counter
clustermaster_trace_spans_exported_total 2
`), "clustermaster_trace_spans_dropped_total",
		"clustermaster_trace_spans_exported_total"); err != nil {
		t.Error(err)
	}
}

// A job that a runner function orders links to the function's own trace.
func TestCall(t *testing.T) {
	t.Parallel()
	a, c := newOne(t, "a", 1, 1)
	ctx, done := a.Call(context.Background(), "run1", "runner.state.orchestrate", "root")
	publish(a, ctx, jid).Watched()
	done(false)
	a.flush()
	run, job := c.named("run runner.state.orchestrate")[0], c.named("job test.ping")[0]
	if run.SpanContext().TraceID() == job.SpanContext().TraceID() || len(job.Links()) != 1 ||
		!job.Links()[0].SpanContext.Equal(run.SpanContext().WithRemote(true)) {
		t.Errorf("links %v, want %v", job.Links(), run.SpanContext())
	}
	if run.Status().Description == "" || attrs(job)["salt.ordered_by"] != "run1" {
		t.Errorf("%v, %v", run.Status(), attrs(job))
	}
}

// A master without traces. Not parallel: it counts allocations.
func TestOff(t *testing.T) {
	off, err := New(Options{}, nil, nil)
	if off != nil || err != nil {
		t.Fatal(off, err)
	}
	load := good(t)
	if n := testing.AllocsPerRun(100, func() {
		r := off.Return(jid, "m1", load)
		r.Stored("saved", nil)
		r.End()
		off.Deliver(jid).End(1, false)
		g := off.Gather("salt/job/" + jid + "/")
		g.Event("salt/job/" + jid + "/ret/m1")
		g.Close()
		_, done := off.Call(context.Background(), jid, "f", "u")
		done(true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	publish(off, context.Background(), jid).Watched()
	off.Publish(context.Background(), jid, "", "", "").Refused()
	if err := off.Run(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "test.ping", "\xff\xfe", strings.Repeat("é", 500),
		strings.Repeat("x", 300), strings.Repeat("\xff", 300), "é" + strings.Repeat("\U0001F600", 99)} {
		got := text(s)
		if !utf8.ValidString(got) || len(got) > 3*maxText ||
			utf8.ValidString(s) && (!strings.HasPrefix(s, got) || len(got) > maxText) {
			t.Errorf("%.20q: %q", s, got)
		}
	}
	if got := functions([]string{"a.b", "c.d"}); got != "a.b,c.d" {
		t.Error(got)
	}
	if got := functions([]any{"a.b", 1}); got != "a.b," {
		t.Error(got)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:4318":    "http://127.0.0.1:4318/v1/traces",
		"https://c.example.com/":   "https://c.example.com/v1/traces",
		"https://c.example.com/x/": "https://c.example.com/x/",
	} {
		if got, err := address(endpoint); got != want || err != nil {
			t.Errorf("%s: %s, %v", endpoint, got, err)
		}
	}
}

// What comes from outside never loses a batch: all texts of all spans are UTF-8.
func TestTextsFromOutside(t *testing.T) {
	t.Parallel()
	a, c := newOne(t, "a", 1, 10)
	const bad = "\xff\xfe"
	p := a.Publish(context.Background(), bad, bad, []any{bad}, bad)
	p.Resolved(1, 0, bad)
	p.Subscribed([]string{bad})
	p.Published(true)
	p.Watched()
	a.Deliver(bad).End(1, true)
	a.Return(bad, bad, good(t)).End()
	_, done := a.Call(context.Background(), bad, bad, bad)
	done(true)
	a.flush()
	if len(c.spans) < 6 {
		t.Errorf("%d spans", len(c.spans))
	}
	for _, s := range c.spans {
		if !utf8.ValidString(s.Name()) || slices.ContainsFunc(s.Attributes(),
			func(v attribute.KeyValue) bool { return !utf8.ValidString(v.Value.String()) }) {
			t.Errorf("%q %q", s.Name(), s.Attributes())
		}
	}
}

// BenchmarkReturn is what a return costs beside all else: without traces, of a job that is not
// traced, beyond traces_returns, and with its two spans.
func BenchmarkReturn(b *testing.B) {
	packed, err := value.Pack(value.Map{{Key: "return", Value: true},
		{Key: "retcode", Value: int64(0)}, {Key: "success", Value: true}})
	if err != nil {
		b.Fatal(err)
	}
	load, err := value.UnpackRawMap(packed)
	if err != nil {
		b.Fatal(err)
	}
	on := func(ratio float64, returns int) *Traces {
		return newTraces(Options{Ratio: ratio, Returns: returns, Cluster: "c"}, new(collector), nil,
			nil)
	}
	for name, t := range map[string]*Traces{"Off": nil, "OtherJob": on(0, 1), "LeftOut": on(1, 0),
		"Traced": on(1, 1<<30)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := t.Return(jid, "m1", load)
				r.Stored("saved", nil)
				r.End()
			}
		})
	}
}
