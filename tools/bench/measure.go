package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/tools/figure"
	"clustermaster/tools/simminion"
)

// bencher measures, and prints results as they come.
type bencher struct {
	out      io.Writer
	progress *progress
	flags    flags
	key      *simminion.Key // of all minions

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

// say prints a line of output.
func (b *bencher) say(format string, args ...any) {
	b.progress.clear()
	fmt.Fprintf(b.out, format+"\n", args...)
}

// finish adds a column to the report and prints it; err says why it ends early.
func (b *bencher) finish(r *Report, c *Column, err error) error {
	if err != nil {
		c.Err = err.Error()
		err = fmt.Errorf("measure %s: %w", c.Name, err)
	}
	r.Columns = append(r.Columns, *c)
	b.progress.clear()
	printColumn(b.out, c)
	return err
}

// remote measures the masters of --master.
func (b *bencher) remote(ctx context.Context, r *Report) error {
	c := &Column{Name: "master", Masters: b.flags.masters, Minions: b.flags.minions,
		Workers: b.flags.workers}
	g, err := b.signIn(ctx, c)
	if err == nil {
		defer g.close()
		c.Loads, err = b.loads(ctx, g, b.kinds, new(group))
	}
	return b.finish(r, c, err)
}

// measure starts the masters of a setting below dir, and measures them.
func (b *bencher) measure(ctx context.Context, s *setting, dir string, r *Report) error {
	c := &s.column
	b.progress.show("start %s", figure.Plural(s.masters, "master"))
	o, err := startGroup(ctx, s.product, dir, s.masters)
	if err != nil {
		return b.finish(r, c, err)
	}
	defer o.stop()
	c.Masters = o.addrs
	switch c.Part {
	case PartMinions:
		return b.growMinions(ctx, o, s, r)
	case PartSizes:
		return b.growSizes(ctx, o, s, r)
	}
	return b.finish(r, c, b.column(ctx, o, s))
}

// column measures start, memory and requests of masters, and all that needs listening minions.
func (b *bencher) column(ctx context.Context, o *group, s *setting) error {
	c := &s.column
	started := "start to ready"
	if s.product.compared {
		started = "start to the first answered request of a signed-in minion"
	}
	c.add(started, o.took.Seconds(), "s", "")
	idle, err := o.memory()
	if err != nil {
		return err
	}
	c.addMemory("memory (PSS) of a master, idle", idle, "")
	g, err := b.signIn(ctx, c)
	if err != nil {
		return err
	}
	c.Loads, err = b.loads(ctx, g, s.kinds, o)
	g.close()
	if err != nil {
		return err
	}
	c.addMemory("memory (PSS) of a master, under load", o.peak, "")
	if len(s.fleets) == 0 {
		return nil
	}
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for i, n := range s.fleets {
		f.bare = s.product.compared && n > MostPillars
		err := f.measure(ctx, b, n, c)
		if err != nil && s.product.compared && ctx.Err() == nil {
			b.say("%v", err) // what a master can't do is a result
			for _, missed := range s.fleets[i:] {
				c.unmeasured(missed, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// growMinions connects more and more simulated minions to a master, and adds a column for each
// number.
func (b *bencher) growMinions(ctx context.Context, o *group, s *setting, r *Report) error {
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for _, n := range s.fleets {
		c := s.column
		c.Name, c.Minions, c.Workers = figure.Plural(n, "minion"), n, 0
		if err := b.finish(r, &c, f.measure(ctx, b, n, &c)); err != nil {
			return err
		}
	}
	return nil
}

// growSizes measures larger and larger jobs and returns, and adds a column for each size.
func (b *bencher) growSizes(ctx context.Context, o *group, s *setting, r *Report) error {
	g, err := b.signIn(ctx, &s.column)
	if err != nil {
		return err
	}
	defer g.close()
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	if _, err := f.grow(ctx, b, b.flags.minions); err != nil {
		return err
	}
	for _, kb := range b.flags.jobSizes {
		c := s.column
		c.Bytes = 1000 * kb
		c.Name = figure.Plural(s.masters, "master") + ", jobs of " + sizeName(kb)
		returns := kind{name: "_return of " + sizeName(kb),
			send: returnOf("test.echo", textOf(c.Bytes))}
		if c.Loads, err = b.loads(ctx, g, []kind{returns}, o); err == nil {
			c.add(FigureReturned, c.Loads[0].PerSecond*float64(c.Bytes)/1e6, "MB/s", "")
			err = f.measureSize(ctx, b, &c)
		}
		if err := b.finish(r, &c, err); err != nil {
			return err
		}
	}
	return nil
}

// loads measures some kinds of requests. It notes what the processes of o, if it has any, use of
// the processors and of memory meanwhile.
func (b *bencher) loads(ctx context.Context, g *generator, kinds []kind, o *group) ([]Load, error) {
	var out []Load
	for _, k := range kinds {
		if err := g.check(ctx, k); err != nil {
			if ctx.Err() != nil {
				return out, ctx.Err()
			}
			out = append(out, Load{Request: k.name, Err: err.Error()})
			continue
		}
		open := b.rate.perSecond
		if open == 0 {
			l := b.load(ctx, g, k, 0, o)
			out = append(out, l)
			if len(b.openFor) == 0 || slices.Contains(b.openFor, k.name) {
				open = b.rate.share * l.PerSecond
			}
		}
		if open > 0 && ctx.Err() == nil {
			out = append(out, b.load(ctx, g, k, open, o))
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
	}
	return out, nil
}

const (
	// sampleEvery is the time between two measurements of the masters' memory.
	sampleEvery = 500 * time.Millisecond
	// fewest is the least number of requests in an open loop, however slow it is.
	fewest = 5
)

// load measures one kind at one pace, and longer if no answer came.
func (b *bencher) load(ctx context.Context, g *generator, k kind, perSecond float64,
	o *group) Load {
	l := Load{Request: k.name, Rate: perSecond}
	workers := make([]requester, len(g.crews))
	for i, c := range g.crews {
		c.kind, workers[i] = k, c
	}
	p := pace{warmup: b.warmup, measure: b.length, rate: perSecond, patience: RequestPatience}
	if perSecond > 0 {
		p.measure = max(p.measure, time.Duration(fewest/perSecond*float64(time.Second)))
	}
	for ; ; p.measure *= 4 { // a request that exceeds its patience fails
		m := new(meter)
		stop := b.progress.follow(l.Title(), m.String)
		a := drive(ctx, workers, p, m, func() func() {
			start, own, theirs := time.Now(), ownCPU(), cpuOf(o.pids())
			stopSampling := every(sampleEvery, o.sample)
			return func() {
				stopSampling()
				all := float64(time.Since(start)) * float64(runtime.NumCPU())
				l.GeneratorCPU = float64(ownCPU()-own) / all
				l.MastersCPU = float64(cpuOf(o.pids())-theirs) / all
			}
		})
		stop()
		if a.Completed > 0 || a.Failed > 0 || ctx.Err() != nil {
			l.fill(&a)
			return l
		}
	}
}
