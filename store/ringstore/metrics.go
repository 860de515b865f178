package ringstore

import "github.com/prometheus/client_golang/prometheus"

// metrics are the store's figures; the store never reads them.
type metrics struct {
	reg prometheus.Registerer
	all []prometheus.Collector

	writes      *prometheus.CounterVec
	under       prometheus.Counter
	lanesFull   *prometheus.CounterVec
	standIns    prometheus.Counter
	debtsLost   prometheus.Counter
	handedOver  prometheus.Counter
	repaired    *prometheus.CounterVec
	fetched     prometheus.Counter
	quarantined prometheus.Counter
	scrubbed    prometheus.Counter
	mended      prometheus.Counter
	dropped     prometheus.Counter
	stale       prometheus.Counter
	refused     *prometheus.CounterVec
	asked       *prometheus.CounterVec
	askSeconds  prometheus.Histogram
	syncSeconds prometheus.Histogram
	groupTasks  prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	m := &metrics{
		reg: reg,
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_ring_writes_total",
			Help: "Writes taken by this master, by result.",
		}, []string{"result"}),
		under: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_under_replicated_writes_total",
			Help: "Writes acknowledged below the write quorum because too few masters were alive.",
		}),
		lanesFull: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_ring_lane_full_total",
			Help: "Copies not sent because too much waits for that master; they become hints.",
		}, []string{"node"}),
		standIns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_stand_ins_total",
			Help: "Copies given to a master that is not an owner because an owner was away.",
		}),
		debtsLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_debts_lost_total",
			Help: "Copies owed to an owner that could not be noted; comparing copies repairs them.",
		}),
		handedOver: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_hints_handed_over_total",
			Help: "Hints handed to owners that came back, or to those after them.",
		}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_ring_repaired_records_total",
			Help: "Records that a copy lacked, by how that was found.",
		}, []string{"by"}),
		fetched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_transfer_bytes_total",
			Help: "Bytes fetched from other masters to fill or repair copies.",
		}),
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_damaged_total",
			Help: "Damaged stores moved aside and replaced while the master ran.",
		}),
		scrubbed: prometheus.NewCounter(prometheus.CounterOpts{Name: "clustermaster_ring_scrubbed_bytes_total",
			Help: "Bytes of records read to find damage."}),
		mended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_digests_mended_total",
			Help: "Digests that differed from the records on disk.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_buckets_dropped_total",
			Help: "Time buckets of expired records dropped.",
		}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "clustermaster_ring_stale_epoch_total",
			Help: "Writes refused because the writer did not know the newest ring.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_ring_refused_total",
			Help: "Requests and copies refused, by reason.",
		}, []string{"reason"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_ring_asked_partitions_total",
			Help: "Partitions answered for this master's questions: by one owner with which all others " +
				"agree, by merging several copies, or without certainty about every record.",
		}, []string{"by"}),
		askSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "clustermaster_ring_ask_seconds",
			Help:    "Time that a question about many records took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}),
		syncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "clustermaster_ring_sync_seconds",
			Help:    "Time that a group of writes waited for stable storage.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12),
		}),
		groupTasks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "clustermaster_ring_group_writes",
			Help:    "Writes that shared one sync.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	m.all = []prometheus.Collector{
		m.writes, m.under, m.lanesFull, m.standIns, m.debtsLost, m.handedOver,
		m.repaired, m.fetched, m.quarantined, m.scrubbed, m.mended,
		m.asked, m.askSeconds, m.dropped, m.stale, m.refused, m.syncSeconds, m.groupTasks,
		gauge("clustermaster_ring_refilling",
			"1 while this master fetches all of its records again, because its store was damaged.",
			func() float64 {
				if s.disk.Refilling() {
					return 1
				}
				return 0
			}),
		gauge("clustermaster_ring_records", "Records on this master.",
			func() float64 { n, _ := s.disk.Totals(); return float64(n) }),
		gauge("clustermaster_ring_record_bytes", "Bytes of keys and values on this master.",
			func() float64 { _, n := s.disk.Totals(); return float64(n) }),
		gauge("clustermaster_ring_part_bytes",
			"Memory of the parts of records that questions read.",
			func() float64 { return float64(s.parts.Bytes()) }),
		gauge("clustermaster_ring_lane_waiting_bytes",
			"Copies that wait to be sent to other masters, in bytes.",
			func() float64 { return float64(s.remote.Waiting()) }),
		gauge("clustermaster_ring_hints", "Copies that this master owes to absent owners.",
			func() float64 { n, _ := s.disk.OwedTotals(); return float64(n) }),
		gauge("clustermaster_ring_under_replicated",
			"Copies owed for records written below the write quorum.",
			func() float64 { _, n := s.disk.OwedTotals(); return float64(n) }),
		gauge("clustermaster_ring_pending_partitions",
			"Own partitions still to be filled for the newest ring.",
			func() float64 { return float64(s.syncing.left()) }),
	}
	if reg != nil {
		for _, c := range m.all {
			if err := reg.Register(c); err != nil {
				s.log.Warn("metric not registered; it will be missing from /metrics", "err", err)
			}
		}
	}
	return m
}

func (m *metrics) unregister() {
	if m.reg == nil {
		return
	}
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
