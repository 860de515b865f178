package statesync

import "github.com/prometheus/client_golang/prometheus"

// metrics are the store's metrics. The store never reads them.
type metrics struct {
	installs  *prometheus.CounterVec
	items     *prometheus.CounterVec
	fetched   prometheus.Counter
	sent      prometheus.Counter
	damaged   prometheus.Counter
	drift     *prometheus.GaugeVec
	collected prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	m := &metrics{
		installs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_statesync_installs_total",
			Help: "Installs of a head on this master, by result.",
		}, []string{"tree", "result"}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_statesync_items_total",
			Help: "Items installed on this master, by kind of change.",
		}, []string{"tree", "change"}),
		fetched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_statesync_fetched_bytes_total",
			Help: "Bytes of contents fetched from other masters.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_statesync_sent_bytes_total",
			Help: "Bytes of contents sent to other masters.",
		}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_statesync_damaged_blobs_total",
			Help: "Contents that were discarded because they did not match their hash.",
		}),
		drift: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "clustermaster_statesync_drift_items",
			Help: "Items changed on this master since its last sync, as of the last check.",
		}, []string{"tree"}),
		collected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_statesync_collected_bytes_total",
			Help: "Bytes of contents removed because no head needs them.",
		}),
	}
	if reg == nil {
		return m
	}
	all := []prometheus.Collector{m.installs, m.items, m.fetched, m.sent, m.damaged, m.drift,
		m.collected}
	for _, t := range []Tree{FileRoots, PillarRoots} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "clustermaster_statesync_head",
			Help:        "Number of the head that this master has installed.",
			ConstLabels: prometheus.Labels{"tree": t.String()},
		}, func() float64 { return float64(s.trees[t].record().head.Seq) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name:        "clustermaster_statesync_behind",
				Help:        "1 while this master has still to install the head.",
				ConstLabels: prometheus.Labels{"tree": t.String()},
			}, func() float64 {
				if s.current(s.trees[t]) {
					return 0
				}
				return 1
			}))
	}
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "clustermaster_statesync_sends",
		Help: "Masters that contents are being sent to; the limit is 4, others wait.",
	}, func() float64 { return float64(len(s.sends)) }))
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			s.log.Warn("metric not registered; it will be missing from /metrics", "err", err)
		}
	}
	return m
}

// installed counts an install.
func (m *metrics) installed(r *Report, err error) {
	tree, result := r.Tree.String(), "ok"
	if err != nil {
		result = "error"
	}
	m.installs.WithLabelValues(tree, result).Inc()
	if err != nil {
		return
	}
	m.items.WithLabelValues(tree, "added").Add(float64(r.Added))
	m.items.WithLabelValues(tree, "changed").Add(float64(r.Changed))
	m.items.WithLabelValues(tree, "deleted").Add(float64(r.Deleted))
	m.drift.WithLabelValues(tree).Set(float64(r.Drifted))
}
