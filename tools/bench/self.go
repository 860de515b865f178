package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clustermaster/tools/figure"
)

// selfPlan is what --self does.
type selfPlan struct {
	program, dir string
	masters      []int // sizes of the clusters, one column each
	minions      int   // of the generator
	workers      int
	fleets       []int  // simulated minions
	fill         int    // returns to fill the job cache with
	profile      string // a folder for profiles; "" for none
}

// fillMinions return for each job of the fill.
const fillMinions = 1000

// settleTime lets a master finish what it does after it became ready, before its
// memory counts as idle.
const settleTime = 1500 * time.Millisecond

// self starts our own masters, once for each size, and measures them.
func (b *bencher) self(ctx context.Context, s selfPlan, r *Report) (err error) {
	program, err := programOf(s.program)
	if err != nil {
		return err
	}
	if s.profile != "" {
		if s.profile, err = filepath.Abs(s.profile); err == nil {
			err = os.MkdirAll(s.profile, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make folder for profiles: %w", err)
		}
	}
	dir, done, err := b.workspace(ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	for _, n := range s.masters {
		name := fmt.Sprintf("%d masters", n)
		if n == 1 {
			name = "1 master"
		}
		c, err := b.selfColumn(ctx, s, program, filepath.Join(dir, fmt.Sprint(n)), name, n)
		r.Columns = append(r.Columns, c)
		if err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
		printColumn(b.out, c)
		s.fill = 0 // once is enough
	}
	return nil
}

// workspace makes a folder for masters. done removes it, unless they failed: their logs are there.
func (b *bencher) workspace(ctx context.Context, parent string) (dir string, done func(err error),
	err error) {
	dir, err = os.MkdirTemp(parent, "cm-bench-")
	if err != nil {
		return "", nil, fmt.Errorf("make folder: %w", err)
	}
	return dir, func(err error) {
		if err == nil || ctx.Err() != nil {
			os.RemoveAll(dir)
		} else {
			b.say("The masters' folders stay in %s.", dir)
		}
	}, nil
}

func (b *bencher) selfColumn(ctx context.Context, s selfPlan, program, dir, name string,
	n int) (Column, error) {
	c := Column{Name: name, Minions: s.minions, Workers: s.workers}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, fmt.Errorf("make folder: %w", err)
	}
	b.progress.show("start %s", name)
	o, err := startGroup(ctx, clustermaster(program), dir, n, s.profile)
	if err != nil {
		return c, err
	}
	defer o.stop()
	c.Masters = o.requestAddrs()
	c.add("start to ready", o.took.Seconds(), "s", "")

	if !sleepUntil(ctx, time.Now().Add(settleTime)) {
		return c, ctx.Err()
	}
	idle, err := o.memory()
	if err != nil {
		return c, err
	}
	c.addMemory("memory (PSS) of a master, idle", idle)

	g, err := b.connect(ctx, Crowd{Masters: c.Masters, Minions: s.minions, Workers: s.workers,
		Prefix: "bench", SaltEnv: "base", File: benchFile})
	if err != nil {
		return c, err
	}
	if slices.ContainsFunc(b.plan.kinds,
		func(k kind) bool { return strings.HasPrefix(k.name, "_pillar") }) {
		if err := b.firstPillars(ctx, g, &c); err != nil {
			g.Close()
			return c, err
		}
	}
	var peak, workers []int64
	c.Loads, err = b.loads(ctx, g, o.pids(), func() {
		if now, err := o.memory(); err == nil {
			peak = maxima(peak, now)
		}
		if now, err := o.workerMemory(); err == nil {
			workers = maxima(workers, now)
		}
	})
	g.Close()
	if err != nil {
		return c, err
	}
	if s.fill > 0 {
		g, err := b.connect(ctx, Crowd{Masters: c.Masters, Minions: fillMinions,
			Workers: min(2*s.workers, fillMinions), Prefix: "fill", SaltEnv: "base"})
		if err != nil {
			return c, err
		}
		err = b.fill(ctx, g, o, s.fill, &c)
		g.Close()
		if err != nil {
			return c, err
		}
	}
	c.addMemory("memory (PSS) of a master, under load", peak)
	c.addMemory("of that its template workers", workers)
	return c, b.selfFleet(ctx, s, o, &c)
}

// repeatedPillars is how often the pillar is asked for again.
const repeatedPillars = 20

// firstPillars measures one minion's pillar of manySLS files with Jinja: the first that the masters
// make after their start, which unpacks the embedded Python and starts a worker; another minion's,
// in warm workers; and the first minion's again.
func (b *bencher) firstPillars(ctx context.Context, g *Generator, c *Column) error {
	w := g.crews[0]
	ask := func(s *session) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, firstPatience)
		defer cancel()
		begun := time.Now()
		err := sendPillarMany(ctx, s, &w.line, &g.job)
		return time.Since(begun), err
	}
	first, err := ask(w.sessions[0])
	if err != nil {
		return fmt.Errorf("first pillar: %w", err)
	}
	other, err := ask(w.sessions[len(w.sessions)-1])
	if err != nil {
		return fmt.Errorf("pillar of another minion: %w", err)
	}
	again := make([]time.Duration, repeatedPillars)
	for i := range again {
		if again[i], err = ask(w.sessions[0]); err != nil {
			return fmt.Errorf("repeated pillar: %w", err)
		}
	}
	slices.Sort(again)
	what := fmt.Sprintf("pillar of %d SLS with Jinja, ", manySLS)
	c.add(what+"the first after the start", ms(first), "ms", "")
	c.add(what+"another minion's first", ms(other), "ms", "")
	c.add(what+"a minion's again", ms(again[len(again)/2]), "ms",
		fmt.Sprintf("median of %d", repeatedPillars))
	return nil
}

// selfFleet measures what needs minions that listen.
func (b *bencher) selfFleet(ctx context.Context, s selfPlan, o *group, c *Column) error {
	f, err := b.newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	for _, n := range s.fleets {
		if err := f.measure(ctx, b, n, c); err != nil {
			return err
		}
	}
	if len(o.masters) < 3 || f.n == 0 {
		return nil
	}
	b.progress.show("kill -9 of the leader under %d simulated minions", f.n)
	took, published, err := f.failover(ctx)
	if err != nil {
		return err
	}
	note := "one test.ping"
	if published > 1 {
		note = fmt.Sprintf("test.ping number %d; those before it came back incomplete", published)
	}
	c.add(fmt.Sprintf("kill -9 of the leader to the answer of all %d minions", f.n), took.Seconds(),
		"s", note)
	return nil
}

func (c *Column) add(name string, value float64, unit, note string) {
	c.Figures = append(c.Figures, Figure{Name: name, Value: value, Unit: unit, Note: note})
}

// remark says something of the last figure.
func (c *Column) remark(note string) {
	f := &c.Figures[len(c.Figures)-1]
	if note != "" && f.Note != "" {
		note = f.Note + "; " + note
	}
	if note != "" {
		f.Note = note
	}
}

// addMemory notes the largest of some masters, and all of them.
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

// maxima takes the larger one at each place.
func maxima(a, b []int64) []int64 {
	if len(a) != len(b) {
		return b
	}
	for i := range a {
		a[i] = max(a[i], b[i])
	}
	return a
}
