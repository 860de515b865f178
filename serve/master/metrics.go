package master

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests  *prometheus.HistogramVec
	refused   *prometheus.CounterVec
	caughtUp  prometheus.Counter
	auth      *prometheus.CounterVec
	returns   *prometheus.CounterVec
	events    *prometheus.CounterVec
	published prometheus.Counter
	resent    prometheus.Counter
	delivered *prometheus.CounterVec

	signInProcessors *prometheus.GaugeVec
	signInsWaiting   *prometheus.GaugeVec
	readersWaiting   *prometheus.GaugeVec

	stateSucceeded prometheus.Counter
	stateFailed    prometheus.Counter
	stateWould     prometheus.Counter
	stateChanges   prometheus.Counter

	unauthorized prometheus.Counter
	orders       *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "clustermaster_request_seconds",
			Help:    "Time taken by requests that were served, by command.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30},
		}, []string{"cmd"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_requests_refused_total",
			Help: "Requests that were not served, by reason.",
		}, []string{"reason"}),
		caughtUp: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_requests_caught_up_total",
			Help: "Requests that were served once this master had caught up with the others' keys.",
		}),
		auth: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_auth_total", Help: "Sign-ins by their outcome.",
		}, []string{"act"}),
		returns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_returns_total", Help: "Returns by what became of them.",
		}, []string{"result"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_minion_events_total",
			Help: "Events that minions sent, by what became of them.",
		}, []string{"result"}),
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_jobs_published_total", Help: "Jobs published by this master.",
		}),
		resent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_jobs_resent_total",
			Help: "Jobs sent again after a loss of a master or of its subscribers.",
		}),
		delivered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_publications_delivered_total",
			Help: "Publications handed to masters, by result.",
		}, []string{"result"}),
		signInProcessors: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "clustermaster_sign_in_processors",
			Help: "Processors that sign-ins may take at a time: those of minions, whose key is accepted, or those of strangers.",
		}, []string{"who"}),
		signInsWaiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "clustermaster_sign_ins_waiting",
			Help: "Sign-ins that wait for a processor: of minions or of strangers.",
		}, []string{"who"}),
		readersWaiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "clustermaster_readers_waiting",
			Help: "Requests that wait because many others are reading file_roots (files) or making pillars (pillars).",
		}, []string{"what"}),
		unauthorized: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_jobs_unauthorized_total",
			Help: "Jobs that publisher_acl did not allow.",
		}),
		orders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_clear_orders_total",
			Help: "Orders of users on the request port, by command and by the proof that was accepted, or refused.",
		}, []string{"cmd", "result"}),
	}
	states := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "clustermaster_state_results_total",
		Help: "States in the returns of state runs, by result: succeeded, failed, or would_change (test mode).",
	}, []string{"result"})
	m.stateSucceeded = states.WithLabelValues("succeeded")
	m.stateFailed = states.WithLabelValues("failed")
	m.stateWould = states.WithLabelValues("would_change")
	m.stateChanges = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "clustermaster_state_changes_total",
		Help: "States in the returns of state runs that changed something, or would in test mode.",
	})
	if reg != nil {
		reg.MustRegister(states, m.stateChanges)
		reg.MustRegister(m.requests, m.refused, m.caughtUp, m.auth, m.returns, m.events,
			m.published, m.resent, m.delivered,
			m.signInProcessors, m.signInsWaiting, m.readersWaiting, m.unauthorized, m.orders)
	}
	return m
}
