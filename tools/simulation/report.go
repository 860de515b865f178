package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"clustermaster/hashring"
	"clustermaster/tools/chart"
)

// What is stored for one minion beside its key: grains, pillar and mine of a usual size, in bytes.
const minionBytes = 12 << 10

// transferRate is the default of cluster_transfer_rate, in bytes per second.
const transferRate = 64 << 20

// Result is a whole simulation.
type Result struct {
	Placements []Placement
	Agreements []Agreement
}

// Run simulates every number of masters with the largest number of minions, and the state with
// every number of minions.
func Run(ctx context.Context, masters, minions []int, progress func(string)) (Result, error) {
	var r Result
	most := 0
	for _, n := range minions {
		most = max(most, n)
	}
	progress(fmt.Sprintf("weigh %s minions", chart.Number(float64(most))))
	weight := Weigh(most, hashring.DefaultPartitions)
	for _, n := range masters {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		p, err := Place(n, weight)
		if err != nil {
			return r, fmt.Errorf("place %d masters: %w", n, err)
		}
		r.Placements = append(r.Placements, p)
	}
	for _, n := range minions {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		progress(fmt.Sprintf("agree on %s keys", chart.Number(float64(n))))
		a, err := Agree(masters[len(masters)-1], n)
		if err != nil {
			return r, fmt.Errorf("agree on %d keys: %w", n, err)
		}
		r.Agreements = append(r.Agreements, a)
	}
	return r, nil
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
func megabytes(n float64) string {
	return chart.Number(n/(1<<20)) + " MB"
}

// Markdown is the text of docs/scale.md.
func (r Result) Markdown() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("# How a cluster grows: a simulation\n")
	say("Written by a program; to repeat it:\n\n    clustermaster simulate --docs docs\n")
	say("Masters and minions of the simulation are the code that places data (`hashring`) and agrees on facts (`cluster/fsm`), in memory: no disk, no network, one processor.")
	p := r.Placements[0]
	say("\n## Placement\n")
	say("%d partitions, up to %d copies of each, the data of %s minions (%d KiB of grains, pillar and mine each; keys lie on every master).\n", p.Partitions, hashring.MaxReplicas, chart.Number(float64(p.Minions)), minionBytes>>10)
	say("| masters | partitions of a master: least, mean, most | fullest master over mean | data of the fullest | one joins: copies fetched (fair share) | of that the joiner | at the default rate | one is removed: copies fetched (fair share) |\n|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, p := range r.Placements {
		copies := float64(min(hashring.MaxReplicas, p.Masters)) * float64(p.Minions) * minionBytes
		after := float64(min(hashring.MaxReplicas, p.Masters+1)) * float64(p.Minions) * minionBytes
		say("| %d | %d, %.1f, %d | %.2f | %s | %s (%s) | %s | %s | %s (%s) |", p.Masters,
			p.LeastPartitions, p.MeanPartitions, p.MostPartitions, p.MostMinions,
			megabytes(copies/float64(p.Masters)*p.MostMinions), percent(p.Join),
			percent(p.IdealJoin), percent(p.JoinMost),
			time.Duration(p.JoinMost*after/transferRate*float64(time.Second)).Round(time.Second),
			percent(p.Leave), percent(p.IdealLeave))
	}
	say("\n![balance](scale-balance.svg)\n\n![transfer](scale-transfer.svg)")
	say("\n## Agreement\n")
	say("| minions | log entry of a new key | new keys applied per second | known keys looked up per second | accepting all in one command | state in memory | snapshot | to write it | to restore it |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, a := range r.Agreements {
		say("| %s | %.0f bytes | %s | %s | %s, %s | %s | %s | %s | %s |",
			chart.Number(float64(a.Minions)), a.EntryBytes, chart.Number(a.NewKeys),
			chart.Number(a.Known),
			a.Accept.Round(time.Millisecond), megabytes(float64(a.AcceptBytes)),
			megabytes(float64(a.Heap)), megabytes(float64(a.SnapshotBytes)),
			a.Write.Round(time.Millisecond), a.Restore.Round(time.Millisecond))
	}
	say("\n![state](scale-state.svg)")
	say("\n## Limits that this shows\n")
	last, big := r.Placements[len(r.Placements)-1], r.Agreements[len(r.Agreements)-1]
	say("- With %d partitions the fullest of %d masters holds %.2f times the mean: the number of partitions is fixed at founding, and %.1f partitions for each master are few. Up to 20 masters it matters little.", last.Partitions, last.Masters, last.MostMinions, last.MeanPartitions)
	say("- Every master holds all keys: %s of memory and a snapshot of %s with %s minions, which a joiner must be sent (%s to restore).", megabytes(float64(big.Heap)), megabytes(float64(big.SnapshotBytes)), chart.Number(float64(big.Minions)), big.Restore.Round(time.Millisecond))
	say("- A new minion costs one entry in Raft's log of %.0f bytes, a known one none: a cluster writes to Raft as fast as *new* minions come, whatever the number of known ones.", big.EntryBytes)
	say("- Accepting all keys at once is one entry of %s for %s keys; Raft sends it as a whole.",
		megabytes(float64(big.AcceptBytes)), chart.Number(float64(big.Minions)))
	return b.String()
}

// Charts are the plots by file name.
func (r Result) Charts() map[string]chart.Plot {
	balance := chart.Plot{Title: "Partitions of a master over the mean", X: "masters", LogX: true}
	most, least := chart.Line{Name: "fullest"}, chart.Line{Name: "emptiest"}
	transfer := chart.Plot{Title: "Copies fetched when one master joins", X: "masters before",
		Y: "% of all copies", LogX: true}
	join, ideal := chart.Line{Name: "fetched"}, chart.Line{Name: "fair share"}
	for _, p := range r.Placements {
		n := float64(p.Masters)
		most.Points = append(most.Points,
			[2]float64{n, float64(p.MostPartitions) / p.MeanPartitions})
		least.Points = append(least.Points,
			[2]float64{n, float64(p.LeastPartitions) / p.MeanPartitions})
		join.Points = append(join.Points, [2]float64{n, 100 * p.Join})
		ideal.Points = append(ideal.Points, [2]float64{n, 100 * p.IdealJoin})
	}
	balance.Lines, transfer.Lines = []chart.Line{most, least}, []chart.Line{join, ideal}
	state := chart.Plot{Title: "The replicated state", X: "minions", Y: "MB", LogX: true,
		LogY: true}
	memory, disk := chart.Line{Name: "in memory"}, chart.Line{Name: "snapshot"}
	for _, a := range r.Agreements {
		memory.Points = append(memory.Points,
			[2]float64{float64(a.Minions), float64(a.Heap) / (1 << 20)})
		disk.Points = append(disk.Points,
			[2]float64{float64(a.Minions), float64(a.SnapshotBytes) / (1 << 20)})
	}
	state.Lines = []chart.Line{memory, disk}
	return map[string]chart.Plot{"scale-balance.svg": balance, "scale-transfer.svg": transfer,
		"scale-state.svg": state}
}

// Write writes scale.md and its plots into a folder.
func (r Result) Write(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "scale.md"), []byte(r.Markdown()), 0o644)
	}
	for name, c := range r.Charts() {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), c.SVG(), 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("write the simulation: %w", err)
	}
	return nil
}

// Exit codes of the command.
const (
	exitBad   = 1
	exitUsage = 64 // EX_USAGE
)

// Command is `clustermaster simulate`. It returns the exit code.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("simulate", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	masters := fs.IntSlice("masters", []int{1, 2, 3, 5, 7, 10, 20, 50, 100}, "sizes of the cluster")
	minions := fs.IntSlice("minions", []int{1000, 10_000, 100_000, 1_000_000}, "numbers of minions")
	docs := fs.String("docs", "",
		"write scale.md and its plots into `DIR` instead of printing the text")
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(stdout,
			"Usage: clustermaster simulate [options]\n\nShows how a cluster grows, by the code that places data and agrees on facts, in memory: balance, what a\n"+
				"change moves, size of the replicated state. One million minions take about 15 seconds and 3 GB.\n\nOptions:\n%s\nExamples:\n  clustermaster simulate\n"+
				"  clustermaster simulate --masters 3,9,27 --minions 50000\n", fs.FlagUsages())
		return 0
	}
	for _, list := range [][]int{*masters, *minions} {
		for _, n := range list {
			if err == nil && (n < 1 || n > 10_000_000) {
				err = fmt.Errorf("%d is not a number from 1 to 10000000", n)
			}
		}
	}
	if err == nil && (len(*masters) == 0 || len(*minions) == 0 || fs.NArg() > 0) {
		err = errors.New("give numbers of masters and of minions, and no arguments")
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster simulate: %v\nSee clustermaster simulate --help.\n", err)
		return exitUsage
	}
	r, err := Run(ctx, *masters, *minions, func(step string) { fmt.Fprintln(stderr, step) })
	if err == nil {
		if *docs != "" {
			err = r.Write(*docs)
		} else {
			_, err = io.WriteString(stdout, r.Markdown())
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster simulate: %v\n", err)
		return exitBad
	}
	return 0
}
