package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/tools/dev"
	"clustermaster/tools/figure"
	"clustermaster/tools/simminion"
	"clustermaster/value"
)

// fleetPrefix begins the ids of the fleet.
const fleetPrefix = "sim"

// fleetGrain is a grain of every minion in the fleet.
const fleetGrain = "os:Simulated"

// The fleet's minions try again 1 to 3 s after a loss, where Salt's default is 1 to 11 s.
const (
	reconDefault = 1000 * time.Millisecond
	reconMax     = 2000 * time.Millisecond
)

// fleetReleases behave differently when a connection is lost, so the fleet has some of each.
var fleetReleases = []string{"3006.28", "3007.15", "3008.3"}

const (
	// for all minions to start: a request that was cut off costs one 60 s, as with libzmq; and
	fleetPatience = 150 * time.Second
	// for each: Salt's own master makes few pillars per second
	fleetPatienceEach = 200 * time.Millisecond
)

// FleetStarting bounds how many minions of a fleet are between their sign-in and their start event.
// So few keep a master busy; if all of ten thousand started at once, it would answer most of them
// after they gave up.
const FleetStarting = 64

// filesReserve is the number of a process's open files besides minions' connections: a master's
// databases, its ports, its peers; and for each starting minion a connection for its sign-in and
// one for its pillar.
const filesReserve = 768 + 2*FleetStarting

// requestSlots is the number of request connections that minions without their own connection
// share.
const requestSlots = 256

// minionsPerSource is the number of minions per source address, which has some 28,000 ports.
const minionsPerSource = 2000

// fleet is a growing number of simulated minions of a set of masters.
type fleet struct {
	own   *group
	addr  string           // the request port that the minions know
	files int              // open connections allowed, the minions' or the master's
	keys  []*simminion.Key // shared by all
	n     int              // minions that have started
	keep  int              // of these have their own request connection
	slots chan struct{}    // a place for each request connection of the others
	// new minions fetch no pillar, so the master has no grains of theirs
	bare  bool
	run   context.Context    // the life of all minions: grow starts it, stop ends it
	end   context.CancelFunc // of run
	lives sync.WaitGroup
}

// newFleet makes a fleet without minions at one master's port, or at the built-in balancer if there
// are several masters.
func (b *bencher) newFleet(ctx context.Context, o *group) (*fleet, error) {
	f := &fleet{own: o, addr: o.requestAddrs()[0], keys: b.keys,
		slots: make(chan struct{}, requestSlots)}
	var err error
	if f.files, err = openFilesLimit(); err != nil {
		return nil, err
	}
	f.run, f.end = context.WithCancel(context.WithoutCancel(ctx))
	if len(o.masters) == 1 {
		return f, nil
	}
	f.addr = fmt.Sprintf("%s:%d", o.front, reqPort)
	var hosts []string
	for _, m := range o.masters {
		hosts = append(hosts, m.host)
	}
	f.files /= 3 // a connection through the balancer has three ends in this process
	f.lives.Go(func() {
		// If the balancer can't listen, minions never start, and grow fails.
		dev.NewBalancer(hosts, healthPort, slog.New(slog.DiscardHandler)).Serve(f.run, o.front,
			pubPort, reqPort)
	})
	return f, nil
}

// unstartedError means that a fleet did not start in time.
type unstartedError struct {
	started, of int
	patience    time.Duration
}

func (e *unstartedError) Error() string {
	return fmt.Sprintf("did not finish in %.0f s: %s of %s started", e.patience.Seconds(),
		figure.Thousands(e.started), figure.Plural(e.of, "minion"))
}

// grow starts minions until there are n, and waits until all have fired their start event. took is
// the time from the first sign-in until then. The error is *unstartedError if the patience ended.
func (f *fleet) grow(ctx context.Context, b *bencher, n int) (took time.Duration, err error) {
	more, err := f.more(n)
	if err != nil {
		return 0, err
	}
	patience := fleetPatience + time.Duration(len(more.Minions))*fleetPatienceEach
	if f.own.product.compared {
		patience = min(patience, fleetMost)
	}
	limited, done := context.WithTimeout(ctx, patience)
	defer done()
	ended := make(chan error, 1)
	begun := time.Now()
	f.lives.Go(func() { ended <- more.Run(f.run) })
	ready := make(chan error, 1)
	go func() { ready <- more.WaitReady(limited) }()
	defer b.progress.follow("start simulated minions", func(time.Duration) string {
		return fmt.Sprintf("%d of %d", f.n+more.Started(), n)
	})()
	select {
	case err = <-ready:
	case err = <-ended:
		if err == nil {
			err = errors.New("all ended at once")
		}
	}
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return 0, &unstartedError{started: f.n + more.Started(), of: n, patience: patience}
	case err != nil:
		return 0, fmt.Errorf("start simulated minions: %w", err)
	}
	f.n = n
	return time.Since(begun), nil
}

// more makes the missing minions up to n. All have a publish connection; as many as the open files
// allow have their own request connection.
func (f *fleet) more(n int) (*simminion.Fleet, error) {
	f.keep = n
	if room := f.files - filesReserve; 2*n > room {
		f.keep = room - requestSlots - n
	}
	if f.keep < 0 {
		return nil,
			fmt.Errorf("start simulated minions: %s want %d connections, and the limit of open files allows %d: raise it (ulimit -n)",
				figure.Plural(n, "minion"), 2*n, f.files-filesReserve)
	}
	sources := f.own.sources()
	out := &simminion.Fleet{Starting: FleetStarting}
	for i := f.n; i < n; i++ {
		c := simminion.Config{
			ID: fmt.Sprintf("%s%d", fleetPrefix, i+1), Key: f.keys[i%len(f.keys)], Master: f.addr,
			LocalAddr: sources[i/minionsPerSource%len(sources)],
			Release:   fleetReleases[i%len(fleetReleases)], ReconDefault: reconDefault,
			ReconMax: reconMax, Functions: fleetFunctions, NoPillar: f.bare,
		}
		if i >= f.keep {
			c.RequestSlots = f.slots
		}
		m, err := simminion.New(c)
		if err != nil {
			return nil, err
		}
		out.Minions = append(out.Minions, m)
	}
	return out, nil
}

// note says how the fleet differs from real minions.
func (f *fleet) note() string {
	if f.keep >= f.n {
		return ""
	}
	return fmt.Sprintf("%s of them keep a request connection, the others share %d: a process may have %s open files here",
		figure.Thousands(f.keep), requestSlots, figure.Thousands(f.files))
}

// stop ends all minions, and the balancer.
func (f *fleet) stop() {
	f.end()
	f.lives.Wait()
}

// Names of the figures of a fleet, and of a size of jobs.
const (
	FigureReturned = "returns taken"
	FigureArgument = "a job with such an argument, publish to last return"
	FigureAnswer   = "a job with such returns, publish to last return"
)

func FigureSignIn(n int) string { return "sign-in and start of " + figure.Plural(n, "minion") }
func FigureFleet(n int) string  { return "memory (PSS) of a master with " + figure.Plural(n, "minion") }
func FigurePing(n int) string {
	return "test.ping of " + figure.Plural(n, "minion") + ", publish to last return"
}
func FigureGrainPing(n int) string {
	return "test.ping -G of " + figure.Plural(n, "minion") + ", publish to last return"
}

func FigureResolve(n int) string {
	return "a compound target of " + figure.Plural(n, "minion") + ", resolved"
}

// memory adds the memory of a master with all minions, when it is idle.
func (f *fleet) memory(c *Column) error {
	memory, err := f.own.each(pss)
	if err != nil {
		return err
	}
	c.addMemory(FigureFleet(f.n), memory)
	c.remark(f.note())
	return nil
}

// measure grows the fleet to n and measures everything that needs listening minions. Pings that not
// all minions answer give a note.
func (f *fleet) measure(ctx context.Context, b *bencher, n int, c *Column) error {
	before := f.n
	took, err := f.grow(ctx, b, n)
	if err != nil {
		return err
	}
	c.add(FigureSignIn(n), took.Seconds(), "s",
		figure.Number(float64(n-before)/took.Seconds())+" a second")
	if before > 0 {
		c.Figures[len(c.Figures)-1].Note += fmt.Sprintf(", with %s before", figure.Thousands(before))
	}
	if f.bare {
		c.remark("these fetched no pillar")
	}
	if !sleepUntil(ctx, time.Now().Add(settleTime)) {
		return ctx.Err()
	}
	if err := f.memory(c); err != nil {
		return err
	}
	p, first := f.own.product, f.own.masters[0]
	for _, x := range []struct {
		name, tgt, tgtType string
		grains             bool // needs the minions' grains
		ask                func(context.Context, *masterProcess, ping) (int, time.Duration, error)
	}{
		{FigurePing(n), fleetPrefix + "*", "glob", false, p.ping},
		{FigureGrainPing(n), fleetGrain, "grain", true, p.ping},
		{FigureResolve(n), "G@" + fleetGrain + " and " + fleetPrefix + "*", "compound", true, p.resolve},
	} {
		if x.ask == nil || x.grains && f.bare {
			continue
		}
		err := f.median(ctx, b, x.name, c, func() (int, time.Duration, error) {
			return x.ask(ctx, first, ping{tgt: x.tgt, tgtType: x.tgtType, minions: n})
		})
		// that a master does not answer is a result
		if err != nil && p.compared && ctx.Err() == nil {
			b.say("%s: %v", x.name, err)
			why, _, _ := strings.Cut(err.Error(), ". ")
			c.add(x.name, 0, "", why)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unmeasured notes why figures of n minions are missing.
func (c *Column) unmeasured(n int, why error) {
	for _, name := range []string{FigureSignIn(n), FigureFleet(n), FigurePing(n)} {
		c.add(name, 0, "", why.Error())
	}
}

// pings is how often a job for all minions is measured, unless that takes longer than
// pingsPatience.
const (
	pings         = 3
	pingsPatience = 45 * time.Second
)

// median repeats a job for all minions, and notes the median time and the fewest answers.
func (f *fleet) median(ctx context.Context, b *bencher, name string, c *Column,
	once func() (answered int, took time.Duration, err error)) error {
	var took []time.Duration
	least := f.n
	for begun := time.Now(); len(took) < pings && (took == nil ||
		time.Since(begun) < pingsPatience); {
		b.progress.show("%s, %d of %d", name, len(took)+1, pings)
		n, d, err := once()
		if err != nil {
			return err
		}
		took, least = append(took, d), min(least, n)
	}
	note := ""
	if least < f.n {
		note = fmt.Sprintf("; only %d at worst", least)
	}
	c.addMedian(name, took, note)
	return ctx.Err()
}

// Functions of the simulated minions.
const (
	funLength = "bench.length" // returns the length of its argument
	funText   = "bench.text"   // returns a text of so many bytes
)

var fleetFunctions = map[string]simminion.Func{
	funLength: func(_ context.Context, c simminion.Call) (any, error) {
		text, ok := append(c.Args, nil)[0].(string)
		if !ok {
			return nil, errors.New("want a text")
		}
		return len(text), nil
	},
	funText: func(_ context.Context, c simminion.Call) (any, error) {
		n, ok := append(c.Args, nil)[0].(int64)
		if !ok || n < 0 || n > 1<<24 {
			return nil, errors.New("want a number of bytes")
		}
		return textOf(int(n)), nil
	},
}

// textOf returns a text of n bytes that hardly compresses, the same in each run.
func textOf(n int) string {
	raw := make([]byte, n)
	mathrand.NewChaCha8([32]byte{1}).Read(raw)
	return base64.StdEncoding.EncodeToString(raw)[:n]
}

// sizeName writes a number of bytes, in units of 1,000.
func sizeName(n int) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%g MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%g KB", float64(n)/1e3)
	}
	return figure.Plural(n, "byte")
}

// measureSize publishes a job with a large argument and a small return, and one with a small
// argument and a large return. A wrong return is an error.
func (f *fleet) measureSize(ctx context.Context, b *bencher, size int, c *Column) error {
	text := textOf(size)
	for _, x := range []struct {
		name, fun string
		arg, want any
	}{{FigureArgument, funLength, text, size}, {FigureAnswer, funText, size, text}} {
		want, err := value.Pack(x.want)
		if err != nil {
			return err
		}
		err = f.median(ctx, b, x.name, c, func() (int, time.Duration, error) {
			wrong := 0
			n, took, err := ping{tgt: fleetPrefix + "*", tgtType: "glob", minions: f.n}.publish(ctx,
				f.own.masters[0], x.fun, []any{x.arg}, func(r gather.Return) bool {
					if !bytes.Equal(r.Return, want) {
						wrong++
						return false
					}
					return true
				})
			if err == nil && wrong > 0 {
				err = fmt.Errorf("%d of %d minions returned a wrong value", wrong, f.n)
			}
			return n, took, err
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", x.fun, sizeName(size), err)
		}
	}
	return nil
}
