package figure

import "testing"

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.034: "0.03", 9.99: "9.99", 9.996: "10.0",
		99.94: "99.9", 99.96: "100", 999.6: "1,000", 1234567: "1,234,567", -5000: "-5,000"} {
		if got := Number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	for n, want := range map[int]string{0: "0 masters", 1: "1 master", 12345: "12,345 masters"} {
		if got := Plural(n, "master"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
