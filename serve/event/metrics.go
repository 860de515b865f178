package event

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	fired         prometheus.Counter
	refused       prometheus.Counter
	trimmed       prometheus.Counter
	dropped       prometheus.Counter
	subscriptions prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		fired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_events_fired_total", Help: "Events fired on this master.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_events_refused_total",
			Help: "Events without a tag, with one that ends in a line end or has an empty line, or with data that is not a map.",
		}),
		trimmed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_events_trimmed_total", Help: "Events cut down to max_event_size.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_events_dropped_total",
			Help: "Events lost by subscribers, peers included, that read too slowly.",
		}),
		subscriptions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_event_subscriptions", Help: "Live subscriptions, peers included.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.fired, m.refused, m.trimmed, m.dropped, m.subscriptions)
	}
	return m
}
