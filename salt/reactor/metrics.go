package reactor

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	reactions *prometheus.CounterVec
	wrong     prometheus.Counter
	queued    prometheus.Gauge
	seconds   prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		reactions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_reactor_reactions_total",
			Help: "Reactions by kind and outcome: done, failed, or dropped because reactor_worker_hwm of them waited.",
		}, []string{"kind", "outcome"}),
		wrong: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_reactor_files_wrong_total",
			Help: "SLS files of reactors that are missing or do not render, and events whose reactions are wrong.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_reactor_queued",
			Help: "Runner, wheel and caller reactions that wait for one of reactor_worker_threads.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "clustermaster_reactor_render_seconds",
			Help:    "Time to render the SLS files of one event.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
	}
	for _, kind := range []string{"local", "runner", "wheel", "caller"} {
		m.reactions.WithLabelValues(kind, "dropped") // so that an alert sees it rise from 0
	}
	if reg != nil {
		reg.MustRegister(m.reactions, m.wrong, m.queued, m.seconds)
	}
	return m
}

// reaction counts one reaction. It bounds the kinds, because an SLS file may contain any text.
func (m *metrics) reaction(kind, outcome string) {
	switch kind {
	case "local", "runner", "wheel", "caller":
	default:
		kind = "unknown"
	}
	m.reactions.WithLabelValues(kind, outcome).Inc()
}
