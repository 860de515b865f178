package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"clustermaster/tools/figure"
	"clustermaster/tools/simminion"
	"clustermaster/wire"
)

// Parts of --grow.
const (
	PartMinions = "minions"
	PartMasters = "masters"
	PartSizes   = "sizes"
	PartJoin    = "join"
)

var growParts = []string{PartMinions, PartMasters, PartSizes, PartJoin}

const (
	// MostPillars is the largest fleet that fetches its pillars when Salt's own master is measured,
	// which makes some 13 in a second.
	MostPillars = 1000
	// fleetMost bounds the start of a fleet in a comparison, so that it ends.
	fleetMost = 3 * time.Minute
	// fillMinions is the number of minions that return for each job of the fill.
	fillMinions = 1000
	// time for masters to finish their start before their idle memory is measured
	settleTime    = 1500 * time.Millisecond
	compareSettle = 5 * time.Second
	// repeatedPillars is how often the same pillar is requested again.
	repeatedPillars = 20
)

// workspace makes a folder for masters. done removes it, unless they failed, because it has their
// logs.
func (b *bencher) workspace(ctx context.Context) (dir string, done func(err error), err error) {
	dir, err = os.MkdirTemp(b.flags.dir, "cm-bench-")
	if err != nil {
		return "", nil, fmt.Errorf("make folder: %w", err)
	}
	return dir, func(err error) {
		if err == nil || ctx.Err() != nil || b.flags.compare != "" {
			os.RemoveAll(dir)
		} else {
			b.say("The masters' folders stay in %s.", dir)
		}
	}, nil
}

// own starts our own masters and measures them for --self and --grow.
func (b *bencher) own(ctx context.Context, r *Report) (err error) {
	program, err := programOf(b.flags.binary)
	if err == nil && b.flags.profile != "" {
		if b.flags.profile, err = filepath.Abs(b.flags.profile); err == nil {
			err = os.MkdirAll(b.flags.profile, 0o755)
		}
	}
	if err != nil {
		return err
	}
	dir, done, err := b.workspace(ctx)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	p := clustermaster(program)
	if b.flags.self {
		for _, n := range b.flags.sizes {
			if err := b.column(ctx, p, dir, n, r, Column{Name: figure.Plural(n, "master")}); err != nil {
				return err
			}
			b.flags.fill = 0 // once is enough
		}
		return nil
	}
	for _, part := range b.flags.parts {
		b.say("\nGrowth: %s", part)
		switch dir := filepath.Join(dir, part); part {
		case PartMinions:
			err = b.growMinions(ctx, p, dir, r)
		case PartMasters:
			err = b.growMasters(ctx, p, dir, r)
		case PartSizes:
			err = errors.Join(b.growSizes(ctx, p, filepath.Join(dir, "1"), 1, r),
				b.growSizes(ctx, p, filepath.Join(dir, "3"), 3, r))
		case PartJoin:
			err = b.join(ctx, p, dir, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare measures Salt's own masters and ours in turns, so that other load on the machine affects
// both.
func (b *bencher) compare(ctx context.Context, r *Report) error {
	program, err := programOf(b.flags.binary)
	if err != nil {
		return err
	}
	theirs, err := saltProduct(b.flags.compare, b.keys[0])
	if err != nil {
		return err
	}
	ours := clustermaster(program)
	ours.ready, ours.compared = theirs.ready, true // the same for both
	dir, done, err := b.workspace(ctx)
	if err != nil {
		return err
	}
	defer done(nil)
	r.Products = []string{theirs.name, ours.name}
	if r.RSA, err = rsaRate(b.keys[0]); err != nil {
		return err
	}
	for round := range b.flags.rounds {
		for _, n := range b.flags.sizes {
			order := []product{theirs, ours}
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for i, p := range order {
				c := Column{Name: fmt.Sprintf("%s, %d of %d rounds, %s", p.name, round+1,
					b.flags.rounds, figure.Plural(n, "master")), Product: p.name, Size: n,
					Round: round + 1}
				// Go on with the others: a cluster of Salt's may fail to form on a busy machine.
				err := b.column(ctx, p, filepath.Join(dir, fmt.Sprintf("%d%d", round, i)), n, r, c)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					b.say("%v", err)
				}
			}
		}
	}
	return nil
}

// rsaRate is the number of RSA-2048 private operations that all processors together could make in a
// second, with the code that masters and minions use here. It counts processor time, so other work
// on the machine does not matter.
func rsaRate(k *simminion.Key) (float64, error) {
	const operations = 500
	start := ownCPU()
	for range operations {
		if _, err := k.Private.Sign(wire.SigSHA1, []byte("rate")); err != nil {
			return 0, err
		}
	}
	return operations / (ownCPU() - start).Seconds() * float64(runtime.NumCPU()), nil
}

// column adds the measurements of n masters to the report, and prints them.
func (b *bencher) column(ctx context.Context, p product, dir string, n int, r *Report,
	c Column) error {
	c.Minions, c.Workers = b.flags.minions, b.flags.workers
	err := b.measure(ctx, p, filepath.Join(dir, fmt.Sprint(n)), n, &c)
	if err != nil {
		c.Err = err.Error()
	}
	r.Columns = append(r.Columns, c)
	if err != nil {
		return fmt.Errorf("measure %s: %w", c.Name, err)
	}
	printColumn(b.out, c)
	return nil
}

// start starts n masters, and waits until they are idle.
func (b *bencher) start(ctx context.Context, p product, dir string, n int, c *Column) (*group,
	error) {
	b.progress.show("start %s", figure.Plural(n, "master"))
	profile, settle := b.flags.profile, settleTime
	if p.compared {
		profile, settle = "", compareSettle
	}
	o, err := startGroup(ctx, p, dir, n, profile)
	if err != nil {
		return nil, err
	}
	c.Masters = o.requestAddrs()
	if p.compared && n > 1 {
		if err = o.balance(ctx); err == nil {
			c.Masters = []string{o.haproxy.requests()}
		}
	}
	if err == nil && !sleepUntil(ctx, time.Now().Add(settle)) {
		err = ctx.Err()
	}
	if err != nil {
		o.stop()
		return nil, err
	}
	return o, nil
}

// measure starts n masters and measures their start, memory and requests, and everything that needs
// listening minions.
func (b *bencher) measure(ctx context.Context, p product, dir string, n int, c *Column) error {
	o, err := b.start(ctx, p, dir, n, c)
	if err != nil {
		return err
	}
	defer o.stop()
	if p.compared {
		c.add("start to the first answered request of a signed-in minion", o.took.Seconds(), "s", "")
	} else {
		c.add("start to ready", o.took.Seconds(), "s", "")
	}
	idle, err := o.each(pss)
	if err != nil {
		return err
	}
	c.addMemory("memory (PSS) of a master, idle", idle)
	g, err := b.crowd(ctx, c, benchFile)
	if err != nil {
		return err
	}
	defer g.Close()
	if !p.compared && slices.ContainsFunc(b.plan.kinds,
		func(k kind) bool { return strings.HasPrefix(k.name, "_pillar") }) {
		if err := firstPillars(ctx, g, c); err != nil {
			return err
		}
	}
	var peak, workers []int64
	c.Loads, err = b.loads(ctx, g, o.pids(), func() {
		peak = maxima(peak, o, pss)
		if !p.compared {
			workers = maxima(workers, o, pssBelow)
		}
	})
	g.Close()
	if err == nil && b.flags.fill > 0 {
		err = b.filled(ctx, o, c)
	}
	if err != nil {
		return err
	}
	c.addMemory("memory (PSS) of a master, under load", peak)
	c.addMemory("of that its template workers", workers)
	if p.compared && (c.Round > 1 || n > 1) || len(b.flags.fleets) == 0 {
		return nil
	}
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for i, size := range b.flags.fleets {
		f.bare = p.compared && size > MostPillars
		err := f.measure(ctx, b, size, c)
		var late *unstartedError
		if p.compared && errors.As(err, &late) { // that a master can't have so many is a result
			for _, missed := range b.flags.fleets[i:] {
				c.unmeasured(missed, late)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// filled stores --fill returns in the job cache.
func (b *bencher) filled(ctx context.Context, o *group, c *Column) error {
	g, err := b.connect(ctx, Crowd{Masters: c.Masters, Minions: fillMinions,
		Workers: min(2*c.Workers, fillMinions), Prefix: "fill", SaltEnv: "base"})
	if err != nil {
		return err
	}
	defer g.Close()
	return b.fill(ctx, g, o, b.flags.fill, c)
}

// firstPillars measures one minion's pillar of manySLS files with Jinja: the first one after the
// masters' start, which unpacks the embedded Python and starts a worker; another minion's, in warm
// workers; and the first minion's again.
func firstPillars(ctx context.Context, g *Generator, c *Column) error {
	w := g.crews[0]
	ask := func(s *session) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, firstPatience)
		defer cancel()
		begun := time.Now()
		err := sendPillar(true, false)(ctx, s, &w.line, &g.job)
		return time.Since(begun), err
	}
	first, err := ask(w.sessions[0])
	other, failed := ask(w.sessions[len(w.sessions)-1])
	err = errors.Join(err, failed)
	again := make([]time.Duration, repeatedPillars)
	for i := 0; err == nil && i < len(again); i++ {
		again[i], err = ask(w.sessions[0])
	}
	if err != nil {
		return fmt.Errorf("pillars of many files: %w", err)
	}
	what := fmt.Sprintf("pillar of %d SLS with Jinja, ", manySLS)
	c.add(what+"the first after the start", ms(first), "ms", "")
	c.add(what+"another minion's first", ms(other), "ms", "")
	c.addMedian(what+"a minion's again", again, "")
	return nil
}

// growMinions connects more and more simulated minions to one master.
func (b *bencher) growMinions(ctx context.Context, p product, dir string, r *Report) error {
	var of Column
	o, err := b.start(ctx, p, dir, 1, &of)
	if err != nil {
		return err
	}
	defer o.stop()
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for _, n := range append([]int{0}, b.flags.fleets...) {
		c := Column{Part: PartMinions, Name: figure.Plural(n, "minion"), Masters: of.Masters,
			Minions: n}
		if n == 0 {
			err = f.memory(&c)
		} else {
			err = f.measure(ctx, b, n, &c)
		}
		if err != nil {
			return fmt.Errorf("measure %s: %w", c.Name, err)
		}
		r.Columns = append(r.Columns, c)
		printColumn(b.out, c)
	}
	return nil
}

// growMasters measures clusters of more and more masters.
func (b *bencher) growMasters(ctx context.Context, p product, dir string, r *Report) error {
	few := *b
	few.flags.fleets = []int{b.flags.minions}
	var err error
	if few.plan.kinds, err = choose("auth,return,minion_event,pillar,mine", ""); err != nil {
		return err
	}
	for _, n := range b.flags.sizes {
		err := few.column(ctx, p, dir, n, r, Column{Part: PartMasters,
			Name: figure.Plural(n, "master")})
		if err != nil {
			return err
		}
	}
	return nil
}

// growSizes measures larger and larger jobs and returns.
func (b *bencher) growSizes(ctx context.Context, p product, dir string, masters int,
	r *Report) error {
	of := Column{Part: PartSizes, Minions: b.flags.minions, Workers: b.flags.workers}
	o, err := b.start(ctx, p, dir, masters, &of)
	if err != nil {
		return err
	}
	defer o.stop()
	g, err := b.crowd(ctx, &of, "")
	if err != nil {
		return err
	}
	defer g.Close()
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	if _, err := f.grow(ctx, b, b.flags.minions); err != nil {
		return err
	}
	one := *b
	for _, kb := range b.flags.jobSizes {
		c := of
		c.Bytes = 1000 * kb
		c.Name = figure.Plural(masters, "master") + ", jobs of " + sizeName(c.Bytes)
		one.plan.kinds = []kind{{name: "_return of " + sizeName(c.Bytes),
			send: returnOf("test.echo", textOf(c.Bytes), (*job).newJID)}}
		if c.Loads, err = one.loads(ctx, g, o.pids(), nil); err == nil {
			c.add(FigureReturned, c.Loads[0].PerSecond*float64(c.Bytes)/1e6, "MB/s", "")
			err = f.measureSize(ctx, b, c.Bytes, &c)
		}
		if err != nil {
			return fmt.Errorf("measure %s: %w", c.Name, err)
		}
		r.Columns = append(r.Columns, c)
		printColumn(b.out, c)
	}
	return nil
}

func (c *Column) add(name string, value float64, unit, note string) {
	c.Figures = append(c.Figures, Figure{Name: name, Value: value, Unit: unit, Note: note})
}

// addMedian adds the median of some times, and a remark.
func (c *Column) addMedian(name string, took []time.Duration, note string) {
	slices.Sort(took)
	c.add(name, ms(took[len(took)/2]), "ms", fmt.Sprintf("median of %d%s", len(took), note))
}

// remark adds a note to the last figure.
func (c *Column) remark(note string) {
	f := &c.Figures[len(c.Figures)-1]
	if note != "" && f.Note != "" {
		note = f.Note + "; " + note
	}
	if note != "" {
		f.Note = note
	}
}

// addMemory adds the largest value of some masters, and the sum of all.
func (c *Column) addMemory(name string, each []int64) {
	if len(each) == 0 {
		return
	}
	note := ""
	if len(each) > 1 {
		note = "the largest of"
		for _, n := range each {
			note += " " + figure.Number(mb(n))
		}
	}
	c.add(name, mb(slices.Max(each)), "MB", note)
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }

// maxima measures the living masters and keeps the larger value for each.
func maxima(was []int64, o *group, measure func(pid int) (int64, error)) []int64 {
	now, err := o.each(measure)
	if err != nil {
		return was
	}
	for i := range now {
		if len(was) == len(now) {
			now[i] = max(now[i], was[i])
		}
	}
	return now
}
