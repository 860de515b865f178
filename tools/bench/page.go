package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"clustermaster/tools/chart"
)

// page is a text for docs, and its plots.
type page struct {
	strings.Builder
	files map[string][]byte // by file name
}

func (p *page) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// plot puts a plot below the text.
func (p *page) plot(name string, svg []byte) {
	if p.files == nil {
		p.files = make(map[string][]byte)
	}
	p.files[name] = svg
	p.say("\n![%s](%s)", strings.TrimSuffix(name, ".svg"), name)
}

// origin says where and how the figures came about.
func (p *page) origin(r *Report, command string) {
	p.say("Written by a program; to repeat it:\n\n    %s\n", command)
	p.say("- Machine: %s.", r.Machine)
	p.say("- Made: %s. Load average of the machine when it began (1, 5, 15 minutes): %s.",
		r.Made.Format("2006-01-02 15:04 MST"), r.LoadAverage)
	if r.LoadAverage.busy(r.Machine.CPUs) {
		p.say("  Other work was on the machine: a quiet one gives more.")
	}
}

// table writes rows, the first of which is the head; the first column is to the left, the others to
// the right.
func (p *page) table(rows [][]string) {
	for i, r := range rows {
		p.say("| %s |", strings.Join(r, " | "))
		if i == 0 {
			p.say("|---|%s", strings.Repeat("---:|", len(r)-1))
		}
	}
}

// summary writes all columns side by side.
func (p *page) summary(r *Report) {
	rows := r.summary()
	for _, row := range rows {
		if end := strings.IndexAny(row[0], "/,"); strings.HasPrefix(row[0], "_") && end > 0 {
			row[0] = "`" + row[0][:end] + "`" + row[0][end:]
		}
	}
	p.table(rows)
}

// write puts the page and its plots into a folder.
func (p *page) write(dir, name string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(p.String()), 0o644)
	}
	for file, b := range p.files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writePage writes the pages of what was measured.
func (r *Report) writePage(dir string) error {
	if len(r.Products) == 2 {
		return r.writePerformance(dir, compareCommand)
	}
	var self, grown Report
	self, grown = *r, *r
	self.Columns = slices.DeleteFunc(slices.Clone(r.Columns),
		func(c Column) bool { return c.Part != "" })
	grown.Columns = slices.DeleteFunc(slices.Clone(r.Columns),
		func(c Column) bool { return c.Part == "" })
	var err error
	if len(self.Columns) > 0 {
		err = self.benchmarks(benchCommand).write(dir, "benchmarks.md")
	}
	if len(grown.Columns) > 0 {
		err = errors.Join(err, grown.growth(benchCommand).write(dir, "growth.md"))
	}
	return err
}

// benchmarks is the page of --self.
func (r *Report) benchmarks(command string) *page {
	p := new(page)
	p.say("# Figures of our own masters\n")
	p.origin(r, command)
	p.say(`- Next to Salt's own master: [performance.md](performance.md). With more minions, masters and data: [growth.md](growth.md).

What the requests mean:

- ` + "`_auth`" + `: a sign-in of an accepted minion that has not seen the master; one RSA-2048 private operation of the master.
- ` + "`_return`" + `: the return of ` + "`test.ping`" + ` with a new jid that nobody published: a job record and a return. It is answered when
  both are synced to disk on a write quorum: on the one master, on two of three.
- ` + "`_return+job`" + `: the same, but all minions return for the same jid, as after a publication.
- ` + "`_minion_event`" + `: one event of 100 bytes. ` + "`_pillar`" + `: a static SLS for everybody, with 4 KB of grains in the request.
  ` + "`_pillar+grains`" + `: the same, and a grain is another each time, which is synced first.
- ` + "`_pillar+40sls`" + `: 40 SLS files with Jinja that read grains; each minion asks again and again. ` + "`_pillar+40sls+grains`" + `: with a grain that
  is another each time, but that no file reads.
- ` + "`_mine`" + `: 100 bytes of one function, synced. ` + "`_mine_get`" + `: one function of ten minions.
- ` + "`_file_list`" + `: the list of 203 files. ` + "`_file_hash`, `_serve_file`" + `: a file of 4 KiB.
  ` + "`_serve_file+1mib`" + `: a MiB of a larger one in each answer, so the figure is MiB/s too.

PSS is the memory of a process with shared pages counted once over all who share them. A figure
counts only answers that were checked to be the right ones. In the open loop a latency begins when
the request was due, so a stall of the master is in the latencies of all requests that it kept
waiting.
`)
	first := r.Columns[0]
	p.say("%d minions on %d connections.\n", first.Minions, first.Workers)
	p.summary(r)
	var failures []string
	for _, c := range r.Columns {
		for _, l := range c.Loads {
			if l.Failed > 0 || l.Err != "" {
				failures = append(failures, fmt.Sprintf("- %s, `%s`: %d failed; the first: %s",
					c.Name, l.title(), l.Failed, l.Err))
			}
		}
	}
	if len(failures) > 0 {
		p.say("\nNot answered rightly, and so not counted:\n\n%s", strings.Join(failures, "\n"))
	}
	notes := r.notes()
	if len(notes) > 0 {
		p.say("\n%s", strings.Join(notes, "\n"))
	}
	p.plot("benchmarks-latency.svg", r.latencies().SVG())
	return p
}

var medianOnly = regexp.MustCompile(`^median of \d+$`)

// notes are what figures have to say beside their value.
func (r *Report) notes() (out []string) {
	for _, c := range r.Columns {
		for _, f := range c.Figures {
			if f.Note != "" && f.Unit != "" && !medianOnly.MatchString(f.Note) &&
				!strings.HasPrefix(f.Note, "the largest of") {
				out = append(out, fmt.Sprintf("- %s, %s: %s", c.Name, f.Name, f.Note))
			}
		}
	}
	return out
}

// figure finds one by its name.
func (c *Column) figure(name string) (Figure, bool) {
	i := slices.IndexFunc(c.Figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return Figure{}, false
	}
	return c.Figures[i], true
}

// cellOf is a figure for a table.
func (c *Column) cellOf(name string) string {
	f, ok := c.figure(name)
	if !ok {
		return "-"
	}
	if f.Unit == "" {
		return f.Note
	}
	return chart.Number(f.Value) + " " + f.Unit
}
