package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
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
			fmt.Fprintf(&list, "  %-19s %s\n", k.name, k.about)
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
	if len(f.masters) == 0 {
		b.flags.file, b.flags.env = benchFile, "base"
	}
	var err error
	if b.kinds, err = choose(f.only, b.flags.file); err != nil {
		return nil, err
	}
	if f.self && f.rate == "" {
		// Latencies at half of the throughput describe daily work better than those at the limit.
		f.rate, b.openFor = "50%", []string{"_return"}
		if !f.quick {
			b.openFor = append(b.openFor, "_minion_event")
		}
	}
	if b.rate, err = parseRate(f.rate); err != nil {
		return nil, err
	}
	b.length = time.Duration(f.seconds * float64(time.Second))
	b.warmup = time.Duration(f.warmup * float64(time.Second))
	return b, nil
}

func (b *bencher) run(ctx context.Context, r *Report) (err error) {
	b.say("%s", r.Machine)
	b.progress.show("make the minions' key")
	if len(b.flags.masters) > 0 {
		if b.key, err = keptKey(b.flags.keys); err != nil {
			return err
		}
		return b.remote(ctx, r)
	}
	if b.key, err = newKey(); err != nil {
		return err
	}
	settings, err := b.settings()
	if err != nil {
		return err
	}
	if b.flags.compare != "" {
		r.Products = []string{settings[0].product.name, settings[1].product.name}
	}
	dir, err := os.MkdirTemp("", "cm-bench-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			os.RemoveAll(dir)
		} else { // it has the masters' logs
			b.say("The masters' folders stay in %s.", dir)
		}
	}()
	for i, s := range settings {
		err := b.measure(ctx, s, filepath.Join(dir, fmt.Sprint(i+1)), r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !s.product.compared {
			return err
		}
		if err != nil { // a cluster of Salt's may fail to form on a busy machine
			b.say("%v", err)
		}
	}
	if b.flags.self {
		fmt.Fprintln(b.out)
		table(b.out, r.Summary())
	}
	return nil
}
