package render

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	seconds       prometheus.Histogram
	errors        prometheus.Counter
	yamlFallbacks prometheus.Counter
	workers       prometheus.Gauge
	waiting       prometheus.Gauge
	started       prometheus.Counter
	stopped       *prometheus.CounterVec
	cache         *prometheus.CounterVec
	cacheBytes    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "clustermaster_render_seconds",
			Help:    "Time of a render, calls and waiting for a worker included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_render_errors_total", Help: "Renders that ended with an error.",
		}),
		yamlFallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_render_yaml_fallbacks_total",
			Help: "YAML documents that Go's reader left to a worker.",
		}),
		workers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_render_workers", Help: "Render workers that run.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_render_waiting", Help: "Renders that wait for a worker.",
		}),
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_render_workers_started_total", Help: "Render workers started.",
		}),
		stopped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_render_workers_stopped_total",
			Help: "Render workers ended, by reason: idle, time, memory, output, canceled, died, closed.",
		}, []string{"reason"}),
		cache: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_render_cache_total",
			Help: "Lookups in the cache of renders, by result: hit, miss, unkept (the render can't be cached).",
		}, []string{"result"}),
		cacheBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clustermaster_render_cache_bytes", Help: "Size of the kept renders.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.seconds, m.errors, m.yamlFallbacks, m.workers, m.waiting, m.started,
			m.stopped, m.cache, m.cacheBytes)
	}
	return m
}
