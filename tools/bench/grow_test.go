package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// growQuickly runs parts of --grow with our own masters, and returns what was measured and the page
// of it.
func growQuickly(t *testing.T, args ...string) (*Report, string) {
	t.Helper()
	program, dir := ownProgram(t), t.TempDir()
	report, docs := filepath.Join(dir, "report.json"), filepath.Join(dir, "docs")
	var stdout, stderr bytes.Buffer
	code := Command(t.Context(), append([]string{"--grow", "--quick", "--binary", program, "--dir",
		dir, "--json", report, "--docs", docs}, args...), &stdout, &stderr)
	t.Log(stdout.String())
	if code != exitGood || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	r, err := readReport(report)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, "growth.md"))
	if err != nil {
		t.Fatal(err)
	}
	plots, _ := filepath.Glob(filepath.Join(docs, "*.svg"))
	if len(plots) != strings.Count(string(text), ".svg)") {
		t.Errorf("the page shows other plots than %v", plots)
	}
	for _, p := range plots {
		checkPlot(t, p)
	}
	return r, string(text)
}

// checkPlot reads a plot as a browser would: well-formed, and with something drawn.
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
	if !bytes.Contains(b, []byte("<circle")) && bytes.Count(b, []byte("<rect")) < 3 ||
		bytes.Contains(b, []byte("NaN")) {
		t.Errorf("%s shows nothing:\n%s", path, b)
	}
}

// More minions come to one master, and all of them answer, by glob and by grain; larger jobs go to
// two sizes of clusters.
func TestGrowMinionsAndSizes(t *testing.T) {
	r, page := growQuickly(t, "--parts", "minions,sizes", "--fleet", "1,7", "--job-sizes", "1,300",
		"--minions", "5", "--workers", "2", "--seconds", "0.3", "--warmup", "0")
	var names []string
	for _, c := range r.Columns {
		names = append(names, c.Name)
		for _, f := range c.Figures {
			if f.Value <= 0 || strings.Contains(f.Note, "only") {
				t.Errorf("%s: %+v", c.Name, f)
			}
		}
		for _, l := range c.Loads {
			if l.Answered == 0 || l.Failed > 0 {
				t.Errorf("%s: %+v", c.Name, l)
			}
		}
	}
	if got := strings.Join(names,
		"; "); got != "0 minions; 1 minion; 7 minions; 1 master, jobs of 1 KB; 1 master, jobs of 300 KB; 3 masters, jobs of 1 KB; 3 masters, jobs of 300 KB" {
		t.Errorf("measured %s", got)
	}
	for _, want := range []string{"## Minions", "\n| 7 | ", "## Size of jobs",
		"\n| 3 masters, jobs of 300 KB | "} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page:\n%s", want, page)
		}
	}
}

func TestGrowMasters(t *testing.T) {
	r, page := growQuickly(t, "--parts", "masters", "--sizes", "1,2", "--minions", "4", "--workers",
		"4", "--seconds", "0.3", "--warmup", "0")
	if len(r.Columns) != 2 || len(r.Columns[1].Masters) != 2 ||
		!strings.Contains(page, "| figure | 1 master | 2 masters |") {
		t.Fatalf("%+v\n%s", r.Columns, page)
	}
	for _, c := range r.Columns {
		if len(c.Loads) != 5 || len(c.Figures) < 6 {
			t.Errorf("%s: %d loads and %d figures", c.Name, len(c.Loads), len(c.Figures))
		}
		for _, l := range c.Loads {
			if l.Answered == 0 || l.Failed > 0 {
				t.Errorf("%s: %+v", c.Name, l)
			}
		}
	}
}

// Whatever ails some subscribers, the others get every publication in order, and what the master
// keeps for those that ail is bounded by pub_hwm.
func TestStalledSubscribers(t *testing.T) {
	program := ownProgram(t)
	keys, err := newKeys(1)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	b := &bencher{out: &out, progress: newProgress(io.Discard), keys: keys}
	plan := stalledPlan{subscribers: 60, bad: 8, publications: 60, size: 20_000,
		every: 20 * time.Millisecond, queue: 10}
	var r Report
	if err := b.stalled(t.Context(), plan, program, t.TempDir(), &r); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if len(r.Columns) != 4 {
		t.Fatalf("%d ways were measured", len(r.Columns))
	}
	for i, c := range r.Columns {
		value := func(name string) float64 {
			f, ok := c.figure(name)
			if !ok {
				t.Errorf("%s: no %s", c.Name, name)
			}
			return f.Value
		}
		if value(figureMissed) != 0 {
			t.Errorf("%s: the others missed %v publications", c.Name, value(figureMissed))
		}
		if i == 0 {
			continue
		}
		dropped, queued := value(figureDropped), value(figureQueued)
		if queued > float64(plan.queue) {
			t.Errorf("%s: %v publications are queued for each, pub_hwm is %d", c.Name, queued,
				plan.queue)
		}
		if takesNothing := i < 3; takesNothing &&
			(dropped == 0 || dropped > float64(plan.publications-plan.queue)) {
			t.Errorf("%s: %v publications were dropped for each", c.Name, dropped)
		}
	}
}

// A subscriber that hears something twice, or out of order, is found.
func TestEditions(t *testing.T) {
	t.Parallel()
	e := newEditions(3)
	for i, tt := range []struct {
		payload string
		want    int
	}{{"a", 0}, {"b", 1}, {"a", 0}, {"c", 2}, {"b", 1}} {
		if got := e.of([]byte(tt.payload)); got != tt.want {
			t.Errorf("%d: %q is publication %d, want %d", i, tt.payload, got, tt.want)
		}
	}
}

func TestSizeNames(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "1 byte", 500: "500 bytes", 1000: "1 KB", 1500: "1.5 KB",
		100_000: "100 KB", 1_000_000: "1 MB"} {
		if got := sizeName(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
		if got := textOf(n); len(got) != n || n > 500 && strings.Contains(got[100:], got[:50]) {
			t.Errorf("text of %d bytes: %d", n, len(got))
		}
	}
}
