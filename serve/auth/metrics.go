package auth

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	attempts *prometheus.CounterVec
	took     prometheus.Histogram
	waiting  prometheus.Gauge
	tokens   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, tokens Tokens) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_auth_attempts_total",
			Help: "Attempts to authenticate by external_auth, by back end and outcome: confirmed, refused, busy (too many at a time), failed (the back end could not tell).",
		}, []string{"eauth", "outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "clustermaster_auth_back_end_seconds", Help: "How long back ends took to answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_auth_attempts_waiting",
			Help: "Attempts that have no answer yet; at most 256.",
		}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_auth_tokens_total",
			Help: "What was done with tokens: made, refused (a cap), deleted, good, unknown.",
		}, []string{"outcome"}),
	}
	if reg != nil {
		reg.MustRegister(m.attempts, m.took, m.waiting, m.tokens)
		if tokens != nil {
			reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "clustermaster_auth_tokens",
				Help: "Tokens that the cluster keeps, with those that have just expired.",
			}, func() float64 { return float64(tokens.Tokens()) }))
		}
	}
	return m
}
