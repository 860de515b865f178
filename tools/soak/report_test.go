package soak

import (
	"strings"
	"testing"
)

// TestGrown: steady use passes, noise included; use that goes on growing does not.
func TestGrown(t *testing.T) {
	t.Parallel()
	run := func(rounds int, use func(n int) Use) Report {
		var r Report
		for n := range rounds {
			r.Rounds = append(r.Rounds, Round{Masters: map[string]Use{"m1": {100 << 20, 100, 200},
				"m2": use(n)}})
		}
		return r
	}
	for _, tt := range []struct {
		name   string
		rounds int
		use    func(n int) Use
		want   string
	}{
		{"steady", 30, func(n int) Use { return Use{float64(100+n%7) * (1 << 20), 100, 200} }, ""},
		{"caches fill", 30, func(n int) Use { return Use{float64(60+40*min(n, 3)) * (1 << 20), 100, 200} }, ""},
		{"memory", 30, func(n int) Use { return Use{float64(100+5*n) * (1 << 20), 100, 200} }, "memory of m2"},
		{"files", 30, func(n int) Use { return Use{100 << 20, float64(100 + 4*n), 200} }, "open files of m2"},
		{"goroutines", 30, func(n int) Use { return Use{100 << 20, 100, float64(200 + 10*n)} }, "goroutines of m2"},
		{"too few rounds", 8, func(n int) Use { return Use{float64(n) * (1 << 30), 100, 200} }, ""},
	} {
		got := strings.Join(run(tt.rounds, tt.use).Grown(), "; ")
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
