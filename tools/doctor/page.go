package doctor

import (
	"fmt"
	"io"
	"slices"

	"clustermaster/serve/checkup"
)

// worst are the levels in the order of the page.
var worst = []checkup.Level{checkup.Error, checkup.Warning, checkup.Notice, checkup.Good}

// all lists the findings of all places.
func (p page) all() (list []checkup.Finding) {
	for _, m := range p.Masters {
		list = append(list, m.Findings...)
	}
	return append(list, p.Cluster...)
}

func (p page) count(l checkup.Level) (n int) {
	for _, f := range p.all() {
		if f.Level == l {
			n++
		}
	}
	return n
}

func (p page) code() int {
	switch {
	case p.count(checkup.Error) > 0:
		return exitErrors
	case p.count(checkup.Warning) > 0:
		return exitWarnings
	}
	return exitGood
}

// print writes findings by place, the worst first.
func (p page) print(w io.Writer, quiet bool) {
	for _, m := range append(slices.Clone(p.Masters),
		place{Master: "cluster", Findings: p.Cluster}) {
		shown := false
		for _, level := range worst {
			for _, f := range m.Findings {
				if f.Level != level || quiet && level == checkup.Good {
					continue
				}
				if !shown {
					fmt.Fprintf(w, "%s:\n", m.Master)
					shown = true
				}
				fmt.Fprintf(w, "  %-8s %-14s %s\n", level, f.Check, f.Text)
				if f.Remedy != "" {
					fmt.Fprintf(w, "  %-8s %-14s   do: %s\n", "", "", f.Remedy)
				}
			}
		}
	}
	fmt.Fprintf(w, "%d errors, %d warnings, %d notices\n", p.count(checkup.Error),
		p.count(checkup.Warning), p.count(checkup.Notice))
}
