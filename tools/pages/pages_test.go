package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermaster/tools/bench"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each page is as it was, and shows the plots that were drawn and no other.
func TestPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := run(dir, "testdata/simulation.json", "testdata/soak.json", "",
		[]string{"../bench/testdata/report.json",
			"testdata/growth.json", "testdata/comparison.json"}); err != nil {
		t.Fatal(err)
	}
	plots, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
	shown, drawn := 0, 0
	for _, name := range []string{"benchmarks.md", "growth.md", "performance.md", "scale.md",
		"soak.md"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v: got\n%s\nwant\n%s", name, err, got, want)
		}
		for _, p := range plots {
			drawn += strings.Count(string(got), "]("+filepath.Base(p)+")")
		}
		shown += strings.Count(string(got), ".svg)")
	}
	if shown != 14 || drawn != shown || len(plots) != shown {
		t.Errorf("the pages show %d plots, drawn were %v", shown, plots)
	}
	for _, p := range plots {
		checkPlot(t, p)
	}
}

// checkPlot reads a plot as a browser would: well-formed, with something drawn, nothing outside.
func checkPlot(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if bytes.Count(b, []byte("<path")) < 10 || bytes.Contains(b, []byte("NaN")) ||
		bytes.Contains(b, []byte("Inf")) {
		t.Errorf("%s shows nothing:\n%s", path, b)
	}
}

// A single point, equal values and values of 0 on a logarithmic axis are drawn or left out; a plot
// of nothing is an error.
func TestPlotsOfLittle(t *testing.T) {
	t.Parallel()
	c := &chart{title: "one", logX: true, logY: true}
	c.line("a").add(10, 100)
	c.line("a").add(0, 5)
	first, err := c.svg()
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.svg(); !bytes.Equal(first, again) {
		t.Error("the same plot has other bytes")
	}
	c = &chart{title: "none", logY: true}
	c.line("a").add(1, 0)
	if _, err := c.svg(); err == nil {
		t.Error("a plot of nothing was drawn")
	}
}

// What a master could not do in time is said in the table in the place of its figure.
func TestUnmeasured(t *testing.T) {
	t.Parallel()
	r := new(bench.Report)
	if err := read("testdata/unmeasured.json", r); err != nil {
		t.Fatal(err)
	}
	p := comparison{report{r}}
	rows := p.Rows(1)
	i := slices.IndexFunc(rows, func(x *row) bool { return x.Name == bench.FigureSignIn(10_000) })
	if i < 0 {
		t.Fatal("no row of the sign-in")
	}
	if theirs, ours := p.Cell(rows[i], 1, p.Theirs()), p.Cell(rows[i], 1,
		p.Ours()); theirs != "did not finish in 180 s: 2,100 of 10,000 minions started" ||
		ours != "50.0 s" || rows[i].Ratio() != "-" {
		t.Errorf("%q, %q, ratio %s", theirs, ours, rows[i].Ratio())
	}
}

func TestRatios(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		row  row
		want []float64
	}{
		{row{Unit: "/s", theirs: []float64{100, 200, 0}, ours: []float64{2000, 3000, 9}},
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

func TestFolded(t *testing.T) {
	t.Parallel()
	words := strings.TrimSpace(strings.Repeat("word ", 50))
	for _, text := range []string{words + "\n", "- " + words + "\n\nshort\n",
		strings.Repeat("x", 150) + " " + words + "\n"} {
		got := folded(text)
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(text), " ") {
			t.Errorf("%q became %q", text, got)
		}
		for line := range strings.Lines(got) {
			if len(line) > 101 && !strings.Contains(line, "xxx") {
				t.Errorf("%d columns: %s", len(line)-1, line)
			}
		}
	}
	for _, same := range []string{"| " + words + " |\n", "    " + words + "\n"} {
		if got := folded(same); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := run(dir, "", "", "", []string{filepath.Join(dir, "none.json")}); err == nil ||
		!strings.Contains(err.Error(), "read ") {
		t.Errorf("%v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(filepath.Join(file, "no"), "testdata/simulation.json", "", "", nil); err == nil {
		t.Error("written below a file")
	}
}
