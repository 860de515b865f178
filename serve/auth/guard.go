package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	refusalTime = time.Second // of a refusal; whole multiples of it if back ends are slower
	backEndTime = 15 * time.Second

	maxWaiting    = 256 // concurrent attempts
	forConfirmed  = 64  // of those, kept free for users confirmed from the same source before
	maxPerSource  = 32  // concurrent, except of users confirmed before
	maxPerName    = 16  // concurrent, except of users confirmed before
	maxPerPair    = 8   // concurrent, from one source with one name
	maxAtBackEnds = 16
	maxOfSource   = 8 // at the back ends

	// attempts of one source with one name once it was confirmed; others go one by one
	confirmedAtOnce = 4
	longestPause    = 4 * time.Second
	freeFailures    = 3 // before the pause grows

	longestWait = longestPause + 3*time.Second/2 // of an attempt for its turn
	forgetAfter = time.Minute

	maxRemembered = 4096 // sources, names, pairs, and pairs that were confirmed
)

var errBusy = fmt.Errorf("too many attempts at a time; %w", ErrRefused)

// guard bounds attempts and makes refusals take the same time, so that an attacker can't guess
// fast, learn from the time which users exist, or keep others from authenticating. One source may
// try one name once a second, and after failures less and less often. A user confirmed from a
// source before can authenticate from there whatever other sources do.
type guard struct {
	m       *metrics
	running chan struct{} // one slot for each attempt that asks a back end

	mu        sync.Mutex // guards the rest
	n         int
	sources   map[string]*party
	names     map[string]*party // back end and name
	pairs     map[pair]*tries
	confirmed map[pair]time.Time
	slow      map[string]*slowest // by back end
}

// pair is a source of attempts with the back end and name that it tries.
type pair struct{ source, name string }

// tries are the attempts of a pair.
type tries struct {
	pair
	turn   chan struct{}
	n      int // concurrent attempts
	paused int // turns held after failures
	known  bool
	failed int
	at     time.Time // of the last failure
}

// party is a source, or a name.
type party struct {
	n        int // concurrent attempts
	running  chan struct{}
	failures allowance
}

func newGuard(m *metrics) *guard {
	return &guard{
		m: m, running: make(chan struct{}, maxAtBackEnds), sources: map[string]*party{},
		names: map[string]*party{}, pairs: map[pair]*tries{},
		confirmed: map[pair]time.Time{}, slow: map[string]*slowest{},
	}
}

// do runs one attempt of a source. A refusal comes a second after the back end was asked, or some
// seconds if back ends are slower.
func (g *guard) do(ctx context.Context, source, eauth, user string,
	attempt func(context.Context) (Identity, error)) (Identity, error) {
	t, err := g.enter(pair{source, eauth + "/" + shown(user)})
	if err != nil {
		g.m.attempts.WithLabelValues(eauth, "busy").Inc()
		return Identity{}, err
	}
	defer g.leave(t)
	patience := time.NewTimer(longestWait)
	defer patience.Stop()
	select {
	case t.turn <- struct{}{}:
	case <-patience.C: // the caller may be gone; later callers get their turn
		g.m.attempts.WithLabelValues(eauth, "busy").Inc()
		return Identity{}, errBusy
	case <-ctx.Done():
		return Identity{}, ctx.Err()
	}
	began := time.Now()
	id, asked, err := g.ask(ctx, t, attempt)
	if err == nil {
		g.confirm(t)
		<-t.turn
		g.m.attempts.WithLabelValues(eauth, "confirmed").Inc()
		return id, nil
	}
	if asked == 0 { // nothing was guessed
		<-t.turn
		if ctx.Err() != nil {
			return Identity{}, ctx.Err()
		}
		g.m.attempts.WithLabelValues(eauth, "failed").Inc()
		return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	// A caller that hangs up has still guessed: its next attempt waits as long.
	g.pause(t, began)
	switch {
	case ctx.Err() != nil:
		return Identity{}, ctx.Err()
	case errors.Is(err, ErrRefused):
		g.m.attempts.WithLabelValues(eauth, "refused").Inc()
	default:
		g.m.attempts.WithLabelValues(eauth, "failed").Inc()
		asked = 0 // says nothing about how long refusals take
		err = fmt.Errorf("%w: %w", ErrRefused, err)
	}
	answer := time.NewTimer(time.Until(began.Add(g.answerAfter(eauth, asked, time.Since(began)))))
	defer answer.Stop()
	select {
	case <-answer.C:
		return Identity{}, err
	case <-ctx.Done():
		return Identity{}, ctx.Err()
	}
}

// ask waits for a turn at the back ends, and bounds the time of the answer. Asked is how long the
// answer took; 0: no back end was asked.
func (g *guard) ask(ctx context.Context, t *tries,
	attempt func(context.Context) (Identity, error)) (id Identity, asked time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, backEndTime)
	defer cancel()
	for _, turns := range []chan struct{}{g.turnsOf(t.source), g.running} {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-limited.Done():
			return Identity{}, 0, errors.New("the back ends were busy for too long")
		}
	}
	began := time.Now()
	id, err = attempt(limited)
	asked = max(time.Since(began), 1)
	g.m.took.Observe(asked.Seconds())
	return id, asked, err
}

func (g *guard) turnsOf(source string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources[source].running
}

// enter counts an attempt unless there are too many.
func (g *guard) enter(p pair) (*tries, error) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	_, known := g.confirmed[p]
	source, name, t := g.party(g.sources, p.source, now), g.party(g.names, p.name, now), g.tries(p,
		known, now)
	switch {
	case t == nil || g.n >= maxWaiting || t.n >= maxPerPair:
		return nil, errBusy
	case known:
	case g.n >= maxWaiting-forConfirmed || source.n >= maxPerSource || name.n >= maxPerName,
		source.failures.spent(now) || name.failures.spent(now):
		return nil, errBusy
	}
	g.n++
	source.n++
	name.n++
	t.n++
	g.m.waiting.Set(float64(g.n))
	return t, nil
}

// leave ends an attempt that enter counted.
func (g *guard) leave(t *tries) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	g.sources[t.source].n--
	g.names[t.name].n--
	t.n--
	g.forget(t)
	g.m.waiting.Set(float64(g.n))
}

// forget drops tries without anything to remember. g.mu is held.
func (g *guard) forget(t *tries) {
	if t.idle() && t.failed == 0 {
		delete(g.pairs, t.pair)
	}
}

func (t *tries) idle() bool { return t.n == 0 && t.paused == 0 }

// confirm remembers a success.
func (g *guard) confirm(t *tries) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.failed = 0
	if _, known := g.confirmed[t.pair]; !known && len(g.confirmed) >= maxRemembered {
		oldest := t.pair
		for p, at := range g.confirmed {
			if at.Before(g.confirmed[oldest]) || oldest == t.pair {
				oldest = p
			}
		}
		delete(g.confirmed, oldest)
	}
	g.confirmed[t.pair] = time.Now()
}

// pause notes the failure of an attempt that began then, and holds its turn for a second, or longer
// after several failures.
func (g *guard) pause(t *tries, began time.Time) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	t.failed++
	t.at = now
	t.paused++
	g.sources[t.source].failures.take(now)
	g.names[t.name].failures.take(now)
	length := min(refusalTime<<max(0, min(t.failed-freeFailures, 8)), longestPause)
	time.AfterFunc(max(0, began.Add(length).Sub(now)), func() {
		<-t.turn
		g.mu.Lock()
		defer g.mu.Unlock()
		t.paused--
		g.forget(t)
	})
}

// party finds or makes the entry of a source or name. g.mu is held.
func (g *guard) party(all map[string]*party, name string, now time.Time) *party {
	p := all[name]
	if p == nil {
		makeRoom(all, func(p *party) bool { return p.n == 0 },
			func(p *party) bool { return p.failures.full(now) })
		p = &party{running: make(chan struct{}, maxOfSource)}
		all[name] = p
	}
	return p
}

// makeRoom removes the entries without anything to remember once there are maxRemembered, and then
// any entry that is not in use.
func makeRoom[K comparable, V any](all map[K]V, idle, void func(V) bool) {
	if len(all) < maxRemembered {
		return
	}
	maps.DeleteFunc(all, func(_ K, v V) bool { return idle(v) && void(v) })
	for k, v := range all {
		if len(all) < maxRemembered {
			return
		}
		if idle(v) {
			delete(all, k)
		}
	}
}

// tries finds or makes the entry of a pair. It returns nil for a stranger if too many are in use.
// g.mu is held.
func (g *guard) tries(p pair, known bool, now time.Time) *tries {
	t := g.pairs[p]
	if t != nil {
		if now.Sub(t.at) > forgetAfter {
			t.failed = 0
		}
		if !t.idle() || t.known == known {
			return t
		}
	} else {
		makeRoom(g.pairs, (*tries).idle, func(t *tries) bool { return now.Sub(t.at) > forgetAfter })
		if len(g.pairs) >= maxRemembered && !known {
			return nil
		}
	}
	width := 1
	if known {
		width = confirmedAtOnce
	}
	next := &tries{pair: p, known: known, turn: make(chan struct{}, width)}
	if t != nil {
		next.failed, next.at = t.failed, t.at
	}
	g.pairs[p] = next
	return next
}
