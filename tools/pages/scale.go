package main

import (
	"time"

	"clustermaster/hashring"
	"clustermaster/tools/simulation"
)

// scalePage is the page of a simulation, scale.md.
type scalePage struct{ simulation.Result }

// Last and Big are the largest cluster and the largest number of minions.
func (p scalePage) Last() simulation.Placement { return p.Placements[len(p.Placements)-1] }

// Big is the agreement on the largest number of minions.
func (p scalePage) Big() simulation.Agreement { return p.Agreements[len(p.Agreements)-1] }

// Milliseconds rounds a time.
func (scalePage) Milliseconds(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// Copies is the maximum number of copies of a partition.
func (scalePage) Copies() int { return hashring.MaxReplicas }

// MinionKiB is the size of a minion's stored data.
func (scalePage) MinionKiB() int { return simulation.MinionBytes >> 10 }

func scalePlots(r simulation.Result) map[string]*chart {
	balance := &chart{title: "Partitions of a master over the mean", x: "masters", logX: true}
	transfer := &chart{title: "Copies fetched when one master joins", x: "masters before",
		y: "% of all copies", logX: true}
	state := &chart{title: "The replicated state", x: "minions", y: "MB", logX: true, logY: true}
	for _, p := range r.Placements {
		n := float64(p.Masters)
		balance.line("fullest").add(n, float64(p.MostPartitions)/p.MeanPartitions)
		balance.line("emptiest").add(n, float64(p.LeastPartitions)/p.MeanPartitions)
		transfer.line("fetched").add(n, 100*p.Join)
		transfer.line("fair share").add(n, 100*p.IdealJoin)
	}
	for _, a := range r.Agreements {
		state.line("in memory").add(float64(a.Minions), float64(a.Heap)/(1<<20))
		state.line("snapshot").add(float64(a.Minions), float64(a.SnapshotBytes)/(1<<20))
	}
	return map[string]*chart{"scale-balance.svg": balance, "scale-transfer.svg": transfer,
		"scale-state.svg": state}
}
