package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// Drawings are well-formed and keep all marks inside, whatever the values.
func TestDrawings(t *testing.T) {
	t.Parallel()
	for name, svg := range map[string][]byte{
		"no bars": Bars{Title: "a < b & c", Series: []string{"x"}}.SVG(),
		"one bar": Bars{Title: "t", Series: []string{"x", "y"},
			Groups: []Group{{"g", []float64{0, 3}}}}.SVG(),
		"no lines":  Plot{Title: "t", LogY: true}.SVG(),
		"one point": Plot{Title: "t", Lines: []Line{{"l", [][2]float64{{1, 1}}}}}.SVG(),
		"zero on logs": Plot{Title: "t", LogX: true, LogY: true,
			Lines: []Line{{"l", [][2]float64{{0, 0}, {1e6, 1e9}}}}}.SVG(),
	} {
		d := xml.NewDecoder(bytes.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
		for _, bad := range []string{"NaN", "Inf", `="-`} {
			if strings.Contains(string(svg), bad) {
				t.Errorf("%s has %s:\n%s", name, bad, svg)
			}
		}
	}
	if a := (&axis{low: 0, high: 35, any: true}); !slices.Equal(a.ticks(),
		[]float64{0, 10, 20, 30}) || math.IsNaN(a.place(1)) {
		t.Errorf("ticks %v", a.ticks())
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.034: "0.03", 9.99: "9.99", 9.996: "10.0",
		99.94: "99.9", 99.96: "100", 999.6: "1,000", 1234567: "1,234,567", -5000: "-5,000"} {
		if got := Number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
