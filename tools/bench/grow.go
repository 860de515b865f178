package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"clustermaster/tools/figure"
)

// Parts of --grow, in their order.
const (
	PartJoin    = "join"
	PartMinions = "minions"
	PartMasters = "masters"
	PartSizes   = "sizes"
)

var growParts = []string{PartMinions, PartMasters, PartSizes, PartJoin}

// growPlan is what --grow does.
type growPlan struct {
	program, dir     string
	parts            []string
	minions, masters []int // numbers of them, rising
	sizes            []int // bytes of a job and of each return of it
	crowd, workers   int   // of the generator, when masters and sizes grow
	fleet            int   // simulated minions, when masters and sizes grow
	join             joinPlan
}

// grow measures how cost grows, one part after the other.
func (b *bencher) grow(ctx context.Context, s growPlan, r *Report) (err error) {
	program, err := programOf(s.program)
	if err != nil {
		return err
	}
	dir, done, err := b.workspace(ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	for _, part := range s.parts {
		b.say("\nGrowth: %s", part)
		switch part {
		case PartMinions:
			err = b.growMinions(ctx, s, program, dir, r)
		case PartMasters:
			err = b.growMasters(ctx, s, program, dir, r)
		case PartSizes:
			err = b.growSizes(ctx, s, program, dir, r)
		case PartJoin:
			err = b.joinOne(ctx, s.join, program, filepath.Join(dir, "join"), r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// growMinions lets more and more simulated minions come to one master.
func (b *bencher) growMinions(ctx context.Context, s growPlan, program, dir string,
	r *Report) error {
	b.progress.show("start a master")
	o, err := startGroup(ctx, clustermaster(program), filepath.Join(dir, "minions"), 1, "")
	if err != nil {
		return err
	}
	defer o.stop()
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for _, n := range append([]int{0}, s.minions...) {
		c := Column{Part: PartMinions, Name: figure.Plural(n, "minion"), Masters: o.requestAddrs(),
			Minions: n}
		if n == 0 {
			sleepUntil(ctx, time.Now().Add(settleTime))
			memory, err := o.memory()
			if err != nil {
				return err
			}
			c.addMemory(FigureFleet(0), memory)
		} else if err := f.measure(ctx, b, n, &c); err != nil {
			return fmt.Errorf("measure %s: %w", c.Name, err)
		}
		r.Columns = append(r.Columns, c)
		printColumn(b.out, c)
	}
	return nil
}

// growMasters measures clusters of more and more masters.
func (b *bencher) growMasters(ctx context.Context, s growPlan, program, dir string,
	r *Report) error {
	plan := b.plan
	defer func() { b.plan = plan }()
	var err error
	if b.plan.kinds, err = choose("auth,return,minion_event,pillar,mine", ""); err != nil {
		return err
	}
	for _, n := range s.masters {
		c, err := b.selfColumn(ctx, selfPlan{minions: s.crowd, workers: s.workers,
			fleets: []int{s.fleet}}, program, filepath.Join(dir, fmt.Sprintf("masters%d", n)),
			figure.Plural(n, "master"), n)
		c.Part = PartMasters
		r.Columns = append(r.Columns, c)
		if err != nil {
			return fmt.Errorf("measure %s: %w", c.Name, err)
		}
		printColumn(b.out, c)
	}
	return nil
}

// growSizes measures larger and larger jobs and returns.
func (b *bencher) growSizes(ctx context.Context, s growPlan, program, dir string, r *Report) error {
	plan := b.plan
	defer func() { b.plan = plan }()
	for _, masters := range []int{1, 3} {
		if err := b.growSizesOf(ctx, s, program,
			filepath.Join(dir, fmt.Sprintf("sizes%d", masters)), masters, r); err != nil {
			return fmt.Errorf("measure sizes with %s: %w", figure.Plural(masters, "master"), err)
		}
	}
	return nil
}

func (b *bencher) growSizesOf(ctx context.Context, s growPlan, program, dir string, masters int,
	r *Report) error {
	b.progress.show("start %s", figure.Plural(masters, "master"))
	o, err := startGroup(ctx, clustermaster(program), dir, masters, "")
	if err != nil {
		return err
	}
	defer o.stop()
	g, err := b.connect(ctx, Crowd{Masters: o.requestAddrs(), Minions: s.crowd, Workers: s.workers,
		Prefix: "bench", SaltEnv: "base"})
	if err != nil {
		return err
	}
	defer g.Close()
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	if _, err := f.grow(ctx, b, s.fleet); err != nil {
		return err
	}
	for _, size := range s.sizes {
		c := Column{Part: PartSizes, Name: figure.Plural(masters, "master") + ", jobs of " +
			sizeName(size), Masters: o.requestAddrs(), Minions: s.crowd, Workers: s.workers,
			Bytes: size}
		b.plan.kinds = []kind{returnOf(textOf(size))}
		if c.Loads, err = b.loads(ctx, g, o.pids(), nil); err != nil {
			return err
		}
		c.add(FigureReturned, c.Loads[0].PerSecond*float64(size)/1e6, "MB/s", "")
		if err := f.measureSize(ctx, b, size, &c); err != nil {
			return err
		}
		r.Columns = append(r.Columns, c)
		printColumn(b.out, c)
	}
	return nil
}
