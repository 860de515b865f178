package bench

import (
	"fmt"
	"slices"
	"strings"

	"clustermaster/tools/chart"
)

// writePerformance writes a comparison as performance.md with its plots into a folder.
func (r *Report) writePerformance(dir, command string) error {
	p := new(page)
	p.WriteString(r.performance(command))
	p.files = make(map[string][]byte)
	for _, size := range r.sizes() {
		for name, c := range r.charts(size) {
			p.files[name] = c.SVG()
		}
	}
	return p.write(dir, "performance.md")
}

func (r *Report) sizes() []int {
	var out []int
	for _, c := range r.Columns {
		if !slices.Contains(out, c.Size) {
			out = append(out, c.Size)
		}
	}
	return out
}

// charts are the plots of one size by file name.
func (r *Report) charts(size int) map[string]chart.Bars {
	throughput := chart.Bars{Title: "Requests per second, " + plural(size, "master"),
		Unit: "requests per second (longer is better)", Series: r.Products}
	memory := chart.Bars{Title: "Memory of a master (PSS), " + plural(size, "master"),
		Unit: "MB (shorter is better)", Series: r.Products}
	for _, x := range r.rows(size) {
		g := chart.Group{Name: x.name, Values: []float64{median(x.theirs), median(x.ours)}}
		switch x.unit {
		case "/s":
			throughput.Groups = append(throughput.Groups, g)
		case "MB":
			g.Name = strings.TrimPrefix(strings.TrimPrefix(g.Name,
				"memory (PSS) of a master"), ", ")
			memory.Groups = append(memory.Groups, g)
		}
	}
	return map[string]chart.Bars{
		fmt.Sprintf("performance-throughput-%d.svg", size): throughput,
		fmt.Sprintf("performance-memory-%d.svg", size):     memory,
	}
}

// performance is the text.
func (r *Report) performance(command string) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	theirs, ours := r.Products[0], r.Products[1]
	say("# %s and %s, measured side by side\n", ours, theirs)
	say("Written by a program; to repeat it:\n\n    %s\n", command)
	say("- Machine: %s.", r.Machine)
	say("- Made: %s. Load average of the machine when it began (1, 5, 15 minutes): %s.",
		r.Made.Format("2006-01-02 15:04 MST"), r.LoadAverage)
	if r.LoadAverage.busy(r.Machine.CPUs) {
		say("  Other work was on the machine: the absolute figures are too low for both, the ratios are what counts.")
	}
	say("- %s: its default five workers, the same `file_roots` and `pillar_roots` (one small SLS) as ours, `auto_accept`, otherwise defaults. It syncs no return to disk and keeps one copy;", theirs)
	say("  ours syncs each return on a write quorum (one of one, two of three) before it answers.")
	say("- Both in turns, %s; a figure is the median of the rounds, a ratio the median of the rounds' ratios with the least and the greatest.", plural(r.rounds(), "round"))
	say("- Clusters of three share this machine and stand behind HAProxy. The generator runs on the same machine: its share of the processors is in the last table.")
	say("- Simulated minions sign in, fetch their pillar, subscribe and fire their start events, at most %d at a time; of more than %s the further ones fetch no pillar,", fleetStarting, plural(mostPillars, "minion"))
	say("  for Salt's master would need a quarter of an hour for those. The minions' own RSA operations are on the same processors, and part of that time.")
	if r.RSA > 0 {
		say("- All processors together make %s RSA-2048 private operations per second with Go's crypto; at two per sign-in that is %s sign-ins per second.", chart.Number(r.RSA), chart.Number(r.RSA/2))
	}
	for _, size := range r.sizes() {
		say("\n## %s\n", strings.ToUpper(plural(size, "master")[:1])+plural(size, "master")[1:])
		say("| what | %s | %s | ratio, the better the greater |\n|---|---:|---:|---:|",
			theirs, ours)
		for _, x := range r.rows(size) {
			ratios := x.ratios()
			ratio := "-"
			if len(ratios) > 0 {
				ratio = "**" + chart.Number(median(ratios)) + "**"
			}
			if len(ratios) > 1 {
				ratio += fmt.Sprintf(" (%s to %s)", chart.Number(ratios[0]),
					chart.Number(ratios[len(ratios)-1]))
			}
			say("| %s | %s | %s | %s |", title(x), r.cell(x, size, theirs),
				r.cell(x, size, ours), ratio)
		}
		say("\n![requests per second](performance-throughput-%d.svg)\n\n![memory](performance-memory-%d.svg)", size, size)
	}
	say("\n## Latency and processors\n")
	say("Of the closed loop, %d minions on %d connections: median of the rounds.\n",
		r.Columns[0].Minions, r.Columns[0].Workers)
	say("| masters | request | product | p50 ms | p99 ms | masters' CPU | generator's CPU | failed |\n|---:|---|---|---:|---:|---:|---:|---:|")
	for _, size := range r.sizes() {
		for _, x := range r.rows(size) {
			if x.unit != "/s" {
				continue
			}
			for _, product := range r.Products {
				m := r.loadOf(size, product, x.name)
				if m.P50 == 0 {
					say("| %d | `%s` | %s | - | - | - | - | - |", size, x.name, product)
					continue
				}
				say("| %d | `%s` | %s | %s | %s | %.0f %% | %.0f %% | %d |", size, x.name, product,
					chart.Number(m.P50), chart.Number(m.P99), 100*m.MastersCPU, 100*m.GeneratorCPU,
					m.Failed)
			}
		}
	}
	say("\nCPU is the share of all processors of the machine. A failed request is one without the right answer within %s; none of these is in the throughput.", requestPatience)
	for _, c := range r.Columns {
		if c.Err != "" {
			say("\n%s was not measured to the end: %s.", c.Name,
				strings.TrimSuffix(withoutPath(c.Err), "."))
		}
		for _, l := range c.Loads {
			if l.Err != "" {
				say("\n%s, `%s`: the first failure was: %s.", c.Name, l.Request,
					strings.TrimSuffix(l.Err, "."))
			}
		}
		for _, f := range c.Figures {
			if strings.Contains(f.Note, "only") || strings.Contains(f.Note, "of them keep") {
				say("\n%s, %s: %s.", c.Name, f.Name, f.Note)
			}
		}
	}
	return b.String()
}

func title(x row) string {
	if x.unit == "/s" {
		return "`" + x.name + "` per second"
	}
	return x.name
}

// cell is a product's median, or why there is none.
func (r *Report) cell(x row, size int, product string) string {
	v := x.ours
	if product == r.Products[0] {
		v = x.theirs
	}
	if median(v) > 0 {
		return strings.TrimSuffix(chart.Number(median(v))+" "+x.unit, " /s")
	}
	for i := range r.Columns {
		if c := &r.Columns[i]; c.Size == size && c.Product == product {
			if f, ok := c.figure(x.name); ok && f.Note != "" {
				return f.Note
			}
		}
	}
	return "-"
}

func (r *Report) rounds() int {
	n := 0
	for _, c := range r.Columns {
		n = max(n, c.Round)
	}
	return n
}

// loadOf is the median of each figure over the rounds, and the sum of the failures.
func (r *Report) loadOf(size int, product, request string) Load {
	var p50, p99, masters, generator []float64
	var out Load
	for _, c := range r.Columns {
		for _, l := range c.Loads {
			if c.Size == size && c.Product == product && l.Request == request && l.Rate == 0 {
				p50, p99 = append(p50, l.P50), append(p99, l.P99)
				masters, generator = append(masters, l.MastersCPU), append(generator,
					l.GeneratorCPU)
				out.Failed += l.Failed
			}
		}
	}
	out.P50, out.P99, out.MastersCPU, out.GeneratorCPU = median(p50), median(p99), median(masters),
		median(generator)
	return out
}

// withoutPath leaves out where a master's output was: the folder is gone.
func withoutPath(s string) string {
	text, _, _ := strings.Cut(s, "; its output is")
	return text
}
