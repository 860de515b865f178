package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/tools/figure"
	"clustermaster/tools/simminion"
	"clustermaster/value"
)

// fleetPrefix begins the ids of the fleet.
const fleetPrefix = "sim"

// fleetGrain is a grain of every minion in the fleet.
const fleetGrain = "os:Simulated"

// fleetReleases send different requests at their start, so the fleet has some of each.
var fleetReleases = []string{"3006.28", "3007.15", "3008.3"}

const (
	// for all minions to start: a request that was cut off costs one 60 s, as with libzmq; and
	fleetPatience = 150 * time.Second
	// for each: Salt's own master makes few pillars per second
	fleetPatienceEach = 200 * time.Millisecond
	// in a comparison, so that it ends
	fleetMost = 3 * time.Minute
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

// fleet is a growing number of simulated minions of a set of masters.
type fleet struct {
	own   *group
	files int            // open connections allowed, the minions' or the master's
	key   *simminion.Key // shared by all
	n     int            // minions that have started
	keep  int            // of these have their own request connection
	slots chan struct{}  // a place for each request connection of the others
	// new minions fetch no pillar, so the master has no grains of theirs
	bare  bool
	run   context.Context    // the life of all minions: grow starts it, stop ends it
	end   context.CancelFunc // of run
	lives sync.WaitGroup
}

// newFleet makes a fleet without minions.
func (b *bencher) newFleet(ctx context.Context, o *group) (*fleet, error) {
	files, err := openFilesLimit()
	if err != nil {
		return nil, err
	}
	f := &fleet{own: o, files: files, key: b.key, slots: make(chan struct{}, requestSlots)}
	f.run, f.end = context.WithCancel(context.WithoutCancel(ctx))
	return f, nil
}

// grow starts minions until there are n, and waits until all have fired their start event. took is
// the time from the first sign-in until then.
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
	defer b.progress.follow("start simulated minions", func() string {
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
		return 0, fmt.Errorf("did not finish in %.0f s: %s of %s started", patience.Seconds(),
			figure.Thousands(f.n+more.Started()), figure.Plural(n, "minion"))
	case err != nil:
		return 0, fmt.Errorf("start simulated minions: %w", err)
	}
	f.n = n
	return time.Since(begun), nil
}

// more makes the missing minions up to n, spread over the masters. All have a publish connection;
// as many as the open files allow have their own request connection.
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
	out := &simminion.Fleet{Starting: FleetStarting}
	for i := f.n; i < n; i++ {
		c := simminion.Config{
			ID: fmt.Sprintf("%s%d", fleetPrefix, i+1), Key: f.key,
			Master: f.own.addrs[i%len(f.own.addrs)], LocalAddr: f.own.source(i),
			Release: fleetReleases[i%len(fleetReleases)], Functions: fleetFunctions,
			NoPillar: f.bare,
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

// stop ends all minions.
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

// measure grows the fleet to n and measures the memory of the masters when they are idle, and jobs
// for all minions. Jobs that not all minions answer give a note.
func (f *fleet) measure(ctx context.Context, b *bencher, n int, c *Column) error {
	if n > 0 {
		before := f.n
		took, err := f.grow(ctx, b, n)
		if err != nil {
			return err
		}
		note := figure.Number(float64(n-before)/took.Seconds()) + " a second"
		if before > 0 {
			note += fmt.Sprintf(", with %s before", figure.Thousands(before))
		}
		if f.bare {
			note += "; these fetched no pillar"
		}
		c.add(FigureSignIn(n), took.Seconds(), "s", note)
		if !sleepUntil(ctx, time.Now().Add(settleTime)) {
			return ctx.Err()
		}
	}
	memory, err := f.own.memory()
	if err != nil {
		return err
	}
	c.addMemory(FigureFleet(n), memory, f.note())
	for _, x := range []struct{ name, tgt, tgtType string }{
		{FigurePing(n), fleetPrefix + "*", "glob"}, {FigureGrainPing(n), fleetGrain, "grain"},
	} {
		if n == 0 || f.bare && x.tgtType == "grain" {
			continue // nobody answers, or the master has no grains
		}
		p := ping{tgt: x.tgt, tgtType: x.tgtType, minions: n}
		if err := f.median(ctx, b, x.name, c, func() (int, time.Duration, error) {
			return f.own.product.ping(ctx, f.own.masters[0], p)
		}); err != nil {
			return err
		}
	}
	return nil
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

// sizeName writes a size of jobs, in KB or MB of 1,000.
func sizeName(kb int) string {
	if kb >= 1000 {
		return fmt.Sprintf("%g MB", float64(kb)/1000)
	}
	return fmt.Sprintf("%d KB", kb)
}

// measureSize publishes a job with a large argument and a small return, and one with a small
// argument and a large return. A wrong return is an error.
func (f *fleet) measureSize(ctx context.Context, b *bencher, c *Column) error {
	text := textOf(c.Bytes)
	for _, x := range []struct {
		name, fun string
		arg, want any
	}{{FigureArgument, funLength, text, c.Bytes}, {FigureAnswer, funText, c.Bytes, text}} {
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
			return fmt.Errorf("%s: %w", x.fun, err)
		}
	}
	return nil
}
