package bench

import (
	"math/bits"
	"time"
)

// A histogram counts in buckets whose width grows with the value: subBuckets to each
// power of two, so a quantile is at most 1/subBuckets (0.8 %) above the true one.
const (
	subBits    = 7
	subBuckets = 1 << subBits
	// maxLatency is the largest value told apart; longer ones count as this long.
	maxLatency = time.Hour
)

// Histogram is a distribution of latencies. Its zero value is empty. It is not safe for
// concurrent use: each worker has one of its own, and they are merged.
type Histogram struct {
	counts   []uint64
	n        uint64
	sum      float64 // ns
	min, max time.Duration
}

// bucket is the index of the bucket that holds v nanoseconds.
func bucket(v uint64) int {
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return (shift+1)<<subBits | int(v>>shift)&(subBuckets-1)
}

// upper is the largest value of a bucket.
func upper(i int) uint64 {
	if i < subBuckets {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i&(subBuckets-1)|subBuckets)+1)<<shift - 1
}

// Record counts one latency. A negative one, of a clock that was set back, counts as 0.
func (h *Histogram) Record(d time.Duration) {
	d = min(max(d, 0), maxLatency)
	i := bucket(uint64(d))
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.sum += float64(d)
}

// Merge adds what o counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if len(o.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]uint64, len(o.counts)-len(h.counts))...)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// Count is the number of latencies.
func (h *Histogram) Count() uint64 { return h.n }

// Max is the longest latency, exactly; Min the shortest; Mean the mean. They are 0 when
// nothing was counted.
func (h *Histogram) Max() time.Duration { return h.max }

// Min is the shortest latency, exactly.
func (h *Histogram) Min() time.Duration { return h.min }

// Mean is the mean latency, exactly.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile is the smallest latency that at least the share q (0 to 1) of all does not
// exceed, rounded up to its bucket's end but never past the maximum.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n))
	if float64(rank) < q*float64(h.n) {
		rank++
	}
	rank = min(max(rank, 1), h.n)
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return min(time.Duration(upper(i)), h.max)
		}
	}
	return h.max
}
