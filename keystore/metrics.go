package keystore

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	offers    *prometheus.CounterVec
	undecided prometheus.Counter
	unkept    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		offers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_keystore_offers_total",
			Help: "Keys that minions offered, by outcome.",
		}, []string{"act"}),
		undecided: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_keystore_undecided_total",
			Help: "Offered keys answered with pending because there was no quorum.",
		}),
		unkept: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_keystore_unkept_total",
			Help: "Offered keys that were not stored, by the list that is full: pending, source (the pending ones of one address), denied or keys (all together).",
		}, []string{"full"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.offers, m.undecided, m.unkept} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
