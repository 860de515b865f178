package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clustermaster/tools/monitoring"
)

// fullRecording has three series for each query of the shipped dashboard, with the labels of the
// longest legends, and an alert.
func fullRecording(t *testing.T, b monitoring.Board) monitoring.Recording {
	t.Helper()
	r := monitoring.Recording{From: 1800000000, To: 1800000600, Step: 60,
		Notes: []string{strings.Repeat("What happened, in many words. ", 12)}, Panels: map[int][][]monitoring.Series{}}
	values := func(v float64) (list [][2]any) {
		for at := r.From; at <= r.To; at += r.Step {
			list = append(list, [2]any{float64(at), strconv.FormatFloat(v*float64(at-r.From), 'g', -1, 64)})
		}
		return list
	}
	for _, p := range b.Panels {
		for i := range p.Targets {
			var answer []monitoring.Series
			for n := range 3 {
				id := fmt.Sprintf("master%d", n+1)
				answer = append(answer, monitoring.Series{Values: values(math.Pow(10, float64(i-n))),
					Metric: map[string]string{"instance": id, "peer": id, "act": "accept", "cmd": "_return",
						"reason": "none", "result": "saved", "outcome": "done", "within": "10m"}})
				if p.Type == "stat" {
					break
				}
			}
			r.Panels[p.ID] = append(r.Panels[p.ID], answer)
		}
	}
	r.Alerts = []monitoring.Series{{Values: values(1)[3:5],
		Metric: map[string]string{"alertname": "ClustermasterDown", "instance": "master2"}}}
	return r
}

// written is a text of a picture with the place that it takes.
type written struct {
	text string
	rectangle
}

// texts reads the texts of an SVG as a browser would.
func texts(t *testing.T, svg []byte) (list []written) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "text" {
			continue
		}
		var w written
		if err := d.DecodeElement(&w.text, &start); err != nil {
			t.Fatal(err)
		}
		size, at := 9.0, map[string]string{}
		for _, a := range start.Attr {
			at[a.Name.Local] = a.Value
		}
		if s := map[string]float64{"t": 11, "n": 11, "h": 18}[at["class"]]; s > 0 {
			size = s
		}
		fmt.Sscanf(at["style"], "font-size:%fpx", &size)
		x, _ := strconv.ParseFloat(at["x"], 64)
		y, _ := strconv.ParseFloat(at["y"], 64)
		width := textWidth(w.text, size) / 1.05
		x -= map[string]float64{"middle": width / 2, "end": width}[at["text-anchor"]]
		w.rectangle = rectangle{x, y - 0.7*size, x + width, y}
		list = append(list, w)
	}
}

// The shipped dashboard is drawn with all its titles; no text lies on another or outside.
func TestBoard(t *testing.T) {
	t.Parallel()
	b, err := monitoring.ParseBoard(monitoring.Dashboard)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := drawBoard(b, fullRecording(t, b))
	if err != nil {
		t.Fatal(err)
	}
	all := texts(t, svg)
	for i, w := range all {
		if w.left < 0 || w.right > boardWidth || w.top < 0 {
			t.Errorf("%q lies outside: %v", w.text, w.rectangle)
		}
		for _, o := range all[:i] {
			if w.left < o.right && o.left < w.right && w.top < o.bottom && o.top < w.bottom {
				t.Errorf("%q %v lies on %q %v", w.text, w.rectangle, o.text, o.rectangle)
			}
		}
	}
	has := func(text string) bool {
		return slices.ContainsFunc(all, func(w written) bool { return w.text == text })
	}
	for _, p := range b.Panels {
		if !has(p.Title) {
			t.Errorf("no panel %q", p.Title)
		}
	}
	if !has("Red stripes are firing alerts: ClustermasterDown master2 08:03:00 to 08:04:00.") ||
		!has("master1 seen by master1") || !has("master3 publications held") || has("No data") {
		t.Errorf("notes and legends: %v", all)
	}
	if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
		t.Errorf("not numbers: %s", svg)
	}
	empty, err := drawBoard(b, monitoring.Recording{From: 1, To: 2, Step: 1})
	if n := bytes.Count(empty, []byte("No data")); err != nil || n != 33 {
		t.Errorf("%d panels without data, %v", n, err)
	}
}

// A new unit or kind of panel is not drawn as if it were known.
func TestBoardUnknown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, change := range map[string][2]string{"unit": {`"unit": "reqps"`, `"unit": "furlongs"`},
		"kind": {`"type": "timeseries"`, `"type": "piechart"`}} {
		b, err := monitoring.ParseBoard(bytes.ReplaceAll(monitoring.Dashboard, []byte(change[0]),
			[]byte(change[1])))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := drawBoard(b, fullRecording(t, b)); err == nil {
			t.Errorf("an unknown %s was drawn", name)
		}
	}
	file := filepath.Join(dir, "recording.json")
	if err := os.WriteFile(file, []byte(`{"From":1,"To":2,"Step":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, "", "", file, nil); err != nil {
		t.Error(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "monitoring-dashboard.svg"))
	if err != nil || len(texts(t, svg)) < 60 {
		t.Errorf("%v in %s", err, svg)
	}
}

func TestBoardNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		unit string
		v    float64
		want string
	}{{"s", 0.0004, "400 µs"}, {"s", 0.0123, "12.3 ms"}, {"s", 90, "90 s"}, {"s", 300, "5 min"},
		{"bytes", 3 << 29, "1.5 GiB"}, {"percentunit", 1.5, "150 %"}, {"short", 3, "3"},
		{"short", 1048576, "1.05 Mil"}, {"reqps", 0.25, "0.25 req/s"}} {
		s, err := scaleFor(tt.unit, tt.v)
		if got := s.text(tt.v); got != tt.want || err != nil {
			t.Errorf("%v %s: %q, %v, want %q", tt.v, tt.unit, got, err, tt.want)
		}
	}
	one := scale{0, 1, ""}
	for _, tt := range []struct {
		low, high float64
		want      []float64
	}{{0, 0, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}}, {0, 4, []float64{0, 1, 2, 3, 4}},
		{-1, 1, []float64{-1, 0, 1}}, {0, 0.07, []float64{0, 0.02, 0.04, 0.06, 0.08}},
		{3, 3, []float64{0, 1, 2, 3, 4}}} {
		got := one.ticks(tt.low, tt.high)
		if fmt.Sprintf("%.4g", got) != fmt.Sprintf("%.4g", tt.want) {
			t.Errorf("%v to %v: %v, want %v", tt.low, tt.high, got, tt.want)
		}
	}
}

// Lines end where values are missing, and a lonely value is a dot.
func TestBoardGaps(t *testing.T) {
	t.Parallel()
	p := monitoring.Panel{Targets: make([]monitoring.Target, 1)}
	list := curvesOf(p, [][]monitoring.Series{{{Values: [][2]any{{0.0, "1"}, {5.0, "1"}, {10.0, "1"},
		{15.0, "NaN"}, {20.0, "2"}, {40.0, "+Inf"}, {45.0, "3"}, {50.0, "4"}}}, {Values: [][2]any{{0.0, "NaN"}}}}})
	if len(list) != 1 {
		t.Fatalf("%v", list)
	}
	same := func(v float64) float64 { return v }
	if got, want := list[0].path(5, same, same),
		"M0 1h.1L10 1M20 2h.1M45 3h.1L50 4"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
