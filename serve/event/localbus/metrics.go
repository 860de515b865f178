package localbus

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	listeners prometheus.Gauge
	told      prometheus.Counter
	dropped   prometheus.Counter
	unframed  prometheus.Counter
	fired     prometheus.Counter
	refused   *prometheus.CounterVec // by why
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		listeners: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_localbus_listeners",
			Help: "Processes that listen on master_event_pub.ipc.",
		}),
		told: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_localbus_told_total", Help: "Events written to listeners.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_localbus_dropped_listeners_total",
			Help: "Listeners whose connection was ended because they read too slowly.",
		}),
		unframed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_localbus_unframed_total",
			Help: "Events that could not be passed to listeners.",
		}),
		fired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_localbus_fired_total",
			Help: "Events that processes fired through master_event_pull.ipc.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_localbus_refused_total",
			Help: "Connections, frames and events that were refused, by reason.",
		}, []string{"why"}),
	}
	for _, why := range []string{whyUser, whyMany, whyFrame, whyLarge, whySlow, whyTag, whyGuard} {
		m.refused.WithLabelValues(why)
	}
	if reg != nil {
		reg.MustRegister(m.listeners, m.told, m.dropped, m.unframed, m.fired, m.refused)
	}
	return m
}

// Reasons why the server ends a connection, or does not fire an event.
const (
	whyUser  = "user"  // neither root nor the master's
	whyMany  = "many"  // connections
	whyFrame = "frame" // malformed
	whyLarge = "large"
	whySlow  = "slow"   // to send the rest of a frame
	whyTag   = "tag"    // of something that did not happen; the connection stays
	whyGuard = "engine" // its master no longer leads; the connection stays
)
