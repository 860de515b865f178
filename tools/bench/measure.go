package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"clustermaster/tools/simminion"
)

// plan says what to measure of a master, and for how long.
type plan struct {
	kinds          []kind
	warmup, length time.Duration // of each load
	rate           rate
	openFor        []string // with a share as the rate: only these kinds; empty: all
}

// rate is --rate: a number per second, or a share of the closed loop's throughput just before.
type rate struct {
	perSecond, share float64 // both 0: closed loop only
}

func parseRate(s string) (rate, error) {
	if s == "" {
		return rate{}, nil
	}
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !(v > 0) || v > 1e7:
		return rate{},
			fmt.Errorf("rate %q: want requests per second, such as 500, or a share of the closed loop's throughput, such as 50%%", s)
	case percent:
		return rate{share: v / 100}, nil
	}
	return rate{perSecond: v}, nil
}

// bencher measures, and prints results as they come.
type bencher struct {
	out      io.Writer
	progress *progress
	keys     []*simminion.Key
	plan     plan
	flags    flags
}

// say prints a line of output.
func (b *bencher) say(format string, args ...any) {
	b.progress.clear()
	fmt.Fprintf(b.out, format+"\n", args...)
}

// crowd signs in the minions of a column that starts our own masters.
func (b *bencher) crowd(ctx context.Context, c *Column, file string) (*Generator, error) {
	return b.connect(ctx, Crowd{Masters: c.Masters, Minions: c.Minions, Workers: c.Workers,
		Prefix: "bench", SaltEnv: "base", File: file})
}

// connect signs a crowd in and shows a progress line.
func (b *bencher) connect(ctx context.Context, c Crowd) (*Generator, error) {
	m := new(meter)
	defer b.progress.watch(fmt.Sprintf("sign in %d minions", c.Minions), m)()
	return newGenerator(ctx, c, b.keys, m, func() {
		b.say("The master has not accepted the minions' keys: accept %s*, or set auto_accept there; waiting.", c.Prefix)
	})
}

// loads measures every kind of the plan. pids are the masters' processes, if known: it notes their
// CPU share, and calls sampled, if not nil, about twice a second under load.
func (b *bencher) loads(ctx context.Context, g *Generator, pids []int, sampled func()) ([]Load,
	error) {
	var out []Load
	for _, k := range b.plan.kinds {
		if err := g.Check(ctx, k); err != nil {
			if ctx.Err() != nil {
				return out, ctx.Err()
			}
			out = append(out, Load{Request: k.name, Err: err.Error()})
			continue
		}
		open := b.plan.rate.perSecond
		if open == 0 {
			l := b.load(ctx, g, k, 0, pids, sampled)
			out = append(out, l)
			if len(b.plan.openFor) == 0 || slices.Contains(b.plan.openFor, k.name) {
				open = b.plan.rate.share * l.PerSecond
			}
		}
		if open > 0 && ctx.Err() == nil {
			out = append(out, b.load(ctx, g, k, open, pids, sampled))
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
	return out, nil
}

// sampleEvery is the time between two measurements of the masters' memory.
const sampleEvery = 500 * time.Millisecond

// load measures one kind at one pace, and longer if no answer came.
func (b *bencher) load(ctx context.Context, g *Generator, k kind, perSecond float64, pids []int,
	sampled func()) Load {
	length := b.plan.length
	if perSecond > 0 {
		length = max(length, time.Duration(fewest/perSecond*float64(time.Second)))
	}
	for {
		l, a := b.loadFor(ctx, g, k, perSecond, length, pids, sampled)
		if a.Completed > 0 || a.Failed > 0 || ctx.Err() != nil {
			return l
		}
		length *= 4 // the answers came too late; a request that exceeds its patience fails
	}
}

// fewest is the least number of requests in an open loop, however slow it is.
const fewest = 5

func (b *bencher) loadFor(ctx context.Context, g *Generator, k kind, perSecond float64,
	length time.Duration, pids []int, sampled func()) (Load, account) {
	l := Load{Request: k.name, Rate: perSecond}
	m := new(meter)
	p := pace{warmup: b.plan.warmup, measure: length, rate: perSecond, patience: RequestPatience}
	stop := b.progress.watch(l.Title(), m)
	a := g.drive(ctx, k, p, m, func() func() {
		start, own, theirs := time.Now(), ownCPU(), cpuOf(pids)
		stopSampling := every(ctx, sampleEvery, sampled)
		return func() {
			stopSampling()
			all := float64(time.Since(start)) * float64(runtime.NumCPU())
			l.GeneratorCPU = float64(ownCPU()-own) / all
			l.MastersCPU = float64(cpuOf(pids)-theirs) / all
		}
	})
	stop()
	l.fill(&a)
	return l, a
}

// every calls f periodically until the caller calls stop, which calls it once more.
func every(ctx context.Context, d time.Duration, f func()) (stop func()) {
	if f == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleepUntil(ctx, time.Now().Add(d)) {
			f()
		}
	})
	return func() { cancel(); wg.Wait(); f() }
}
