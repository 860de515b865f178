package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lead knows who leads the cluster. cluster.Node implements it.
type Lead interface {
	// IsLeader reports whether this master believes that it leads.
	IsLeader() bool
	// ConfirmLead asks a majority whether this master leads, and returns the term in which it does.
	ConfirmLead(ctx context.Context) (term uint64, err error)
}

// The leader holds a lease. It asks a majority every beat; each yes extends the lease to leaseTime
// after the moment the question was sent. A new leader waits for takeover before it starts engines,
// so that the old leader's lease has run out. That holds even if the old leader stands still: its
// fork server ends engines whose lease is not extended.
const (
	beat      = 500 * time.Millisecond
	leaseTime = 3 * time.Second
	takeover  = 5 * time.Second
	// confirmTime bounds one question.
	confirmTime = time.Second
	// freshTime is how long a yes also answers for an engine's orders.
	freshTime = 200 * time.Millisecond
)

// reign is one term in which this master leads.
type reign struct {
	e    *Engines
	term uint64
	end  func() // stops its engines and waits for their end

	mu    sync.Mutex
	asked time.Time // when the last question with a yes was sent
}

// follow runs the leader's engines while this master leads.
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

// step asks who leads. It returns the reign that continues, or nil.
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
			return held // a majority may still answer before the lease ends
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
		e.log.Info("engines stopped: this master no longer leads", "term", held.term)
	}
	return nil
}

// begin starts the leader's engines, once the lease of an earlier leader has run out.
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

// good reports whether the lease holds. Engines of every master need none: their reign is nil.
func (g *reign) good() bool {
	return g == nil || g.e.d.Alone || time.Since(g.since()) < leaseTime
}

// longer notes that this master led at a time, and extends its engines' leases.
func (g *reign) longer(at time.Time) {
	g.mu.Lock()
	g.asked = at
	g.mu.Unlock()
	for _, r := range g.e.all {
		if !r.Everywhere {
			_ = g.lease(r) // one that isn't there gets its lease when it is started
		}
	}
}

// lease lets an engine run for the rest of the lease. Without one it may not begin.
func (g *reign) lease(r *run) error {
	if g == nil || g.e.d.Alone {
		return nil
	}
	if left := leaseTime - time.Since(g.since()); left <= 0 || !r.lease(left) {
		return errNoLease
	}
	return nil
}

var (
	errOver    = errors.New("the engine was stopped")
	errNoLease = errors.New("this master's lease ran out while the engine was being started")
)

// guard returns the Guard for one run of an engine, which ends with life. Engines of every master
// have no guard (nil).
func (g *reign) guard(life context.Context, name string) Guard {
	if g == nil {
		return nil
	}
	return func(ctx context.Context) error {
		if life.Err() != nil {
			return fmt.Errorf("order of engine %s refused: %w", name, errOver)
		}
		if g.e.d.Lead.IsLeader() && time.Since(g.since()) < freshTime {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, confirmTime)
		defer cancel()
		began := time.Now()
		term, err := g.e.d.Lead.ConfirmLead(ctx)
		if err != nil || term != g.term {
			return fmt.Errorf("order of engine %s refused: %s no longer leads", name,
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
