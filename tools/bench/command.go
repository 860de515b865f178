package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Exit codes of the command.
const (
	exitGood  = 0
	exitBad   = 1  // a measurement failed
	exitUsage = 64 // EX_USAGE
)

// Command is `clustermaster bench`. It returns the exit code: 0, or 1 if a measurement failed, or
// 64 for a wrong command line. Ctrl-C ends it, and the processes that it started.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, fs, err := parseFlags(args)
	if errors.Is(err, pflag.ErrHelp) {
		var list strings.Builder
		for _, k := range kinds() {
			fmt.Fprintf(&list, "  %-15s %s\n", k.name, k.about)
		}
		fmt.Fprintf(stdout, usageText, list.String(), fs.FlagUsagesWrapped(100))
		return exitGood
	}
	var b *bencher
	if err == nil {
		b, err = newBencher(f, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster bench: %v\nSee clustermaster bench --help.\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r := &Report{Made: time.Now().UTC().Truncate(time.Second)}
	r.Machine, r.LoadAverage = thisMachine()
	err = b.run(ctx, r)
	b.progress.clear()
	if f.json != "" && len(r.Columns) > 0 {
		err = errors.Join(err, r.write(f.json))
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster bench: %v\n", err)
		return exitBad
	}
	for _, c := range r.Columns {
		if len(r.Products) == 2 && c.Product == r.Products[0] {
			continue // a failure of the other product is a result
		}
		for i := range c.Loads {
			if c.Loads[i].Answered == 0 {
				return exitBad
			}
		}
	}
	return exitGood
}

func newBencher(f flags, stdout, stderr io.Writer) (*bencher, error) {
	b := &bencher{out: stdout, progress: newProgress(stderr), flags: f}
	file := f.file
	if len(f.masters) == 0 {
		file = benchFile
	}
	var err error
	if b.plan.kinds, err = choose(f.only, file); err != nil {
		return nil, err
	}
	if f.self && f.rate == "" {
		// Latencies at half of the throughput describe daily work better than those at the limit.
		f.rate, b.plan.openFor = "50%", []string{"_return"}
		if !f.quick {
			b.plan.openFor = append(b.plan.openFor, "_minion_event")
		}
	}
	if b.plan.rate, err = parseRate(f.rate); err != nil {
		return nil, err
	}
	b.plan.length = time.Duration(f.seconds * float64(time.Second))
	b.plan.warmup = time.Duration(f.warmup * float64(time.Second))
	return b, nil
}

func (b *bencher) run(ctx context.Context, r *Report) (err error) {
	b.say("%s", r.Machine)
	b.progress.show("make %d keys", poolKeys)
	if len(b.flags.masters) > 0 {
		if b.keys, err = loadKeys(b.flags.keys); err == nil {
			err = b.remote(ctx, r)
		}
		return err
	}
	if b.keys, err = newKeys(poolKeys); err != nil {
		return err
	}
	if b.flags.compare != "" {
		return b.compare(ctx, r)
	}
	if err = b.own(ctx, r); err == nil && b.flags.self {
		fmt.Fprintln(b.out)
		table(b.out, r.Summary())
	}
	return err
}

// remote measures the masters of --master.
func (b *bencher) remote(ctx context.Context, r *Report) error {
	f := &b.flags
	c := Column{Name: "master", Masters: f.masters, Minions: f.minions, Workers: f.workers}
	var pids []int
	var sampled func()
	var peak int64
	if f.pid > 0 {
		idle, err := pss(f.pid)
		if err != nil {
			return err
		}
		c.addMemory("memory (PSS), before", []int64{idle})
		pids = []int{f.pid}
		sampled = func() {
			if n, err := pss(f.pid); err == nil {
				peak = max(peak, n)
			}
		}
	}
	g, err := b.connect(ctx, Crowd{Masters: f.masters, Minions: f.minions, Workers: f.workers,
		Prefix: f.prefix, SaltEnv: f.env, File: f.file})
	if err != nil {
		return err
	}
	defer g.Close()
	c.Loads, err = b.loads(ctx, g, pids, sampled)
	if peak > 0 {
		c.addMemory("memory (PSS), under load", []int64{peak})
	}
	r.Columns = append(r.Columns, c)
	b.progress.clear()
	printColumn(b.out, c)
	return err
}
