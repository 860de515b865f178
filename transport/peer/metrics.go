package peer

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this package's figures; the package never reads them.
type metrics struct {
	refused    *prometheus.CounterVec // reason
	conns      *prometheus.GaugeVec   // protocol, side
	handshakes prometheus.Gauge
	dropped    *prometheus.CounterVec // reason: removed, down, surplus, line, superseded
	joins      *prometheus.CounterVec // result
	unknown    *prometheus.CounterVec // in: request, reply
	beats      prometheus.Histogram
	downs      prometheus.Counter
	disowned   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_peer_refused_total",
			Help: "Connections at the peer port that were closed before anything above TLS read a byte, by reason.",
		}, []string{"reason"}),
		conns: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "clustermaster_peer_connections",
			Help: "Open connections with pinned peers, by protocol and by who dialled.",
		}, []string{"protocol", "side"}),
		handshakes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_peer_handshakes",
			Help: "Accepted connections that have not yet proved who they are.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_peer_dropped_total",
			Help: "Live peer connections closed by this side, by reason.",
		}, []string{"reason"}),
		joins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_peer_joins_total",
			Help: "Join requests of proved joiners, by result.",
		}, []string{"result"}),
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_peer_unknown_fields_total",
			Help: "Messages of peers that were refused for a field that only a newer release knows, by kind of " +
				"message.",
		}, []string{"in"}),
		beats: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "clustermaster_peer_heartbeat_seconds",
			Help:    "Time from a heartbeat to its answer.",
			Buckets: []float64{.001, .005, .02, .1, .5, 1.5},
		}),
		downs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_peer_downs_total",
			Help: "Times a peer stopped answering heartbeats or was restarted.",
		}),
		disowned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_peer_disowned_total",
			Help: "Connections on which a peer refused the node key of this master.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.refused, m.conns, m.handshakes, m.dropped, m.joins, m.unknown, m.beats, m.downs,
		m.disowned,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register peer metrics: %w", err)
		}
	}
	return m, nil
}
