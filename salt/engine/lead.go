package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lead tells about the lead of the cluster; cluster.Node is one.
type Lead interface {
	// IsLeader says whether this master believes that it leads.
	IsLeader() bool
	// ConfirmLead asks a majority whether this master leads, and returns the term in which it does.
	ConfirmLead(ctx context.Context) (term uint64, err error)
}

// A master that leads holds a lease for leaseTime from the moment at which it began to ask a
// majority, and asks every beat. Another one that comes to lead starts engines only after takeover,
// when the lease of the one before has run out, also where that one stands still: fork servers end
// engines whose lease is not made longer.
const (
	beat      = 500 * time.Millisecond
	leaseTime = 3 * time.Second
	takeover  = 5 * time.Second
	// confirmTime bounds one question.
	confirmTime = time.Second
	// freshTime is how long an answer is good enough for an order of an engine.
	freshTime = 200 * time.Millisecond
)

// reign is the time in which this master leads in one term.
type reign struct {
	e    *Engines
	term uint64
	end  func() // stops its engines, and returns when they have ended

	mu    sync.Mutex
	asked time.Time // when the last question began that was answered well
}

// follow runs the engines that are the leader's while this master leads.
func (e *Engines) follow(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var held *reign
	for {
		held = e.step(ctx, held)
		select {
		case <-tick.C:
		case <-ctx.Done():
			if held != nil {
				held.end()
			}
			return
		}
	}
}

// step asks who leads, and returns the reign that goes on; nil for none.
func (e *Engines) step(ctx context.Context, held *reign) *reign {
	if !e.d.Lead.IsLeader() {
		return e.stop(held)
	}
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, confirmTime)
	term, err := e.d.Lead.ConfirmLead(asking)
	cancel()
	if held != nil {
		switch {
		case err == nil && term == held.term:
			held.longer(began)
			return held
		case err != nil && time.Since(held.since()) < leaseTime:
			return held // a majority may still answer
		}
		e.stop(held)
	}
	if err != nil || ctx.Err() != nil {
		return nil
	}
	return e.begin(ctx, term, began)
}

func (e *Engines) stop(held *reign) *reign {
	if held != nil {
		held.end()
		e.log.Info("engines are stopped: this master does not lead any more", "term", held.term)
	}
	return nil
}

// begin starts the leader's engines, after the lease of a master that led before.
func (e *Engines) begin(ctx context.Context, term uint64, asked time.Time) *reign {
	ctx, cancel := context.WithCancel(ctx)
	held := &reign{e: e, term: term, asked: asked}
	var all sync.WaitGroup
	held.end = func() { cancel(); all.Wait() }
	for _, r := range e.all {
		if r.Everywhere {
			continue
		}
		all.Go(func() {
			if !e.d.Alone {
				sleep(ctx, takeover)
			}
			r.keep(ctx, held)
		})
	}
	return held
}

func (g *reign) since() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// good says whether the lease holds; a nil reign is that of engines that need none.
func (g *reign) good() bool {
	return g == nil || g.e.d.Alone || time.Since(g.since()) < leaseTime
}

// longer notes that this master led at a time, and lets engines run on.
func (g *reign) longer(at time.Time) {
	g.mu.Lock()
	g.asked = at
	g.mu.Unlock()
	if g.e.d.Alone {
		return
	}
	for _, r := range g.e.all {
		if left := leaseTime - time.Since(at); !r.Everywhere && left > 0 {
			r.lease(left)
		}
	}
}

var errOver = errors.New("the engine was stopped")

// guard makes what allows or refuses the orders of one run of an engine, which ends with life; nil
// for an engine of every master.
func (g *reign) guard(life context.Context, name string) Guard {
	if g == nil {
		return nil
	}
	return func(ctx context.Context) error {
		if life.Err() != nil {
			return fmt.Errorf("what engine %s orders is refused: %w", name, errOver)
		}
		if g.e.d.Lead.IsLeader() && time.Since(g.since()) < freshTime {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, confirmTime)
		defer cancel()
		began := time.Now()
		term, err := g.e.d.Lead.ConfirmLead(ctx)
		if err != nil || term != g.term {
			return fmt.Errorf("what engine %s orders is refused: %s does not lead any more", name,
				g.e.d.ID)
		}
		g.mu.Lock()
		if began.After(g.asked) {
			g.asked = began
		}
		g.mu.Unlock()
		return nil
	}
}
