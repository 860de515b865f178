package main

import (
	"maps"
	"slices"

	"clustermaster/tools/soak"
)

// soakPage is the page of a soak test, soak.md.
type soakPage struct{ soak.Report }

// Kinds lists the faults by name.
func (p soakPage) Kinds() []string { return slices.Sorted(maps.Keys(p.Faults)) }

func soakPlots(r soak.Report) map[string]*chart {
	memory := &chart{title: "Resident memory of each master after each round", x: "minutes", y: "MB"}
	files := &chart{title: "Open files", x: "minutes"}
	goroutines := &chart{title: "Goroutines", x: "minutes"}
	for _, round := range r.Rounds {
		for _, m := range r.Masters() {
			use := round.Masters[m]
			memory.line(m).add(round.Minute, use.Memory/(1<<20))
			files.line(m).add(round.Minute, use.Files)
			goroutines.line(m).add(round.Minute, use.Goroutines)
		}
	}
	return map[string]*chart{"soak-memory.svg": memory, "soak-files.svg": files,
		"soak-goroutines.svg": goroutines}
}
