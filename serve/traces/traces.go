package traces

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options say what is traced and where it goes.
type Options struct {
	Endpoint string  // URL of a collector that takes OTLP over HTTP; "" is off
	Ratio    float64 // part of the jobs that are traced, 0 to 1
	// Returns bounds the spans of a job's returns on this master: so many of those that succeeded,
	// and as many of those that failed.
	Returns int
	Cluster string // name that all masters share
	Master  string // id of this one
	Version string
	Copies  func() int // how many masters keep each record
}

// Traces makes the spans of this master. All methods of nil do nothing: that is a master without
// traces. It is safe for concurrent use.
type Traces struct {
	opts     Options
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	sampler  sdk.Sampler
	metrics  *metrics
	returns  counts

	mu   sync.Mutex // guards open
	open map[string]*open
}

const (
	// batchEvery is how long a span waits for others, to be sent with them.
	batchEvery = time.Second
	batchSpans = 512
	// exportTimeout bounds one request to the collector, and its repetitions.
	exportTimeout = 10 * time.Second
	// flushTimeout bounds how long a master that stops waits for the collector.
	flushTimeout = time.Second
)

// New returns the traces of a master, nil without an endpoint. Run must run. Error: the environment
// has settings for the exporter (OTEL_EXPORTER_OTLP_*) that contradict the endpoint.
func New(o Options, log *slog.Logger, reg prometheus.Registerer) (*Traces, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	target, err := address(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("traces_endpoint: %w", err)
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(target),
		otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true,
			InitialInterval: time.Second, MaxInterval: 5 * time.Second,
			MaxElapsedTime: exportTimeout}))
	if err != nil {
		return nil, fmt.Errorf("traces_endpoint: %w; look at OTEL_EXPORTER_OTLP_* in the environment",
			err)
	}
	return newTraces(o, exporter, log, reg), nil
}

// address returns the URL to which spans are posted.
func address(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

func newTraces(o Options, exporter sdk.SpanExporter, log *slog.Logger,
	reg prometheus.Registerer) *Traces {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "traces")
	if o.Copies == nil {
		o.Copies = func() int { return 1 }
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Debug("OpenTelemetry reports an error", "err", err) // the default prints it
	}))
	met := newMetrics(reg)
	t := &Traces{opts: o, metrics: met, sampler: sdk.TraceIDRatioBased(o.Ratio),
		returns: newCounts(), open: make(map[string]*open)}
	t.provider = sdk.NewTracerProvider(sdk.WithIDGenerator(given{}),
		sdk.WithSampler(sdk.AlwaysSample()), // job has decided
		sdk.WithSpanProcessor(newQueue(exporter, o.Endpoint, met, log)),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "clustermaster"),
			attribute.String("service.namespace", text(o.Cluster)),
			attribute.String("service.instance.id", text(o.Master)),
			attribute.String("service.version", o.Version))))
	t.tracer = t.provider.Tracer("clustermaster", trace.WithInstrumentationVersion(o.Version))
	return t
}

// Run sends what waits when ctx ends; it waits for the collector no longer than a second.
func (t *Traces) Run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	_ = t.provider.Shutdown(last) // a collector that is away was reported
	return nil
}

// ids are those of a job's trace.
type ids struct {
	trace trace.TraceID
	root  trace.SpanID // the job
	sent  trace.SpanID // its publication, above its deliveries on all masters
}

// job returns the ids of a job's trace; false if the job is not traced. All masters with the same
// options answer alike.
func (t *Traces) job(jid string) (ids, bool) {
	sum := sha256.Sum256([]byte("clustermaster job\x00" + t.opts.Cluster + "\x00" + jid))
	id := ids{trace: trace.TraceID(sum[:16]), root: trace.SpanID(sum[16:24]),
		sent: trace.SpanID(sum[24:])}
	wanted := t.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: context.Background(),
		TraceID: id.trace})
	return id, wanted.Decision == sdk.RecordAndSample
}

// span is one that has ended.
type span struct {
	id, parent   trace.SpanID // a parent of zeros: the trace begins with it
	name         string
	kind         trace.SpanKind
	began, ended time.Time
	failed       string // why; "" if it did not fail
	attrs        []attribute.KeyValue
	link         trace.SpanContext // the call that ordered it, if valid
}

// emit hands a span to the queue.
func (t *Traces) emit(of trace.TraceID, s span) {
	ctx := context.WithValue(context.Background(), givenKey{}, given{of, s.id})
	opts := []trace.SpanStartOption{trace.WithTimestamp(s.began), trace.WithSpanKind(s.kind),
		trace.WithAttributes(s.attrs...)}
	if s.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, contextOf(of, s.parent))
	}
	if s.link.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: s.link}))
	}
	_, made := t.tracer.Start(ctx, s.name, opts...)
	if s.failed != "" {
		made.SetStatus(codes.Error, s.failed)
	}
	made.End(trace.WithTimestamp(s.ended))
}

func contextOf(id trace.TraceID, s trace.SpanID) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: s,
		TraceFlags: trace.FlagsSampled, Remote: true})
}

// given are the ids of a span. As a generator it returns those in the context.
type given struct {
	trace trace.TraceID
	span  trace.SpanID
}

type givenKey struct{}

func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	g, _ := ctx.Value(givenKey{}).(given)
	return g.trace, g.span
}

func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	g, _ := ctx.Value(givenKey{}).(given)
	return g.span
}

// newID returns the id of a span that no other master needs to know.
func newID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// maxText bounds a text in a span, in bytes.
const maxText = 256

// text returns s as a collector takes it: the names of functions and users come from outside, and
// one text that is not UTF-8 would lose the whole batch.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		for !utf8.ValidString(s) && len(s) > maxText-utf8.UTFMax {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// functions is the name of a job's function, or the names of several.
func functions(fun any) string {
	switch fun := fun.(type) {
	case string:
		return text(fun)
	case []string:
		return text(strings.Join(fun, ","))
	case []any:
		var names []string
		for _, v := range fun {
			name, _ := v.(string)
			names = append(names, name)
		}
		return text(strings.Join(names, ","))
	}
	return ""
}
