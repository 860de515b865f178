package bench

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// sampleComparison is two rounds of one size.
func sampleComparison() *Report {
	r := &Report{Made: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		Machine: Machine{CPUs: 2, CPU: "Some CPU", MemoryMB: 4096, Kernel: "6.18", Go: "go1.26"},
		Products: []string{"Salt 3008.3",
			"clustermaster"}, RSA: 2712, LoadAverage: LoadAverage{1.25, 0.5, 0.25}}
	for round, rate := range []float64{300, 400} {
		for i, product := range r.Products {
			l := Load{Request: "_return", PerSecond: rate * float64(1+24*i), Answered: 900, P50: 10,
				P99: 20, GeneratorCPU: 0.1, MastersCPU: 0.8}
			c := Column{Name: product, Product: product, Size: 1, Round: round + 1, Minions: 100,
				Workers: 32, Loads: []Load{l}}
			c.addMemory(figureIdle, []int64{int64(260-240*i) << 20})
			r.Columns = append(r.Columns, c)
		}
	}
	r.Columns[0].Loads[0].Failed, r.Columns[0].Loads[0].Err = 3, "_return: deadline exceeded"
	r.Columns[0].add(figurePing(1000), 4000, "ms", "median of 3; only 998 answered at worst")
	r.Columns[1].add(figurePing(1000), 100, "ms", "median of 3")
	return r
}

func TestPerformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := sampleComparison().writePerformance(dir, "make bench-compare"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"performance.md", "performance-throughput-1.svg",
		"performance-memory-1.svg"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
	}
}

func TestRatios(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		row  row
		want []float64
	}{
		{row{more: true, theirs: []float64{100, 200, 0}, ours: []float64{2000, 3000, 9}},
			[]float64{15, 20}},
		{row{theirs: []float64{100, 200}, ours: []float64{50, 50, 7}}, []float64{2, 4}},
		{row{theirs: []float64{100}}, nil},
	} {
		if got := tt.row.ratios(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.row, got, tt.want)
		}
	}
	for _, tt := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(tt.of); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.of, got, tt.want)
		}
	}
}
