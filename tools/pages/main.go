// Command pages writes the pages of docs/ with figures, and their plots, from the output of
// `clustermaster bench --json`, `clustermaster simulate --json` and `make soak`, and the picture of
// the dashboard.
//
// Lives here: the pages' templates, the plots, the calculations on a report (medians, ratios). Does
// not: measure anything.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"clustermaster/tools/bench"
	"clustermaster/tools/figure"
	"clustermaster/tools/monitoring"
	"clustermaster/tools/simulation"
	"clustermaster/tools/soak"
)

//go:embed *.md.tmpl
var templates embed.FS

func main() {
	dir := flag.String("docs", "docs", "`DIR` for the pages and plots")
	simulated := flag.String("simulation", "", "`FILE` of clustermaster simulate --json")
	soaked := flag.String("soak", "", "`FILE` of the soak test")
	recorded := flag.String("dashboard", "", "`FILE` of the test that records the dashboard")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Usage: pages [--docs DIR] [--simulation FILE] "+
			"[--soak FILE] [--dashboard FILE] [FILE of clustermaster bench --json]...\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*dir, *simulated, *soaked, *recorded, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "pages: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, simulated, soaked, recorded string, reports []string) error {
	for _, path := range reports {
		r := new(bench.Report)
		if err := read(path, r); err != nil {
			return err
		}
		if err := writeReport(dir, r); err != nil {
			return err
		}
	}
	if soaked != "" {
		var r soak.Report
		if err := read(soaked, &r); err != nil {
			return err
		}
		if err := write(dir, "soak.md", soakPage{r}, soakPlots(r)); err != nil {
			return err
		}
	}
	if recorded != "" {
		var r monitoring.Recording
		if err := read(recorded, &r); err != nil {
			return err
		}
		if err := writeBoard(dir, r); err != nil {
			return err
		}
	}
	if simulated == "" {
		return nil
	}
	var r simulation.Result
	if err := read(simulated, &r); err != nil {
		return err
	}
	return write(dir, "scale.md", scalePage{r}, scalePlots(r))
}

func read(path string, into any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// writeReport writes the pages of one run: a comparison, our own masters, their growth.
func writeReport(dir string, r *bench.Report) error {
	if len(r.Products) == 2 {
		return write(dir, "performance.md", comparison{report{r}}, comparison{report{r}}.plots())
	}
	self, grown := *r, *r
	self.Columns, grown.Columns = nil, nil
	for _, c := range r.Columns {
		if c.Part == "" {
			self.Columns = append(self.Columns, c)
		} else {
			grown.Columns = append(grown.Columns, c)
		}
	}
	if len(self.Columns) > 0 {
		err := write(dir, "benchmarks.md", own{report{&self}},
			map[string]*chart{"benchmarks-latency.svg": latencies(&self)})
		if err != nil {
			return err
		}
	}
	if len(grown.Columns) > 0 {
		return write(dir, "growth.md", growth{report{&grown}}, growth{report{&grown}}.plots())
	}
	return nil
}

// write puts a page and its plots into a folder. The page's template has its name.
func write(dir, name string, page any, plots map[string]*chart) error {
	t, err := template.New("").Funcs(template.FuncMap{
		"number": figure.Number, "thousands": figure.Thousands, "plural": figure.Plural,
		"percent":   func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
		"megabytes": megabytes,
		"table":     table,
	}).ParseFS(templates, "*.md.tmpl")
	var text bytes.Buffer
	if err == nil {
		err = t.ExecuteTemplate(&text, name+".tmpl", page)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(folded(text.String())), 0o644)
	}
	for file, p := range plots {
		var svg []byte
		if err == nil {
			svg, err = p.svg()
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), svg, 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// megabytes writes a number of bytes, of any type of number.
func megabytes(v any) (string, error) {
	n, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	return figure.Number(n/(1<<20)) + " MB", err
}

// table writes rows, of which the first is the head; the first column is aligned to the left, the
// others to the right.
func table(rows [][]string) string {
	var b strings.Builder
	for i, r := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|---|%s\n", strings.Repeat("---:|", len(r)-1))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// folded breaks lines of prose at 100 columns, as docs/style.md requires; it indents the
// continuation of a list item.
func folded(text string) string {
	const columns = 100
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "!") ||
			strings.HasPrefix(line, "    ") {
			b.WriteString(line)
			continue
		}
		indent := ""
		if strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "  ") {
			indent = "  "
		}
		for runes := []rune(line); ; {
			at := -1
			for i := len(indent); i <= columns && i < len(runes) && len(runes) > columns+1; i++ {
				if runes[i] == ' ' {
					at = i
				}
			}
			if at <= len(indent) {
				b.WriteString(string(runes))
				break
			}
			b.WriteString(string(runes[:at]) + "\n")
			runes = append([]rune(indent), runes[at+1:]...)
		}
	}
	return b.String()
}
