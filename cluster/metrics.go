package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hashicorp/raft"
)

type metrics struct {
	reg        prometheus.Registerer
	all        []prometheus.Collector
	proposals  *prometheus.CounterVec
	proposeDur prometheus.Histogram
	joins      *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, n *Node) (*metrics, error) {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "clustermaster_cluster_" + name,
			Help: help}, f)
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	m := &metrics{
		reg: reg,
		proposals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_cluster_proposals_total",
			Help: "Commands proposed on this master, by outcome.",
		}, []string{"outcome"}),
		proposeDur: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "clustermaster_cluster_propose_seconds",
			Help:    "Time until a proposed command was applied here.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 11),
		}),
		joins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_cluster_admissions_total",
			Help: "Answers to proved joiners, by kind.",
		}, []string{"kind"}),
	}
	m.all = []prometheus.Collector{
		m.proposals, m.proposeDur, m.joins,
		gauge("leader", "1 on the leader.",
			func() float64 { return truth(n.raft.State() == raft.Leader) }),
		gauge("ready", "1 while this master serves and hears the leader.",
			func() float64 { return truth(n.Ready()) }),
		gauge("term", "Raft's term.", func() float64 { return float64(n.Term()) }),
		gauge("applied_index", "Raft index of the last command applied.",
			func() float64 { return float64(n.machine.applied.Load()) }),
		gauge("clock_ahead_seconds",
			"How far this machine's clock is ahead of those of most members.",
			func() float64 { return n.ClockAhead().Seconds() }),
		gauge("members", "Members of the cluster.",
			func() float64 { return float64(len(n.state.Members())) }),
		gauge("states_differ", "Members whose replicated state differs from this master's.",
			func() float64 { return float64(len(n.differing())) }),
		gauge("state_checked_index",
			"Raft index of the last checkpoint whose state this master has summed.",
			func() float64 { return float64(n.checks.last().index) }),
		gauge("audit_records", "Records of the audit trail that are kept.",
			func() float64 { _, kept := n.state.AuditsMade(); return float64(kept) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "clustermaster_cluster_audit_records_made_total",
			Help: "Records of the audit trail that the cluster ever made.",
		}, func() float64 { made, _ := n.state.AuditsMade(); return float64(made) }),
		gauge("unvetted_keys", "Minion keys that wait for an operator.",
			func() float64 { return float64(n.state.Unvetted()) }),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range m.all {
		if err := reg.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) unregister() {
	if m.reg == nil {
		return
	}
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}

func (m *metrics) proposed(err error, took time.Duration) {
	outcome := "ok"
	switch {
	case errors.Is(err, ErrNoQuorum):
		outcome = "no_quorum"
	case err != nil:
		outcome = "error"
	default:
		m.proposeDur.Observe(took.Seconds())
	}
	m.proposals.WithLabelValues(outcome).Inc()
}
