package traces

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// queueSpans bounds the spans that wait for the collector, about a kilobyte each.
const queueSpans = 4096

type metrics struct {
	exported prometheus.Counter
	full     prometheus.Counter
	refused  prometheus.Counter
	leftOut  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "clustermaster_trace_spans_dropped_total",
		Help: "Spans of traces that were lost, by reason: queue_full, or collector (it did not take them).",
	}, []string{"reason"})
	m := &metrics{
		exported: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_trace_spans_exported_total",
			Help: "Spans of traces that the collector took.",
		}),
		full: dropped.WithLabelValues("queue_full"), refused: dropped.WithLabelValues("collector"),
		leftOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_trace_returns_left_out_total",
			Help: "Returns of traced jobs without a span, because the job had traces_returns of them.",
		}),
	}
	if reg != nil {
		reg.MustRegister(dropped, m.exported, m.leftOut)
	}
	return m
}

// queue stands in front of the SDK's batches: it bounds what waits, and counts what is lost. It
// never blocks.
type queue struct {
	sdk.SpanProcessor
	out *exporter
}

func newQueue(to sdk.SpanExporter, endpoint string, m *metrics, log *slog.Logger) *queue {
	out := &exporter{SpanExporter: to, endpoint: endpoint, metrics: m, log: log}
	return &queue{out: out, SpanProcessor: sdk.NewBatchSpanProcessor(out,
		sdk.WithMaxQueueSize(queueSpans), sdk.WithMaxExportBatchSize(batchSpans),
		sdk.WithBatchTimeout(batchEvery), sdk.WithExportTimeout(exportTimeout))}
}

// OnEnd takes a span, or drops it.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if q.out.waiting.Add(1) > queueSpans {
		q.out.waiting.Add(-1)
		q.out.metrics.full.Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// exporter counts what the collector takes, and reports once that it takes nothing.
type exporter struct {
	sdk.SpanExporter
	endpoint string
	metrics  *metrics
	log      *slog.Logger
	waiting  atomic.Int64 // spans that were taken and not yet sent
	failing  bool         // the SDK sends one batch at a time
}

// ExportSpans sends a batch. It returns no error, because it has dealt with it.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.metrics.refused.Add(float64(len(spans)))
		if !e.failing {
			e.log.Warn("the collector takes no traces, they are dropped and counted until it "+
				"does; check it and traces_endpoint",
				"endpoint", e.endpoint, "err", err)
		}
		e.failing = true
		return nil
	}
	e.metrics.exported.Add(float64(len(spans)))
	if e.failing {
		e.log.Info("the collector takes traces again", "endpoint", e.endpoint)
	}
	e.failing = false
	return nil
}
