package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
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
	leaders    leaderChanges
	peers      peerGauges
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
	m.leaders.changes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "clustermaster_cluster_leader_changes_total",
		Help: "Leaders that this master has learned of, including the first one after its start.",
	})
	m.peers = newPeerGauges()
	m.all = []prometheus.Collector{
		m.proposals, m.proposeDur, m.joins, m.leaders.changes, m.peers.lag, m.peers.silent,
		n.logSync,
		gauge("voters", "Members with a vote.",
			func() float64 { return float64(len(n.agreedVoters())) }),
		gauge("quorum_margin",
			"Voters that may still be lost before no majority is left, as this master sees them; below 0 there is none.",
			func() float64 { return float64(n.quorumMargin()) }),
		gauge("snapshot_age_seconds",
			"Age of this master's last snapshot of the replicated state; without one, since its start.",
			func() float64 { return n.snapshotAge().Seconds() }),
		gauge("unsnapshotted_entries", "Raft log entries since this master's last snapshot.",
			func() float64 { return float64(n.unsnapshotted()) }),
		gauge("leader", "1 on the leader.",
			func() float64 { return truth(n.raft.State() == raft.Leader) }),
		gauge("ready", "1 while this master serves, hears the leader and gets its answers.",
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

// newLogSync measures writes of raft's log. Each ends on stable storage.
func newLogSync() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "clustermaster_cluster_log_sync_seconds",
		Help:    "Time until entries of Raft's log were on this master's stable storage (fsync).",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12),
	})
}

// leaderChanges counts changes from one leader to another.
type leaderChanges struct {
	changes prometheus.Counter

	mu   sync.Mutex // guards last
	last string
}

// saw notes that a node leads; "" means that none does.
func (l *leaderChanges) saw(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if node == "" || node == l.last {
		return
	}
	l.last = node
	l.changes.Inc()
}

// peerGauges are metrics of the other members, by id.
type peerGauges struct {
	lag    *prometheus.GaugeVec
	silent *prometheus.GaugeVec
	told   map[string]bool // ids; only the goroutine that calls tell uses it
}

func newPeerGauges() peerGauges {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "clustermaster_cluster_" + name,
			Help: help}, []string{"peer"})
	}
	return peerGauges{
		lag: gauge("peer_lag_entries",
			"Raft log entries that this master has applied and the other member, when it last answered, had not."),
		silent: gauge("peer_silent_seconds",
			"Time since the last contact with the other member; without any contact, since this master's start."),
		told: map[string]bool{},
	}
}

// tell sets the metrics of all present members and drops those of former ones.
func (p *peerGauges) tell(n *Node) {
	now, present := time.Now(), map[string]bool{}
	applied := n.machine.applied.Load()
	for _, m := range n.state.Members() {
		if m.Node == n.self.Node {
			continue
		}
		n.mu.Lock()
		c, heard := n.contacts[m.Node]
		n.mu.Unlock()
		present[m.ID] = true
		if heard {
			p.lag.WithLabelValues(m.ID).Set(float64(applied - min(applied, c.applied)))
		}
		last := n.port.LastHeard(m.Node)
		if last.Before(n.started) {
			last = n.started
		}
		p.silent.WithLabelValues(m.ID).Set(now.Sub(last).Seconds())
	}
	for id := range p.told {
		if !present[id] {
			p.lag.DeleteLabelValues(id)
			p.silent.DeleteLabelValues(id)
		}
	}
	p.told = present
}

// quorumMargin returns how many more voters may fail. Below 0 those in contact are no majority.
func (n *Node) quorumMargin() int {
	voters, alive := n.agreedVoters(), 0
	for node := range voters {
		if node == n.self.Node || n.port != nil && n.port.Alive(node) {
			alive++
		}
	}
	return alive - (len(voters)/2 + 1)
}

// snapshotAge returns the age of this master's last snapshot, or without one how long it has run.
func (n *Node) snapshotAge() time.Duration {
	if meta := n.lastSnapshot(); meta != nil {
		// raft names a snapshot term-index-milliseconds
		at := strings.LastIndexByte(meta.ID, '-') + 1
		if ms, err := strconv.ParseInt(meta.ID[at:], 10, 64); err == nil {
			return max(0, time.Since(time.UnixMilli(ms)))
		}
	}
	return time.Since(n.started)
}

func (n *Node) unsnapshotted() uint64 {
	last := n.raft.LastIndex()
	if meta := n.lastSnapshot(); meta != nil {
		return last - min(last, meta.Index)
	}
	return last
}

// lastSnapshot returns nil if there is no snapshot.
func (n *Node) lastSnapshot() *raft.SnapshotMeta {
	all, err := n.snapshots.List()
	if err != nil || len(all) == 0 {
		return nil
	}
	return all[0]
}
