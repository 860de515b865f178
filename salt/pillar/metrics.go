package pillar

import "github.com/prometheus/client_golang/prometheus"

// metrics counts compiles.
type metrics struct {
	compiled *prometheus.CounterVec
	took     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		compiled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_pillar_compiled_total",
			Help: "Pillars by outcome: made, errors (made, with _errors), failed, kept (from pillar_cache).",
		}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "clustermaster_pillar_compile_seconds", Help: "Time of one compile.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.compiled, m.took)
	}
	return m
}
