package master

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// windows are the periods for which heard counts minions, the longest last.
var windows = []struct {
	label string
	time.Duration
}{{"1m", time.Minute}, {"10m", 10 * time.Minute}, {"1h", time.Hour}, {"1d", 24 * time.Hour},
	{"7d", 7 * 24 * time.Hour}}

// heard records when minions were last heard on this master. It is a collector that exports five
// numbers, however many minions there are.
type heard struct {
	now   func() time.Time // of a clock that is never set
	began time.Time
	desc  *prometheus.Desc

	mu sync.RWMutex             // guards the map
	at map[string]*atomic.Int64 // by id, nanoseconds since began
}

func newHeard(now func() time.Time) *heard {
	return &heard{now: now, began: now(), at: make(map[string]*atomic.Int64), desc: prometheus.NewDesc(
		"clustermaster_minions_heard",
		"Minions from which this master has heard a request within the time that the label names.",
		[]string{"within"}, nil)}
}

// note records that a minion was heard. Its id must have an accepted key: these keys bound the map.
func (h *heard) note(id string) {
	now := int64(h.now().Sub(h.began))
	h.mu.RLock()
	at := h.at[id]
	h.mu.RUnlock()
	if at != nil {
		at.Store(now)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if at = h.at[id]; at == nil {
		if len(h.at) >= maxSignedIn {
			return
		}
		at = new(atomic.Int64)
		h.at[id] = at
	}
	at.Store(now)
}

// within reports whether a minion was heard within a period, at most the longest of windows.
func (h *heard) within(id string, d time.Duration) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	at := h.at[id]
	return at != nil && h.now().Sub(h.began)-time.Duration(at.Load()) <= d
}

// Describe implements prometheus.Collector.
func (h *heard) Describe(to chan<- *prometheus.Desc) { to <- h.desc }

// Collect implements prometheus.Collector. It forgets minions outside every window.
func (h *heard) Collect(to chan<- prometheus.Metric) {
	now := int64(h.now().Sub(h.began))
	counts := make([]int, len(windows))
	h.mu.Lock()
	for id, at := range h.at {
		ago := time.Duration(now - at.Load())
		for i, w := range windows {
			if ago <= w.Duration {
				counts[i]++
			}
		}
		if ago > windows[len(windows)-1].Duration {
			delete(h.at, id)
		}
	}
	h.mu.Unlock()
	for i, w := range windows {
		to <- prometheus.MustNewConstMetric(h.desc, prometheus.GaugeValue, float64(counts[i]),
			w.label)
	}
}
