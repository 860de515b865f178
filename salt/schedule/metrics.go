package schedule

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	ran     *prometheus.CounterVec
	skipped *prometheus.CounterVec
	lost    prometheus.Counter
	running prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		ran: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_schedule_runs_total",
			Help: "Runs of the schedule that ended on this master, done or failed.",
		}, []string{"outcome"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_schedule_skipped_total",
			Help: "Due runs of the schedule that did not happen, by reason; busy: too many were in progress.",
		}, []string{"reason"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_schedule_claims_lost_total",
			Help: "Runs of the schedule that another leader had claimed.",
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_schedule_running", Help: "Runs of the schedule in progress.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.ran, m.skipped, m.lost, m.running)
	}
	return m
}
