package orchestrate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/value"
)

type metrics struct {
	orchestrations *prometheus.CounterVec // by outcome
	states         prometheus.Counter
	took           prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		orchestrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_orchestrations_total",
			Help: "Orchestrations by outcome: succeeded, failed (a state), invalid (the SLS files), broken (no answer).",
		}, []string{"outcome"}),
		states: prometheus.NewCounter(prometheus.CounterOpts{Name: "clustermaster_orchestration_states_total", Help: "States that orchestrations were to run."}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "clustermaster_orchestration_seconds", Help: "Time of orchestrations.",
			Buckets: []float64{.01, .1, 1, 10, 60, 600, 3600},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.orchestrations, m.states, m.took)
	}
	return m
}

func (m *metrics) ended(v any, err error, took time.Duration) {
	outcome := "failed"
	if _, list := v.([]any); list {
		outcome = "invalid"
	}
	switch ret, _ := v.(value.Map); {
	case err != nil:
		outcome = "broken"
	case Succeeded(ret):
		outcome = "succeeded"
	}
	m.orchestrations.WithLabelValues(outcome).Inc()
	m.took.Observe(took.Seconds())
}

// Succeeded reports whether an orchestration had states and all of them succeeded: Salt's
// check_result.
func Succeeded(ret value.Map) bool {
	for _, p := range ret {
		one, ok := p.Value.(value.Map)
		if result, has := one.Get("result"); !ok || !has || result == false {
			return false
		}
	}
	return len(ret) > 0
}
