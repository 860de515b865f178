package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxLatency is the largest distinct value; longer latencies count as this long.
const maxLatency = time.Hour

// Histogram is a distribution of latencies, exact to a thousandth; the longest and the shortest are
// exact. Its zero value is empty. It is not safe for concurrent use: each worker has its own, and
// these are merged.
type Histogram struct {
	counts   *hdrhistogram.Histogram // in ns; nil: empty
	min, max time.Duration
}

// Record counts one latency. A negative one, after a clock was set back, counts as 0.
func (h *Histogram) Record(d time.Duration) {
	d = min(max(d, 0), maxLatency)
	h.cover(d, d)
	h.counts.RecordValue(int64(d)) // within the bounds
}

// cover extends the range to values from low to high.
func (h *Histogram) cover(low, high time.Duration) {
	if h.counts == nil {
		h.counts, h.min = hdrhistogram.New(1, int64(maxLatency), 3), low
	}
	h.min, h.max = min(h.min, low), max(h.max, high)
}

// Merge adds the counts of o.
func (h *Histogram) Merge(o *Histogram) {
	if o.counts == nil {
		return
	}
	h.cover(o.min, o.max)
	h.counts.Merge(o.counts)
}

// Count is the number of latencies.
func (h *Histogram) Count() uint64 {
	if h.counts == nil {
		return 0
	}
	return uint64(h.counts.TotalCount())
}

// Mean is the mean latency.
func (h *Histogram) Mean() time.Duration {
	if h.counts == nil {
		return 0
	}
	return time.Duration(h.counts.Mean())
}

// Quantile is the smallest latency that at least the share q (0 to 1) of all does not exceed, or up
// to a thousandth more.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.counts == nil {
		return 0
	}
	return min(max(time.Duration(h.counts.ValueAtQuantile(100*q)), h.min), h.max)
}
