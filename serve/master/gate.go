package master

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of waiting for a processor. A minion gives up after 5 s (its auth_timeout) and asks again.
// A stranger without an answer asks again after 10 s.
const (
	minionPatience   = 10 * time.Second
	strangerPatience = 3 * time.Second
	maxStrangers     = 4096 // that may wait
)

// errBusy says that no processor became free in time, or that too many sign-ins are waiting
// already.
var errBusy = errors.New("too many sign-ins at a time")

// gate bounds how many processors do the RSA operations of sign-ins: all sign-ins together use at
// most all processors, and those of strangers, whose key is not accepted, at most a share. Minions
// go before all waiting strangers.
type gate struct {
	waiting *prometheus.GaugeVec

	mu        sync.Mutex // guards all below
	free      int        // processors
	minions   lane
	strangers lane
}

// lane is one kind of sign-in.
type lane struct {
	name     string
	patience time.Duration
	room     int // how many may wait; 0: bounded only by the connections
	free     int // processors that it may still use, if as many are free
	// waiting sign-ins, the oldest first; closed when they get a processor
	queue []chan struct{}
}

// newGate makes a gate with this many processors, of which strangers get a share; 0 means half of
// them.
func newGate(processors, share int, m *metrics) *gate {
	if share <= 0 {
		share = max(1, processors/2)
	}
	share = min(share, processors)
	m.signInProcessors.WithLabelValues("minions").Set(float64(processors))
	m.signInProcessors.WithLabelValues("strangers").Set(float64(share))
	for _, who := range []string{"minions", "strangers"} {
		m.signInsWaiting.WithLabelValues(who) // 0 instead of missing until one waits
	}
	return &gate{
		waiting: m.signInsWaiting, free: processors,
		minions: lane{name: "minions", patience: minionPatience, free: processors},
		strangers: lane{name: "strangers", patience: strangerPatience, room: maxStrangers,
			free: share},
	}
}

// do calls f when a processor is free for it. If it does not call f it returns errBusy or ctx's
// error.
func (g *gate) do(ctx context.Context, stranger bool, f func() ([]byte, error)) ([]byte, error) {
	l := &g.minions
	if stranger {
		l = &g.strangers
	}
	if err := g.enter(ctx, l); err != nil {
		return nil, err
	}
	defer g.leave(l)
	return f()
}

func (g *gate) enter(ctx context.Context, l *lane) error {
	g.mu.Lock()
	if l.room > 0 && len(l.queue) >= l.room {
		g.mu.Unlock()
		return errBusy
	}
	turn := make(chan struct{})
	l.queue = append(l.queue, turn)
	g.admit()
	g.mu.Unlock()
	select {
	case <-turn: // at once in most cases
		return nil
	default:
	}
	g.waiting.WithLabelValues(l.name).Inc()
	defer g.waiting.WithLabelValues(l.name).Dec()
	patience := time.NewTimer(l.patience)
	defer patience.Stop()
	err := errBusy
	select {
	case <-turn:
		return nil
	case <-patience.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(l.queue, turn); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		return err
	}
	return nil // it got its turn just now
}

func (g *gate) leave(l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	l.free++
	g.admit()
}

// admit gives free processors to waiting sign-ins. The caller holds mu.
func (g *gate) admit() {
	for _, l := range []*lane{&g.minions, &g.strangers} {
		for len(l.queue) > 0 && l.free > 0 && g.free > 0 {
			close(l.queue[0])
			l.queue = slices.Delete(l.queue, 0, 1)
			l.free--
			g.free--
		}
	}
}
