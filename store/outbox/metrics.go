package outbox

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ taken, refused, aside *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			[]string{"queue"})
	}
	m := &metrics{
		taken: counter("clustermaster_returner_written_total",
			"Events and returns that a returner has taken, by queue."),
		refused: counter("clustermaster_returner_refused_total",
			"Events and returns that are not kept for a returner: its queue or the disk is full."),
		aside: counter("clustermaster_returner_aside_total",
			"Events and returns that a returner does not take, while it takes others."),
	}
	if reg != nil {
		reg.MustRegister(m.taken, m.refused, m.aside)
	}
	return m
}

var (
	waitingDesc = prometheus.NewDesc("clustermaster_returner_waiting",
		"Events and returns that wait for a returner, by queue.", []string{"queue"}, nil)
	bytesDesc = prometheus.NewDesc("clustermaster_returner_waiting_bytes",
		"Bytes of the events and returns that wait for a returner, by queue.", []string{"queue"}, nil)
)

// Describe implements prometheus.Collector.
func (b *Box) Describe(ch chan<- *prometheus.Desc) {
	ch <- waitingDesc
	ch <- bytesDesc
}

// Collect implements prometheus.Collector.
func (b *Box) Collect(ch chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, q := range b.queues {
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(q.count),
			name)
		ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.GaugeValue, float64(q.bytes),
			name)
	}
}
