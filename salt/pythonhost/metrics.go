package pythonhost

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	children prometheus.Gauge
	servers  prometheus.Counter
	started  prometheus.Counter
	fork     prometheus.Histogram
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	records  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		children: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_python_children", Help: "Children of the Python host that run.",
		}),
		servers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_python_servers_started_total",
			Help: "Fork servers of the Python host started.",
		}),
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_python_children_started_total",
			Help: "Children of the Python host started.",
		}),
		fork: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "clustermaster_python_fork_seconds", Help: "Time until a child has started.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 10),
		}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_python_calls_total",
			Help: "Calls of the Python host, by kind and result: ok, failed, unknown, time, memory, output, result, exit, died, processes, canceled.",
		}, []string{"kind", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "clustermaster_python_call_seconds",
			Help:    "Time of a call of the Python host, by kind.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"kind"}),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_python_log_records_total",
			Help: "Log records that came from the Python host.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.children, m.servers, m.started, m.fork, m.calls, m.seconds, m.records)
	}
	return m
}
