package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// quantileOf is the definition: the smallest sample that at least the share q does not exceed.
func quantileOf(sorted []time.Duration, q float64) time.Duration {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func TestHistogramAgainstSortedSamples(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 2026))
	for _, tt := range []struct {
		name   string
		n      int
		sample func() time.Duration
	}{
		{"one", 1, func() time.Duration { return 1234567 }},
		{"two", 2, func() time.Duration { return time.Duration(1 + r.IntN(1e9)) }},
		{"small values", 5000, func() time.Duration { return time.Duration(r.IntN(300)) }},
		{"uniform", 20000,
			func() time.Duration { return time.Duration(r.Int64N(int64(time.Second))) }},
		{"log-normal with a tail", 20000, func() time.Duration {
			return time.Duration(math.Exp(r.NormFloat64()*2) * float64(time.Millisecond))
		}},
		{"constant", 1000, func() time.Duration { return 40 * time.Millisecond }},
	} {
		var samples []time.Duration
		parts := make([]Histogram, 3) // as of three workers
		var all Histogram
		for i := range tt.n {
			d := min(tt.sample(), maxLatency)
			samples = append(samples, d)
			parts[i%len(parts)].Record(d)
		}
		for i := range parts {
			all.Merge(&parts[i])
		}
		slices.Sort(samples)
		if all.Count() != uint64(tt.n) || all.min != samples[0] || all.max != samples[tt.n-1] {
			t.Errorf("%s: %d from %v to %v, want %d from %v to %v", tt.name, all.Count(), all.min,
				all.max, tt.n, samples[0], samples[tt.n-1])
		}
		var sum float64
		for _, d := range samples {
			sum += float64(d)
		}
		if mean := sum / float64(tt.n); math.Abs(float64(all.Mean())-mean) > mean/1000+1 {
			t.Errorf("%s: mean %v, want %v", tt.name, all.Mean(), time.Duration(mean))
		}
		for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1} {
			got, want := all.Quantile(q), quantileOf(samples, q)
			if got < want || float64(got) > float64(want)*(1+0.001)+1 {
				t.Errorf("%s: quantile %v is %v, want %v or at most a thousandth more", tt.name, q,
					got, want)
			}
		}
	}
}

func TestHistogramEdges(t *testing.T) {
	t.Parallel()
	var h Histogram
	if h.Quantile(0.5) != 0 || h.max != 0 || h.Mean() != 0 || h.Count() != 0 {
		t.Error("an empty histogram is not 0")
	}
	h.Merge(new(Histogram))
	h.Record(-time.Second)
	h.Record(100 * time.Hour)
	if h.min != 0 || h.max != maxLatency || h.Quantile(0.5) != 0 ||
		h.Quantile(1) != maxLatency {
		t.Errorf("min %v, max %v, p50 %v, p100 %v", h.min, h.max, h.Quantile(0.5),
			h.Quantile(1))
	}
}

// The generator must not collect garbage while it measures.
func TestRecordAllocatesNothing(t *testing.T) {
	var h Histogram
	h.Record(maxLatency)
	if n := testing.AllocsPerRun(100, func() { h.Record(3 * time.Millisecond) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHistogramRecord(b *testing.B) {
	var h Histogram
	h.Record(maxLatency)
	for b.Loop() {
		h.Record(1234567)
	}
}
