package operator

import "github.com/prometheus/client_golang/prometheus"

// Reasons why the socket refuses a user, or ends the connection.
const (
	whyConnections = "connections" // too many of this user, or of all users
	whyCalls       = "calls"       // the same
	whyLogins      = "logins"      // too many attempts of this user
	whyRights      = "rights"      // not root, not the master's user, and not admitted by an option
	whyLarge       = "large"       // the values of a request take too much memory
	whyFrames      = "frames"      // too many small ones
)

type metrics struct {
	connections prometheus.Gauge
	refused     *prometheus.CounterVec // by why
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_operator_connections",
			Help: "Open connections on the commands' socket. New ones wait at 512.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_operator_refused_total",
			Help: "Connections and calls on the commands' socket that were refused, by reason.",
		}, []string{"why"}),
	}
	for _, why := range []string{whyConnections, whyCalls, whyLogins, whyRights, whyLarge,
		whyFrames} {
		m.refused.WithLabelValues(why)
	}
	if reg != nil {
		reg.MustRegister(m.connections, m.refused)
	}
	return m
}

func (m *metrics) refuse(why string) { m.refused.WithLabelValues(why).Inc() }
