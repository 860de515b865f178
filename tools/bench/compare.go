package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"clustermaster/tools/figure"
	"clustermaster/wire"
)

// comparePlan is what --compare does.
type comparePlan struct {
	program, venv, dir string
	rounds             int
	masters            []int
	minions, workers   int
	fleets             []int // simulated minions, of the first round and single masters
}

// MostPillars is how large a fleet may be whose minions fetch their pillars: Salt's master makes
// some 13 in a second.
const MostPillars = 1000

// fleetMost is how long a fleet may take to start, so that a comparison ends.
const fleetMost = 3 * time.Minute

// compareSettle lets masters finish their start before their memory counts as idle.
const compareSettle = 5 * time.Second

// Names of figures that a comparison shows; the table of results finds them by these.
const (
	figureStart  = "start to the first answered request of a signed-in minion"
	figureIdle   = "memory (PSS) of a master, idle"
	figureLoaded = "memory (PSS) of a master, under load"
)

// compare measures Salt's own masters and ours in turns, so that whatever else the machine does
// befalls both.
func (b *bencher) compare(ctx context.Context, p comparePlan, r *Report) error {
	program, err := programOf(p.program)
	if err != nil {
		return err
	}
	theirs, err := saltProduct(p.venv, b.keys[0])
	if err != nil {
		return err
	}
	ours := clustermaster(program)
	ours.ready = theirs.ready // the same for both
	dir, err := os.MkdirTemp(p.dir, "cmb-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(dir)
	r.Products = []string{theirs.name, ours.name}
	if r.RSA, err = rsaRate(b.keys[0]); err != nil {
		return err
	}
	for round := 1; round <= p.rounds; round++ {
		for _, n := range p.masters {
			order := []product{theirs, ours}
			if round%2 == 0 {
				slices.Reverse(order)
			}
			for i, prod := range order {
				c, err := b.compareColumn(ctx, p, prod,
					filepath.Join(dir, fmt.Sprintf("%d%d%d", round, n, i)), n, round)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				// the others go on: a cluster of Salt's may fail to come about on a busy machine
				if err != nil {
					c.Err = err.Error()
					b.say("%s: %v", c.Name, err)
				}
				r.Columns = append(r.Columns, c)
				printColumn(b.out, c)
			}
		}
	}
	return nil
}

func (b *bencher) compareColumn(ctx context.Context, p comparePlan, prod product, dir string, n,
	round int) (Column, error) {
	c := Column{Name: fmt.Sprintf("%s, %d of %d rounds, %s", prod.name, round, p.rounds,
		figure.Plural(n, "master")), Product: prod.name, Size: n, Round: round,
		Minions: p.minions, Workers: p.workers}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, fmt.Errorf("make folder: %w", err)
	}
	b.progress.show("start %s", c.Name)
	g, err := startGroup(ctx, prod, dir, n, "")
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(dir)
	defer g.stop()
	c.add(figureStart, g.took.Seconds(), "s", "")
	c.Masters = g.requestAddrs()
	if n > 1 {
		if err := g.balance(ctx); err != nil {
			return c, err
		}
		c.Masters = []string{net.JoinHostPort(g.front, strconv.Itoa(reqPort))}
	}
	if !sleepUntil(ctx, time.Now().Add(compareSettle)) {
		return c, ctx.Err()
	}
	idle, err := g.memory()
	if err != nil {
		return c, err
	}
	c.addMemory(figureIdle, idle)
	gen, err := b.connect(ctx, Crowd{Masters: c.Masters, Minions: p.minions, Workers: p.workers,
		Prefix: "bench", SaltEnv: "base", File: benchFile})
	if err != nil {
		return c, err
	}
	var peak []int64
	c.Loads, err = b.loads(ctx, gen, g.pids(), func() {
		if now, err := g.memory(); err == nil {
			peak = maxima(peak, now)
		}
	})
	gen.Close()
	if err != nil {
		return c, err
	}
	c.addMemory(figureLoaded, peak)
	if round > 1 || n > 1 || len(p.fleets) == 0 {
		return c, nil
	}
	f, err := b.newFleet(ctx, g)
	if err != nil {
		return c, err
	}
	defer f.stop()
	f.most = fleetMost
	for i, size := range p.fleets {
		f.bare = size > MostPillars
		err := f.measure(ctx, b, size, &c)
		var late *unstartedError
		if errors.As(err, &late) { // it is a figure of the master that it can't have so many
			for _, missed := range p.fleets[i:] {
				c.unmeasured(missed, late)
			}
			break
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// rsaRate is how many RSA-2048 private operations all processors could make together in a second,
// with the code that masters and minions here use: counted by processor time, so that other work on
// the machine is left out.
func rsaRate(k *keyPair) (float64, error) {
	const operations = 500
	start := ownCPU()
	for range operations {
		if _, err := k.private.Sign(wire.SigSHA1, []byte("rate")); err != nil {
			return 0, err
		}
	}
	return operations / (ownCPU() - start).Seconds() * float64(runtime.NumCPU()), nil
}
