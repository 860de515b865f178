package bench

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// sampleGrowth is a little of each part.
func sampleGrowth() *Report {
	r := sampleReport()
	r.Columns = nil
	add := func(c Column) { r.Columns = append(r.Columns, c) }
	none := Column{Part: partMinions, Name: "0 minions"}
	none.addMemory(figureFleet(0), []int64{20 << 20})
	add(none)
	many := Column{Part: partMinions, Name: "10,000 minions", Minions: 10_000}
	many.add(figureSignIn(10_000), 50, "s", "180 a second, with 1,000 before")
	many.addMemory(figureFleet(10_000), []int64{420 << 20})
	many.remark("8,848 of them keep a request connection")
	many.add(figurePing(10_000), 2000, "ms", "median of 3")
	many.add(figureGrainPing(10_000), 2500, "ms", "median of 3; only 9999 at worst")
	many.add(figureResolve(10_000), 5, "ms", "median of 3")
	add(many)
	for i, masters := range [][]string{{"127.64.1.1:4506"},
		{"127.64.2.1:4506", "127.64.2.2:4506", "127.64.2.3:4506"}} {
		c := Column{Part: partMasters, Name: plural(len(masters), "master"), Masters: masters,
			Minions: 100, Workers: 32}
		c.Loads = []Load{{Request: "_return", PerSecond: 9000 / float64(1+i), Answered: 9, P50: 2,
			P99: 10}}
		add(c)
		s := Column{Part: partSizes, Name: plural(len(masters), "master") + ", jobs of 10 KB",
			Masters: masters, Minions: 100, Workers: 32, Bytes: 10_000}
		s.Loads = []Load{{Request: "_return of 10 KB", PerSecond: 2000, Answered: 9, P99: 30}}
		s.add(figureReturned, 20, "MB/s", "")
		s.add(figureArgument, 30, "ms", "median of 3")
		s.add(figureAnswer, 40, "ms", "median of 3")
		add(s)
	}
	for i, name := range []string{"10,000 subscribers, all read",
		"10,000 subscribers, 100 of them stop reading"} {
		c := Column{Part: partStalled, Name: name, Minions: 10_000}
		c.add(figureDelay, 100+float64(i), "ms",
			"of 800,000, from the order of a job to its arrival")
		c.add(figureDelay99, 200, "ms", "")
		c.add(figureDelayX, 300, "ms", "")
		c.add(figureMissed, 0, "publications", "")
		if i > 0 {
			c.add(figureDropped, 27, "publications", "of 80")
			c.add(figureQueued, 20, "publications", "pub_hwm is 20")
		}
		add(c)
	}
	c := Column{Part: partJoin, Name: "3 masters and one more"}
	c.add("start of a fourth master to voter", 20, "s", "with 10,000 keys")
	add(c)
	return r
}

func TestPages(t *testing.T) {
	t.Parallel()
	r := sampleReport()
	r.Columns = slices.Concat(r.Columns, sampleGrowth().Columns)
	dir := t.TempDir()
	if err := r.writePage(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"benchmarks.md", "growth.md"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
	}
	plots, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
	if len(plots) != 7 {
		t.Errorf("plots %v", plots)
	}
	for _, p := range plots {
		checkPlot(t, p)
	}
}

// What a master could not do in time is said in the table in the place of its figure.
func TestUnmeasured(t *testing.T) {
	t.Parallel()
	r := sampleComparison()
	late := &unstartedError{started: 2100, of: 10_000, patience: fleetMost}
	r.Columns[0].unmeasured(10_000, late)
	r.Columns[1].add(figureSignIn(10_000), 50, "s", "")
	rows := r.rows(1)
	i := slices.IndexFunc(rows, func(x row) bool { return x.name == figureSignIn(10_000) })
	if i < 0 {
		t.Fatal("no row of the sign-in")
	}
	if theirs, ours := r.cell(rows[i], 1, r.Products[0]), r.cell(rows[i], 1,
		r.Products[1]); theirs != "did not finish in 180 s: 2,100 of 10,000 minions started" ||
		ours != "50.0 s" {
		t.Errorf("%q, %q", theirs, ours)
	}
	if len(rows[i].ratios()) != 0 {
		t.Errorf("a ratio to nothing: %v", rows[i].ratios())
	}
}
