package auth

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	refusalTime   = time.Second // from the question to a refusal, give or take a quarter
	backEndTime   = 15 * time.Second
	maxWaiting    = 256 // attempts at a time, with those that wait for their refusal
	maxPerName    = 16  // attempts at a time with one name
	maxAtBackEnds = 16
)

var errBusy = fmt.Errorf("too many attempts at a time; %w", ErrRefused)

// guard bounds attempts and makes all refusals take the same time, so that nobody learns from it who exists, or guesses fast.
type guard struct {
	m       *metrics
	running chan struct{} // attempts that ask a back end

	mu      sync.Mutex // guards the rest
	slowest time.Duration
	n       int
	byName  map[string]int // back end and name to attempts
}

func newGuard(m *metrics) *guard {
	return &guard{m: m, running: make(chan struct{}, maxAtBackEnds), slowest: refusalTime, byName: make(map[string]int)}
}

// do runs one attempt. A refusal comes about a second after the call, later where back ends are slower; this call alone waits.
func (g *guard) do(ctx context.Context, eauth, user string, attempt func(context.Context) (Identity, error)) (Identity, error) {
	began := time.Now()
	leave, err := g.enter(eauth + "/" + shown(user))
	if err != nil {
		g.m.attempts.WithLabelValues(eauth, "busy").Inc()
		return Identity{}, err
	}
	defer leave()
	id, err := g.ask(ctx, attempt)
	took := time.Since(began)
	g.m.took.Observe(took.Seconds())
	switch {
	case err == nil:
		g.m.attempts.WithLabelValues(eauth, "confirmed").Inc()
		return id, nil
	case ctx.Err() != nil:
		return Identity{}, ctx.Err()
	case errors.Is(err, ErrRefused):
		g.m.attempts.WithLabelValues(eauth, "refused").Inc()
	default:
		g.m.attempts.WithLabelValues(eauth, "failed").Inc()
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	g.mu.Lock()
	g.slowest = max(g.slowest, min(took, backEndTime))
	least := g.slowest
	g.mu.Unlock()
	pause := time.NewTimer(least*3/4 + rand.N(least/2) - took)
	defer pause.Stop()
	select {
	case <-pause.C:
		return Identity{}, err
	case <-ctx.Done():
		return Identity{}, ctx.Err()
	}
}

// ask waits for its turn at the back ends, and bounds the answer's time.
func (g *guard) ask(ctx context.Context, attempt func(context.Context) (Identity, error)) (Identity, error) {
	limited, cancel := context.WithTimeout(ctx, backEndTime)
	defer cancel()
	select {
	case g.running <- struct{}{}:
		defer func() { <-g.running }()
	case <-limited.Done():
		return Identity{}, errors.New("no turn at the back ends in time")
	}
	return attempt(limited)
}

// enter counts an attempt, unless there are too many.
func (g *guard) enter(name string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n >= maxWaiting || g.byName[name] >= maxPerName {
		return nil, errBusy
	}
	g.n++
	g.byName[name]++
	g.m.waiting.Set(float64(g.n))
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.n--
		if g.byName[name]--; g.byName[name] == 0 {
			delete(g.byName, name)
		}
		g.m.waiting.Set(float64(g.n))
	}, nil
}
