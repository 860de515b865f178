package minion

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges registers gauges of the memory that requests hold.
func (s *RequestServer) gauges(reg prometheus.Registerer) {
	for _, g := range []struct {
		name, help string
		of         func() int64
	}{
		{"in_flight_bytes", "Memory of large requests, including their decoded form, and of large replies.",
			s.memory.inFlight.Load},
		{"strangers_in_flight_bytes",
			"The part of in_flight_bytes on connections without an accepted minion.",
			s.memory.strangers.Load},
	} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "clustermaster", Subsystem: "minion", Name: g.name, Help: g.help,
		}, func() float64 { return float64(g.of()) }))
	}
}

// metrics of one endpoint; the label endpoint is "request" or "publish".
type metrics struct {
	connections prometheus.Gauge
	accepted    prometheus.Counter
	closed      *prometheus.CounterVec // reason
	pingsSent   prometheus.Counter
	received    prometheus.Counter // bytes of requests
	sent        prometheus.Counter // bytes of replies or publications

	requests *prometheus.CounterVec // result
	answered prometheus.Counter     // of requests
	handling prometheus.Gauge
	took     prometheus.Histogram

	subscribers  prometheus.Gauge
	publications prometheus.Counter
	copies       *prometheus.CounterVec // result
	held         prometheus.Gauge
	heldDropped  prometheus.Counter
	losses       prometheus.Counter

	lossesIgnored prometheus.Counter
}

func newMetrics(endpoint string, reg prometheus.Registerer) *metrics {
	labels := prometheus.Labels{"endpoint": endpoint}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "clustermaster", Subsystem: "minion", Name: name,
			Help: help, ConstLabels: labels}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	m := &metrics{
		connections: gauge("connections", "Open connections of minions."),
		accepted:    counter("accepted_total", "Connections accepted."),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts(opts("closed_total",
			"Connections closed, by reason.")), []string{"reason"}),
		pingsSent: counter("pings_sent_total", "PING commands sent to idle peers."),
		received:  counter("received_bytes_total", "Payload bytes received in requests."),
		sent:      counter("sent_bytes_total", "Payload bytes written to peers."),

		requests: prometheus.NewCounterVec(prometheus.CounterOpts(opts("requests_total",
			"Requests handled, by result.")), []string{"result"}),
		handling: gauge("requests_handling", "Requests in a handler now."),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "clustermaster",
			Subsystem: "minion",
			Name:      "request_duration_seconds", Help: "Time that handlers took.",
			ConstLabels: labels,
			Buckets:     []float64{.001, .005, .02, .1, .5, 2, 10, 60}}),

		subscribers:  gauge("subscribers", "Connections with at least one subscription."),
		publications: counter("publications_total", "Publications handed to this endpoint."),
		copies: prometheus.NewCounterVec(prometheus.CounterOpts(opts("publication_copies_total",
			"Copies of publications per subscriber, by result: queued, slow (queue full, dropped), sent.")), []string{"result"}),
		held: gauge("held_publications", "Publications kept for returning subscribers."),
		heldDropped: counter("held_dropped_total",
			"Held publications dropped because too many are held."),
		losses: counter("subscriber_losses_total",
			"Times that half of the subscribers left at once."),

		lossesIgnored: counter("subscriber_losses_ignored_total",
			"Losses beyond those that jobs are sent again for."),
	}
	m.answered = m.requests.WithLabelValues("answered")
	if reg != nil {
		reg.MustRegister(m.connections, m.accepted, m.closed, m.pingsSent, m.sent)
		if endpoint == "request" {
			reg.MustRegister(m.received, m.requests, m.handling, m.took)
		} else {
			reg.MustRegister(m.subscribers, m.publications, m.copies, m.held, m.heldDropped,
				m.losses, m.lossesIgnored)
		}
	}
	return m
}

// reason turns the error that ended a connection into a metric label, and reports whether to log
// it: a peer that just leaves is not logged.
func reason(err error) (label string, loud bool) {
	switch {
	case err == nil:
		return "closed", false
	case errors.Is(err, ErrTooLarge):
		return "too_large", true
	case errors.Is(err, ErrMemory):
		return "memory", true
	case errors.Is(err, errTrickle):
		return "slow", true
	case errors.Is(err, errShare):
		return "source_full", true
	case errors.Is(err, ErrProxy):
		return "proxy", true
	case errors.Is(err, ErrGarbage):
		return "garbage", true
	case errors.Is(err, ErrUnexpected):
		return "unexpected", true
	case errors.Is(err, errSlow):
		return "handshake", true
	case errors.Is(err, errSilent):
		return "silent", false
	case errors.Is(err, errHandler):
		return "handler", false // the handler has logged the error
	case errors.Is(err, errStopping), errors.Is(err, context.Canceled):
		return "stopping", false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout", false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "gone", false
	}
	return "error", true
}
