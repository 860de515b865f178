package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"

	"clustermaster/tools/bench"
	"clustermaster/tools/figure"
)

// report is the common part of all pages of a report.
type report struct{ *bench.Report }

// Busy reports whether other programs used a good part of the processors.
func (p report) Busy() bool { return p.LoadAverage[0] > 0.3*float64(p.Machine.CPUs) }

// Starting is how many simulated minions start at a time.
func (report) Starting() int { return bench.FleetStarting }

// own is the page of --self, benchmarks.md.
type own struct{ report }

// Summary is a table of all columns side by side, requests as code.
func (p own) Summary() [][]string { return summary(p.report.Report) }

func summary(r *bench.Report) [][]string {
	rows := r.Summary()
	for _, row := range rows {
		if end := strings.IndexAny(row[0], "/,"); strings.HasPrefix(row[0], "_") && end > 0 {
			row[0] = "`" + row[0][:end] + "`" + row[0][end:]
		}
	}
	return rows
}

// Notes are the notes of a report's figures.
func (p own) Notes() []string { return notes(p.Columns) }

var medianOnly = regexp.MustCompile(`^(median of \d+$|the largest of)`)

func notes(columns []bench.Column) (out []string) {
	for _, c := range columns {
		for _, f := range c.Figures {
			if f.Note != "" && f.Unit != "" && !medianOnly.MatchString(f.Note) {
				out = append(out, fmt.Sprintf("- %s, %s: %s", c.Name, f.Name, f.Note))
			}
		}
	}
	return out
}

// Failures are requests without a correct answer.
func (p own) Failures() (out []string) {
	for _, c := range p.Columns {
		for _, l := range c.Loads {
			if l.Failed > 0 || l.Err != "" {
				out = append(out, fmt.Sprintf("- %s, `%s`: %d failed; the first: %s", c.Name,
					l.Title(), l.Failed, l.Err))
			}
		}
	}
	return out
}

// latencies plots the slowest answers of each load.
func latencies(r *bench.Report) *chart {
	p := &chart{title: "Latency by share of answers", y: "ms", logY: true,
		x: "share of answers that were at least this fast",
		ticks: []plot.Tick{{Value: 0, Label: "50 %"}, {Value: 1, Label: "90 %"},
			{Value: 2, Label: "99 %"}, {Value: 3, Label: "99.9 %"}, {Value: 4, Label: "max"}}}
	for _, c := range r.Columns {
		for _, l := range c.Loads {
			if l.Answered > 0 {
				of := p.line(c.Name + ", " + l.Title())
				for i, v := range []float64{l.P50, l.P90, l.P99, l.P999, l.Max} {
					of.add(float64(i), v)
				}
			}
		}
	}
	return p
}

// growth is the page of --grow, growth.md.
type growth struct{ report }

// section has the measurements of a part of --grow.
type section struct {
	Columns []bench.Column
	Rows    [][]string
	Notes   []string
}

// Part returns one part; nil if it was not measured.
func (p growth) Part(name string) *section {
	s := &section{}
	for _, c := range p.Columns {
		if c.Part == name {
			s.Columns = append(s.Columns, c)
		}
	}
	if len(s.Columns) == 0 {
		return nil
	}
	s.Notes = notes(s.Columns)
	switch name {
	case bench.PartMinions:
		s.Rows = minionRows(s.Columns)
	case bench.PartMasters:
		s.Rows, s.Notes = summary(&bench.Report{Columns: s.Columns}), nil
	case bench.PartSizes:
		s.Rows = sizeRows(s.Columns)
	}
	return s
}

func minionRows(columns []bench.Column) [][]string {
	rows := [][]string{{"minions", "sign-in and start", "memory (PSS)", "per minion",
		"`test.ping`", "`test.ping -G`"}}
	none, _ := columns[0].Figure(bench.FigureFleet(0))
	for _, c := range columns {
		n := c.Minions
		each := "-"
		if m, ok := c.Figure(bench.FigureFleet(n)); ok && n > 0 {
			each = figure.Number((m.Value-none.Value)*1024/float64(n)) + " KB"
		}
		rows = append(rows, []string{figure.Thousands(n), c.Cell(bench.FigureSignIn(n)),
			c.Cell(bench.FigureFleet(n)), each, c.Cell(bench.FigurePing(n)),
			c.Cell(bench.FigureGrainPing(n))})
	}
	return rows
}

func sizeRows(columns []bench.Column) [][]string {
	rows := [][]string{{"size", "returns per second", "p99 of a return", "returns accepted",
		"argument of that size", "returns of that size"}}
	for _, c := range columns {
		perSecond, p99 := "-", "-"
		if len(c.Loads) > 0 && c.Loads[0].Answered > 0 {
			perSecond = figure.Number(c.Loads[0].PerSecond)
			p99 = figure.Number(c.Loads[0].P99) + " ms"
		}
		rows = append(rows, []string{c.Name, perSecond, p99, c.Cell(bench.FigureReturned),
			c.Cell(bench.FigureArgument), c.Cell(bench.FigureAnswer)})
	}
	return rows
}

// plots returns those of the measured parts, by file name.
func (p growth) plots() map[string]*chart {
	memory := &chart{title: "Memory of a master by minions", x: "minions", y: "MB", logX: true,
		logY: true}
	times := &chart{title: "Time by minions", x: "minions", y: "ms", logX: true, logY: true}
	rate := &chart{title: "Requests per second by masters on one machine", x: "masters",
		y: "requests per second", logY: true}
	taken := &chart{title: "Returns by size", x: "bytes of a return", y: "MB/s", logX: true,
		logY: true}
	jobs := &chart{title: "Jobs by size, publish to last return", logX: true, logY: true,
		x: "bytes of the argument, or of each return", y: "ms"}
	for _, c := range p.Columns {
		point := func(in *chart, line, name string, x int, scale float64) {
			if f, ok := c.Figure(name); ok && f.Value > 0 && x > 0 {
				in.line(line).add(float64(x), f.Value*scale)
			}
		}
		n, masters := c.Minions, figure.Plural(len(c.Masters), "master")
		switch c.Part {
		case bench.PartMinions:
			point(memory, "PSS", bench.FigureFleet(n), n, 1)
			point(times, "test.ping", bench.FigurePing(n), n, 1)
			point(times, "test.ping -G", bench.FigureGrainPing(n), n, 1)
			point(times, "sign-in and start", bench.FigureSignIn(n), n, 1000)
		case bench.PartMasters:
			rate.ticks = append(rate.ticks, plot.Tick{Value: float64(len(c.Masters)),
				Label: fmt.Sprint(len(c.Masters))})
			for _, l := range c.Loads {
				rate.line(l.Request).add(float64(len(c.Masters)), l.PerSecond)
			}
		case bench.PartSizes:
			point(taken, masters, bench.FigureReturned, c.Bytes, 1)
			point(jobs, masters+", argument", bench.FigureArgument, c.Bytes, 1)
			point(jobs, masters+", returns", bench.FigureAnswer, c.Bytes, 1)
		}
	}
	out := map[string]*chart{"growth-minions-memory.svg": memory, "growth-minions-time.svg": times,
		"growth-masters.svg": rate, "growth-sizes-rate.svg": taken, "growth-sizes-time.svg": jobs}
	for name, c := range out {
		if len(c.lines) == 0 {
			delete(out, name)
		}
	}
	return out
}

// comparison is the page of --compare, performance.md.
type comparison struct{ report }

// Theirs and Ours are the two products.
func (p comparison) Theirs() string { return p.Products[0] }

// Ours is the second product.
func (p comparison) Ours() string { return p.Products[1] }

// MostPillars is how many simulated minions fetch their pillar at most.
func (comparison) MostPillars() int { return bench.MostPillars }

// Patience is how long a request may take.
func (comparison) Patience() time.Duration { return bench.RequestPatience }

// Rounds is the number of measurements of each setting.
func (p comparison) Rounds() (n int) {
	for _, c := range p.Columns {
		n = max(n, c.Round)
	}
	return n
}

// Sizes are the numbers of masters.
func (p comparison) Sizes() (out []int) {
	for _, c := range p.Columns {
		if !slices.Contains(out, c.Size) {
			out = append(out, c.Size)
		}
	}
	return out
}

// row is one line of the comparison: a figure of both products in every round.
type row struct {
	Name, Unit   string
	theirs, ours []float64 // by round; 0: not measured
}

// ratios returns the ratio of each round, of which greater is better: how many times as good our
// value is.
func (x row) ratios() (out []float64) {
	for i := range min(len(x.theirs), len(x.ours)) {
		if x.theirs[i] <= 0 || x.ours[i] <= 0 {
			continue
		}
		ratio := x.theirs[i] / x.ours[i]
		if x.Unit == "/s" { // more is better
			ratio = 1 / ratio
		}
		out = append(out, ratio)
	}
	slices.Sort(out)
	return out
}

// Ratio is the median of the ratios, with the least and the greatest.
func (x row) Ratio() string {
	all := x.ratios()
	switch len(all) {
	case 0:
		return "-"
	case 1:
		return "**" + figure.Number(all[0]) + "**"
	}
	return fmt.Sprintf("**%s** (%s to %s)", figure.Number(median(all)), figure.Number(all[0]),
		figure.Number(all[len(all)-1]))
}

// Title names the row in a table.
func (x row) Title() string {
	if x.Unit == "/s" {
		return "`" + x.Name + "` per second"
	}
	return x.Name
}

// Rows puts the columns of one size together.
func (p comparison) Rows(size int) []*row {
	var out []*row
	for i := range p.Columns {
		c := &p.Columns[i]
		put := func(name, unit string, v float64) {
			at := slices.IndexFunc(out, func(x *row) bool { return x.Name == name })
			if at < 0 {
				at = len(out)
				out = append(out, &row{Name: name})
			}
			if unit != "" { // else it was not measured
				out[at].Unit = unit
			}
			of := &out[at].ours
			if c.Product == p.Theirs() {
				of = &out[at].theirs
			}
			*of = append(*of, make([]float64, max(c.Round-len(*of), 0))...)
			(*of)[c.Round-1] = v
		}
		if c.Size != size {
			continue
		}
		for _, l := range c.Loads {
			if l.Rate == 0 {
				put(l.Request, "/s", l.PerSecond)
			}
		}
		for _, f := range c.Figures {
			put(f.Name, f.Unit, f.Value)
		}
	}
	return out
}

// Cell is a product's median, or the reason why it is missing.
func (p comparison) Cell(x *row, size int, product string) string {
	v := x.ours
	if product == p.Theirs() {
		v = x.theirs
	}
	if median(v) > 0 {
		return strings.TrimSuffix(figure.Number(median(v))+" "+x.Unit, " /s")
	}
	for _, c := range p.Columns {
		if c.Size == size && c.Product == product {
			if f, ok := c.Figure(x.Name); ok && f.Note != "" {
				return f.Note
			}
		}
	}
	return "-"
}

// LoadOf is the median of each figure of a request over the rounds, and the sum of the failures.
func (p comparison) LoadOf(size int, product, request string) (out bench.Load) {
	var p50, p99, masters, generator []float64
	for _, c := range p.Columns {
		for _, l := range c.Loads {
			if c.Size == size && c.Product == product && l.Request == request && l.Rate == 0 {
				p50, p99 = append(p50, l.P50), append(p99, l.P99)
				masters = append(masters, 100*l.MastersCPU)
				generator = append(generator, 100*l.GeneratorCPU)
				out.Failed += l.Failed
			}
		}
	}
	out.P50, out.P99 = median(p50), median(p99)
	out.MastersCPU, out.GeneratorCPU = median(masters), median(generator)
	return out
}

// Remarks lists failures and the notes needed to understand figures.
func (p comparison) Remarks() (out []string) {
	for _, c := range p.Columns {
		if c.Err != "" { // the folder with a master's output is gone
			text, _, _ := strings.Cut(c.Err, "; its output is")
			out = append(out, fmt.Sprintf("%s was not measured to the end: %s.", c.Name,
				strings.TrimSuffix(text, ".")))
		}
		for _, l := range c.Loads {
			if l.Err != "" {
				out = append(out, fmt.Sprintf("%s, `%s`: the first failure was: %s.", c.Name,
					l.Request, strings.TrimSuffix(l.Err, ".")))
			}
		}
		for _, f := range c.Figures {
			if strings.Contains(f.Note, "only") || strings.Contains(f.Note, "of them keep") {
				out = append(out, fmt.Sprintf("%s, %s: %s.", c.Name, f.Name, f.Note))
			}
		}
	}
	return out
}

func (p comparison) plots() map[string]*chart {
	out := make(map[string]*chart)
	for _, size := range p.Sizes() {
		masters := figure.Plural(size, "master")
		throughput := &chart{title: "Requests per second, " + masters, logX: true,
			x: "requests per second (more is better)"}
		memory := &chart{title: "Memory of a master (PSS), " + masters, logX: true,
			x: "MB (less is better)"}
		for _, x := range p.Rows(size) {
			in, name := throughput, x.Name
			switch x.Unit {
			case "MB":
				in = memory
				name = strings.TrimPrefix(strings.TrimPrefix(name, "memory (PSS) of a master"), ", ")
			case "/s":
			default:
				continue
			}
			in.line(p.Theirs()).add(median(x.theirs), float64(len(in.rows)))
			in.line(p.Ours()).add(median(x.ours), float64(len(in.rows)))
			in.rows = append(in.rows, strings.TrimSpace(name))
		}
		out[fmt.Sprintf("performance-throughput-%d.svg", size)] = throughput
		out[fmt.Sprintf("performance-memory-%d.svg", size)] = memory
	}
	return out
}

// median returns the median of the values that are not 0; 0 if there are none.
func median(v []float64) float64 {
	s := slices.DeleteFunc(slices.Sorted(slices.Values(v)), func(x float64) bool { return x == 0 })
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
