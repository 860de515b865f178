package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// traced is one span as a collector got it.
type traced struct {
	*tracepb.Span
	Master string // service.instance.id
	Attrs  map[string]string
}

func (s traced) id() string { return hex.EncodeToString(s.SpanId) }

// collector takes spans as OTLP over HTTP.
type collector struct {
	server *httptest.Server

	mu     sync.Mutex
	spans  []traced
	bodies [][]byte
	wrong  []error
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := new(collector)
	c.server = httptest.NewServer(c)
	t.Cleanup(c.server.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		err = errors.Join(err, fmt.Errorf("%s %s", r.URL, r.Header))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.wrong = append(c.wrong, err)
	}
	c.bodies = append(c.bodies, body)
	for _, rs := range in.ResourceSpans {
		resource := texts(rs.Resource.Attributes)
		if resource["service.name"] != "clustermaster" || resource["service.version"] == "" ||
			resource["service.namespace"] != "e2e" {
			c.wrong = append(c.wrong, fmt.Errorf("resource %v", resource))
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, traced{s, resource["service.instance.id"],
					texts(s.Attributes)})
			}
		}
	}
}

func texts(attrs []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attrs {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[a.Key] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_BoolValue:
			out[a.Key] = strconv.FormatBool(v.BoolValue)
		}
	}
	return out
}

// of are the spans of a job's trace, by name.
func (c *collector) of(jid string) map[string][]traced {
	sum := sha256.Sum256([]byte("clustermaster job\x00e2e\x00" + jid))
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]traced{}
	for _, s := range c.spans {
		if bytes.Equal(s.TraceId, sum[:16]) {
			out[s.Name] = append(out[s.Name], s)
		}
	}
	return out
}

var jidForm = regexp.MustCompile(`\b20\d{18}\b`)

// saltJob runs salt and returns the id of its job.
func saltJob(t *testing.T, m *Master, args ...string) string {
	t.Helper()
	r := m.Salt(t, append([]string{"--show-jid"}, args...)...)
	jid := jidForm.FindString(r.Stdout)
	if r.Code != 0 || jid == "" {
		t.Fatalf("%v", r)
	}
	return jid
}

// TestTraces: a job is one trace with spans of all masters, in a real collector's format. Without
// the collector jobs are as fast, and what is lost is counted.
func TestTraces(t *testing.T) {
	t.Parallel()
	col := newCollector(t)
	c := NewCluster(t, ClusterOptions{Extra: fmt.Sprintf("auto_accept: True\ntraces_endpoint: %s\n",
		col.server.URL)})
	c.StartMasters(t)
	first, last := c.Masters[0], c.Masters[2]
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "traced", Release: "3008.3", Master: last.Addr})
	minion.Run(t)
	Eventually(t, 60*time.Second, "the minion listens", func() error {
		if n := last.metric(t, `clustermaster_minion_subscribers{endpoint="publish"}`); n != "1" {
			return fmt.Errorf("%s subscribers", n)
		}
		return nil
	})
	Eventually(t, 60*time.Second, "the minion answers", func() error {
		if ids, r := first.Ping(t); len(ids) != 1 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	ping := func() (jid string, took time.Duration) {
		began := time.Now()
		jid = saltJob(t, first, minion.ID, "test.ping")
		return jid, time.Since(began)
	}
	jid, usual := ping()
	secret := saltJob(t, first, minion.ID, "test.arg", "s3cret-argument")
	whole := map[string]int{"job test.ping": 1, "resolve target": 1, "authorize": 1,
		"subscribe to returns": 1, "store job": 1, "publish": 1, "deliver": 3, "return": 1,
		"store return": 1, "gather returns": 1}
	Eventually(t, 10*time.Second, "the trace is whole", func() error {
		got := map[string]int{}
		for name, spans := range col.of(jid) {
			got[name] = len(spans)
		}
		if !maps.Equal(got, whole) || len(col.of(secret)) < len(whole) {
			return fmt.Errorf("spans %v", got)
		}
		return nil
	})
	checkTrace(t, col.of(jid), jid, minion.ID, first.ID, last.ID)
	if r := first.Runner(t, "salt.execute", minion.ID, "test.true"); r.Code != 0 {
		t.Errorf("%v", r)
	}
	Eventually(t, 10*time.Second, "a job links to the runner function that ordered it",
		col.ordered)
	col.mu.Lock()
	if len(col.wrong) > 0 || slices.ContainsFunc(col.bodies, func(b []byte) bool {
		return bytes.Contains(b, []byte("s3cret-argument"))
	}) {
		t.Errorf("the collector got an argument, or: %v", col.wrong)
	}
	col.mu.Unlock()

	// First nobody listens there, then somebody who never answers.
	addr := col.server.Listener.Addr().String()
	col.server.CloseClientConnections()
	col.server.Close()
	quick := func(when string) {
		t.Helper()
		Eventually(t, time.Minute, "a ping is as quick "+when, func() error {
			if _, took := ping(); took > usual+2*time.Second {
				return fmt.Errorf("%v, %v with the collector", took, usual)
			}
			return nil
		})
	}
	quick("without a collector")
	dropped := `clustermaster_trace_spans_dropped_total{reason="collector"}`
	Eventually(t, 10*time.Second, "what is lost is counted", func() error {
		if v := first.metric(t, dropped); v == "" || v == "0" {
			return fmt.Errorf("%s %s", dropped, v)
		}
		return nil
	})
	hung, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	quick("while the collector hangs")
	log, err := os.ReadFile(first.Log)
	if n := bytes.Count(log, []byte("takes no traces")); err != nil || n != 1 {
		t.Errorf("the log reports the collector %d times, %v", n, err)
	}
}

// checkTrace compares what ids, parents, masters and attributes the spans of a ping have.
func checkTrace(t *testing.T, spans map[string][]traced, jid, minion, publisher, receiver string) {
	t.Helper()
	root, publish, ret := spans["job test.ping"][0], spans["publish"][0], spans["return"][0]
	parents := map[string]string{"job test.ping": "", "deliver": publish.id(),
		"store return": ret.id()}
	masters := map[string]bool{}
	for name, all := range spans {
		for _, s := range all {
			parent, other := parents[name]
			if !other {
				parent = root.id()
			}
			if hex.EncodeToString(s.ParentSpanId) != parent {
				t.Errorf("%s has parent %x, want %s", name, s.ParentSpanId, parent)
			}
			if s.EndTimeUnixNano < s.StartTimeUnixNano || s.Status.GetMessage() != "" {
				t.Errorf("%s: %v", name, s)
			}
			want := publisher
			switch name {
			case "deliver":
				masters[s.Master], want = true, s.Master
			case "return", "store return":
				want = receiver
			}
			if s.Master != want {
				t.Errorf("%s is of %s, want %s", name, s.Master, want)
			}
		}
	}
	if len(masters) != 3 {
		t.Errorf("delivered by %v", masters)
	}
	for span, want := range map[*traced]map[string]string{
		&root: {"salt.jid": jid, "salt.function": "test.ping", "salt.target_type": "glob",
			"salt.minions": "1", "salt.returned": "1", "salt.outcome": "all returned"},
		&ret:                   {"salt.minion": minion, "salt.retcode": "0", "salt.success": "true"},
		&spans["store job"][0]: {"salt.copies": "3"},
	} {
		for key, v := range want {
			if span.Attrs[key] != v {
				t.Errorf("%s has %s %q, want %q", span.Name, key, span.Attrs[key], v)
			}
		}
	}
	if root.Attrs["salt.user"] == "" {
		t.Errorf("no user in %v", root.Attrs)
	}
}

// ordered is nil once a job links to the call of runner.salt.execute.
func (c *collector) ordered() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(name string) int {
		return slices.IndexFunc(c.spans, func(s traced) bool { return s.Name == name })
	}
	run, ordered := at("run runner.salt.execute"), at("job test.true")
	if run < 0 || ordered < 0 {
		return errors.New("no such spans yet")
	}
	links := c.spans[ordered].Links
	if len(links) != 1 || !bytes.Equal(links[0].TraceId, c.spans[run].TraceId) ||
		!bytes.Equal(links[0].SpanId, c.spans[run].SpanId) {
		return fmt.Errorf("links %v", links)
	}
	return nil
}

// metric is the value of a series of this master, "" if it has none.
func (m *Master) metric(t *testing.T, series string) string {
	t.Helper()
	for line := range strings.Lines(m.Metrics(t)) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
