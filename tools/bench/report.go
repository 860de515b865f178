package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"clustermaster/tools/figure"
)

// Report is a whole run, as --json writes it. No field ever changes its meaning.
type Report struct {
	Made    time.Time `json:"made"`
	Machine Machine   `json:"machine"`
	Columns []Column  `json:"columns"`
	// LoadAverage is the machine's at the start of the run.
	LoadAverage LoadAverage `json:"load_average"`
	// Products are the two of --compare: Salt's own master, then ours.
	Products []string `json:"products,omitempty"`
}

// Column is one measured setting: an address, one master, three masters.
type Column struct {
	Name    string   `json:"name"`
	Masters []string `json:"masters"`
	Minions int      `json:"minions"`
	Workers int      `json:"workers"`
	Figures []Figure `json:"figures"`
	Loads   []Load   `json:"loads"`
	// Product, Size (number of masters) and Round are for --compare.
	Product string `json:"product,omitempty"`
	Size    int    `json:"size,omitempty"`
	Round   int    `json:"round,omitempty"`
	// Part (of --grow) says what grows, and Bytes the size of a job, if jobs grow.
	Part  string `json:"part,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
	// Err says why the column ends early.
	Err string `json:"error,omitempty"`
}

// Figure is one number of a column.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// MB, MB/s, s, ms, %, files, copies or publications; "" without a measurement, which the note
	// explains
	Unit string `json:"unit"`
	Note string `json:"note,omitempty"`
}

// Load is one kind of request at one pace. Latencies are in milliseconds; shares of CPU are of all
// the machine's CPUs, 1 being all of them.
type Load struct {
	Request   string  `json:"request"`
	Rate      float64 `json:"rate,omitempty"` // due in a second: open loop; 0: closed loop
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	Due       uint64  `json:"due"`
	Answered  uint64  `json:"answered"`
	Failed    uint64  `json:"failed"`
	Unsent    uint64  `json:"unsent"`
	P50       float64 `json:"p50_ms"`
	P90       float64 `json:"p90_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p999_ms"`
	Max       float64 `json:"max_ms"`
	Mean      float64 `json:"mean_ms"`
	// GeneratorCPU and MastersCPU are shares; MastersCPU is 0 if the masters' processes are
	// unknown.
	GeneratorCPU float64 `json:"generator_cpu"`
	MastersCPU   float64 `json:"masters_cpu,omitempty"`
	Err          string  `json:"error,omitempty"` // the first failure
}

func (l *Load) fill(a *account) {
	l.Seconds, l.PerSecond = a.Took.Seconds(), a.PerSecond()
	l.Due, l.Answered, l.Failed, l.Unsent = a.Due, a.Answered, a.Failed, a.Unsent
	share := func(percent float64) float64 {
		return float64(a.Latency.ValueAtPercentile(percent)) / 1e6
	}
	l.P50, l.P90, l.P99, l.P999 = share(50), share(90), share(99), share(99.9)
	l.Max, l.Mean = share(100), a.Latency.Mean()/1e6
	if a.Err != nil {
		l.Err = a.Err.Error()
	}
}

// Title names the load in a table.
func (l *Load) Title() string {
	if l.Rate > 0 {
		return fmt.Sprintf("%s at %s/s", l.Request, figure.Number(l.Rate))
	}
	return l.Request
}

func (c *Column) add(name string, value float64, unit, note string) {
	c.Figures = append(c.Figures, Figure{Name: name, Value: value, Unit: unit, Note: note})
}

// addMedian adds the median of some times, and a remark.
func (c *Column) addMedian(name string, took []time.Duration, note string) {
	slices.Sort(took)
	c.add(name, took[len(took)/2].Seconds()*1000, "ms", fmt.Sprintf("median of %d%s", len(took), note))
}

// addMemory adds the largest of the masters' values in bytes, with a note that lists all of them.
func (c *Column) addMemory(name string, each []int64, note string) {
	if len(each) > 1 {
		list := "the largest of"
		for _, n := range each {
			list += " " + figure.Number(mb(n))
		}
		note = strings.TrimSuffix(list+"; "+note, "; ")
	}
	if len(each) > 0 {
		c.add(name, mb(slices.Max(each)), "MB", note)
	}
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }

// unmeasured notes why figures of n minions are missing.
func (c *Column) unmeasured(n int, why error) {
	text, _, _ := strings.Cut(why.Error(), ". ")
	for _, name := range []string{FigureSignIn(n), FigureFleet(n), FigurePing(n)} {
		if _, ok := c.Figure(name); !ok {
			c.add(name, 0, "", text)
		}
	}
}

// table prints rows in columns, aligned to the right.
func table(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t")+"\t")
	}
	t.Flush()
}

var loadHead = []string{"request", "per second", "p50 ms", "p99 ms", "max ms", "failed", "unsent",
	"generator CPU", "masters CPU"}

func (l *Load) row() []string {
	row := []string{l.Title(), "none", "-", "-", "-", fmt.Sprint(l.Failed), fmt.Sprint(l.Unsent),
		fmt.Sprintf("%.0f %%", 100*l.GeneratorCPU), "-"}
	if l.Answered > 0 {
		for i, v := range []float64{l.PerSecond, l.P50, l.P99, l.Max} {
			row[1+i] = figure.Number(v)
		}
	}
	if l.MastersCPU > 0 {
		row[8] = fmt.Sprintf("%.0f %%", 100*l.MastersCPU)
	}
	return row
}

// printColumn prints all of one column.
func printColumn(w io.Writer, c *Column) {
	fmt.Fprintf(w, "\n%s: %s", c.Name, strings.Join(c.Masters, " "))
	if c.Workers > 0 {
		fmt.Fprintf(w, "; %d minions on %d connections", c.Minions, c.Workers)
	}
	fmt.Fprint(w, "\n\n")
	if len(c.Loads) > 0 {
		rows := [][]string{loadHead}
		for i := range c.Loads {
			rows = append(rows, c.Loads[i].row())
		}
		table(w, rows)
	}
	for i := range c.Loads {
		if l := &c.Loads[i]; l.Err != "" {
			fmt.Fprintf(w, "%s: first failure: %s\n", l.Title(), l.Err)
		}
	}
	if len(c.Loads) > 0 && len(c.Figures) > 0 {
		fmt.Fprintln(w)
	}
	for _, f := range c.Figures {
		fmt.Fprintf(w, "%s: %s\n", f.Name, f)
	}
}

// String is the value with its unit and note.
func (f Figure) String() string {
	if f.Unit == "" {
		return f.Note
	}
	s := figure.Number(f.Value) + " " + f.Unit
	if f.Note != "" {
		s += " (" + f.Note + ")"
	}
	return s
}

// Summary shows the columns side by side: throughput with p50/p99 of the closed loops, the open
// ones, and the figures, each in the order of their first appearance.
func (r *Report) Summary() [][]string {
	rows := [][]string{{"figure"}}
	at := make(map[string]int) // the row of each name
	put := func(column int, name, cell string) {
		i, ok := at[name]
		if !ok {
			i = len(rows)
			at[name] = i
			rows = append(rows, append([]string{name},
				slices.Repeat([]string{"-"}, len(r.Columns))...))
		}
		rows[i][column+1] = cell
	}
	for i, c := range r.Columns {
		rows[0] = append(rows[0], c.Name)
		for j := range c.Loads {
			put(i, c.Loads[j].summaryTitle(), c.Loads[j].cell())
		}
	}
	for i, c := range r.Columns {
		for _, f := range c.Figures {
			put(i, f.Name, c.Cell(f.Name))
		}
	}
	return rows
}

// summaryTitle is the same in all columns, though the rates of open loops differ.
func (l *Load) summaryTitle() string {
	if l.Rate > 0 {
		return l.Request + ", p50/p99 ms at a fixed rate"
	}
	return l.Request + "/s, p50/p99 ms"
}

func (l *Load) cell() string {
	if l.Answered == 0 {
		return "none"
	}
	latency := figure.Number(l.P50) + "/" + figure.Number(l.P99)
	if l.Rate > 0 {
		return fmt.Sprintf("%s at %s/s", latency, figure.Number(l.Rate))
	}
	return fmt.Sprintf("%s, %s", figure.Number(l.PerSecond), latency)
}

// Figure finds one by its name.
func (c *Column) Figure(name string) (Figure, bool) {
	i := slices.IndexFunc(c.Figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return Figure{}, false
	}
	return c.Figures[i], true
}

// Cell is a figure for a table.
func (c *Column) Cell(name string) string {
	f, ok := c.Figure(name)
	if !ok {
		return "-"
	}
	if f.Unit != "" {
		f.Note = ""
	}
	return f.String()
}

// write puts the report into a file as JSON.
func (r *Report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
