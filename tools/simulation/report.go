package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"clustermaster/hashring"
	"clustermaster/tools/figure"
)

// MinionBytes is the size of the stored data of one minion besides its key: grains, pillar and mine
// of a usual size.
const MinionBytes = 12 << 10

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
	progress(fmt.Sprintf("weigh %s minions", figure.Thousands(most)))
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
		progress(fmt.Sprintf("agree on %s keys", figure.Thousands(n)))
		a, err := Agree(masters[len(masters)-1], n)
		if err != nil {
			return r, fmt.Errorf("agree on %d keys: %w", n, err)
		}
		r.Agreements = append(r.Agreements, a)
	}
	return r, nil
}

// FullestBytes is the size of minions' data on the fullest master, without keys.
func (p Placement) FullestBytes() float64 {
	copies := float64(min(hashring.MaxReplicas, p.Masters)) * float64(p.Minions) * MinionBytes
	return copies / float64(p.Masters) * p.MostMinions
}

// JoinTime is how long a joining master fetches its copies at the default rate.
func (p Placement) JoinTime() time.Duration {
	copies := float64(min(hashring.MaxReplicas, p.Masters+1)) * float64(p.Minions) * MinionBytes
	return time.Duration(p.JoinMost * copies / transferRate * float64(time.Second)).Round(time.Second)
}

// print writes both tables.
func (r Result) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	megabytes := func(n float64) string { return figure.Number(n / (1 << 20)) }
	fmt.Fprintln(w, "masters\tpartitions: least\tmean\tmost\tfullest, MB\tjoin moves, %\tof "+
		"that the joiner\ttakes\tremoval moves, %\t")
	for _, p := range r.Placements {
		fmt.Fprintf(w, "%d\t%d\t%.1f\t%d\t%s\t%.1f\t%.1f\t%s\t%.1f\t\n", p.Masters,
			p.LeastPartitions, p.MeanPartitions, p.MostPartitions, megabytes(p.FullestBytes()),
			100*p.Join, 100*p.JoinMost, p.JoinTime(), 100*p.Leave)
	}
	fmt.Fprintln(w, "\nminions\tentry of a key, bytes\tnew keys/s\tlook-ups/s\tall accepted "+
		"in\tstate, MB\tsnapshot, MB\twritten in\trestored in\t")
	for _, a := range r.Agreements {
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", figure.Thousands(a.Minions),
			a.EntryBytes, figure.Number(a.NewKeys), figure.Number(a.Known),
			a.Accept.Round(time.Millisecond), megabytes(float64(a.Heap)),
			megabytes(float64(a.SnapshotBytes)), a.Write.Round(time.Millisecond),
			a.Restore.Round(time.Millisecond))
	}
	return w.Flush()
}

// write puts the result into a file as JSON.
func (r Result) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o644)
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
	file := fs.String("json", "", "also write everything to `FILE`")
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(stdout,
			"Usage: clustermaster simulate [options]\n\nShows how a cluster grows, by the code that places data and agrees on facts, in memory: balance, what a\n"+
				"change moves, size of the replicated state. One million minions take about 15 seconds and 3 GB.\n\nOptions:\n%s\nExamples:\n  clustermaster simulate\n"+
				"  clustermaster simulate --masters 3,9,27 --minions 50000\n", fs.FlagUsages())
		return 0
	}
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("--%s: %q is not a list of whole numbers, such as 3,9,27", wrong.GetFlag().Name,
			wrong.GetValue())
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
		err = r.print(stdout)
	}
	if err == nil && *file != "" {
		err = r.write(*file)
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster simulate: %v\n", err)
		return exitBad
	}
	return 0
}
