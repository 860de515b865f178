package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/salt/pythonhost"
	"clustermaster/value"
)

// cluster knows the leader, as a majority would.
type cluster struct {
	mu   sync.Mutex
	id   string
	term uint64
}

func (c *cluster) elect(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id, c.term = id, c.term+1
}

// node is one master's view of it.
type node struct {
	c  *cluster
	id string

	mu     sync.Mutex
	cut    bool // it reaches no other master and believes its last knowledge
	leads  bool
	frozen time.Time // it stands still until then
}

func (n *node) set(f func()) { n.mu.Lock(); defer n.mu.Unlock(); f() }

func (n *node) stand() {
	n.mu.Lock()
	until := n.frozen
	n.mu.Unlock()
	time.Sleep(time.Until(until))
}

func (n *node) IsLeader() bool {
	n.stand()
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.cut {
		n.leads = n.c.id == n.id
	}
	return n.leads
}

func (n *node) ConfirmLead(ctx context.Context) (uint64, error) {
	n.stand()
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	if cut {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.id != n.id {
		return 0, errors.New("another one leads")
	}
	return n.c.term, nil
}

// child stands for a process of the Python host. It ends with its context or its lease.
type child struct {
	w     *world
	id    string
	lease chan time.Duration
	guard Guard
}

// world counts which engines run where.
type world struct {
	mu     sync.Mutex
	runs   map[string]int // by master
	most   int
	starts []time.Time
	end    func(starts int) error // what an engine does; nil: it keeps running
	begun  func(master string)    // called while an engine is started
	child  *child
}

func (c *child) Call(ctx context.Context, call pythonhost.Call) (any, error) {
	w := c.w
	w.mu.Lock()
	begun := w.begun
	w.mu.Unlock()
	if begun != nil {
		begun(c.id)
	}
	if call.Started != nil {
		if err := call.Started(); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	w.child = c
	w.runs[c.id]++
	w.starts = append(w.starts, time.Now())
	sum, end, starts := 0, w.end, len(w.starts)
	for _, n := range w.runs {
		sum += n
	}
	w.most = max(w.most, sum)
	w.mu.Unlock()
	defer func() { w.mu.Lock(); w.runs[c.id]--; w.mu.Unlock() }()
	if end != nil {
		return nil, end(starts)
	}
	lease := time.NewTimer(time.Hour)
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case d := <-c.lease:
			lease.Reset(d)
		case <-lease.C:
			return nil, errors.New("its lease is over")
		}
	}
}

func (c *child) Lease(d time.Duration) bool { c.lease <- d; return true }
func (c *child) Close()                     {}

func (w *world) on() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, id := range []string{"a", "b", "c"} {
		if n := w.runs[id]; n > 0 {
			out = append(out, fmt.Sprintf("%s%d", id, n))
		}
	}
	return strings.Join(out, " ")
}

func (w *world) engines(n *node, alone bool, log *slog.Logger, all ...Engine) *Engines {
	return New(all, Deps{Lead: n, Alone: alone, ID: n.id, Log: log,
		Extensions: func() string { return "same" },
		Session: func(g Guard) Session {
			return &child{w: w, id: n.id, guard: g, lease: make(chan time.Duration, 100)}
		}})
}

// TestOneAtATime moves the lead, cuts the leader off, and freezes it. An engine runs where the
// leader is, and never on two masters at once.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, w := &cluster{}, &world{runs: map[string]int{}}
		nodes := map[string]*node{}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, id := range []string{"a", "b", "c"} {
			nodes[id] = &node{c: c, id: id}
			e := w.engines(nodes[id], false, nil, Engine{Name: "x", Module: "x"})
			all.Go(func() { _ = e.Run(ctx) })
		}
		wait := func(d time.Duration, want, why string) {
			t.Helper()
			time.Sleep(d)
			if got := w.on(); got != want {
				t.Errorf("%s: it runs on %q, want %q", why, got, want)
			}
		}
		wait(time.Minute, "", "nobody leads")
		c.elect("a")
		wait(takeover-time.Second, "", "a lease of before may hold")
		wait(2*time.Second, "a1", "a leads")
		wait(time.Hour, "a1", "a goes on")
		c.elect("b")
		wait(beat+time.Millisecond, "", "a has heard of b")
		wait(takeover+time.Second, "b1", "b leads")
		first := w.child
		if err := first.guard(t.Context()); err != nil {
			t.Errorf("the leader's engine may not order: %v", err)
		}

		nodes["b"].set(func() { nodes["b"].cut = true })
		wait(time.Second, "b1", "b is cut off and holds its lease")
		c.elect("c")
		if err := first.guard(t.Context()); err == nil {
			t.Error("an engine of a master that is cut off may order")
		}
		wait(leaseTime, "", "b's lease is over")
		wait(takeover, "c1", "c leads")
		nodes["b"].set(func() { nodes["b"].cut = false })

		second := w.child
		nodes["c"].set(func() { nodes["c"].frozen = time.Now().Add(time.Hour) })
		wait(time.Second, "c1", "c stands still, its engine does not")
		c.elect("a")
		wait(takeover+2*beat, "a1", "a starts it after c's lease")
		wait(2*time.Hour, "a1", "c goes on")
		if err := second.guard(t.Context()); err == nil {
			t.Error("an engine of a master that stood still may order")
		}
		c.elect("b")
		c.elect("a")
		wait(beat+time.Millisecond, "", "a leads in another term: b may have begun")
		wait(takeover+time.Second, "a1", "and starts it again")

		c.elect("b")
		for w.on() != "b1" {
			time.Sleep(time.Millisecond)
		}
		nodes["b"].set(func() { nodes["b"].frozen = time.Now().Add(time.Hour) })
		c.elect("a")
		wait(takeover+2*beat, "a1", "a starts it; b stood still as soon as it had started its own")

		stood := make(chan struct{})
		w.mu.Lock()
		w.begun = func(master string) {
			if master == "c" {
				nodes["c"].set(func() { nodes["c"].frozen = time.Now().Add(time.Hour) })
				close(stood)
				nodes["c"].stand()
			}
		}
		w.mu.Unlock()
		c.elect("c")
		<-stood
		c.elect("a")
		wait(takeover+2*beat, "a1", "a starts it; c stood still while it started its own")
		wait(2*time.Hour, "a1", "c goes on")
		stop()
		all.Wait()
		if w.most != 1 {
			t.Errorf("it ran %d times at once", w.most)
		}
	})
}

// TestRestarts has engines that end. The pauses grow, and start over after a steady run.
func TestRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, w := &cluster{id: "a", term: 1}, &world{runs: map[string]int{}}
		w.end = func(starts int) error {
			switch starts {
			case 9:
				time.Sleep(2 * steady)
			case 2:
				return nil
			}
			return &pythonhost.Error{Class: "ValueError", Text: "it fell", File: "/x.py"}
		}
		var text strings.Builder
		e := w.engines(&node{c: c, id: "a"}, true, slog.New(slog.NewTextHandler(&text, nil)),
			Engine{Name: "x", Module: "x"})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		s := e.Status()[0]
		if s.State != Waiting || s.Error != "it fell" && !strings.Contains(s.Error, "it fell") {
			t.Errorf("state %+v", s)
		}
		stop()
		<-done
		var pauses []time.Duration
		for i := 1; i < len(w.starts); i++ {
			pauses = append(pauses, w.starts[i].Sub(w.starts[i-1]))
		}
		sec := time.Second
		want := []time.Duration{sec, 2 * sec, 4 * sec, 8 * sec, 16 * sec, 32 * sec, maxPause, maxPause,
			2*steady + firstPause, 2 * sec}
		if len(pauses) < len(want) || !reflect.DeepEqual(pauses[:len(want)], want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
		if strings.Count(text.String(), "engine ended by itself") != 1 ||
			!strings.Contains(text.String(), "ValueError: it fell") ||
			!strings.Contains(text.String(), "engine=x") {
			t.Errorf("log: %s", &text)
		}
	})
}

// TestMissing: an engine without its module logs one line, and starts once the module exists.
func TestMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{runs: map[string]int{}}
		var mu sync.Mutex
		extensions, there := "one", false
		w.end = func(int) error {
			mu.Lock()
			defer mu.Unlock()
			if there {
				return errors.New("it was there")
			}
			return fmt.Errorf("'x.start' is not available: %w", pythonhost.ErrUnknown)
		}
		var text strings.Builder
		e := w.engines(&node{c: &cluster{}, id: "a"}, false,
			slog.New(slog.NewTextHandler(&text, nil)),
			Engine{Name: "x", Module: "x", Everywhere: true})
		e.d.Extensions = func() string { mu.Lock(); defer mu.Unlock(); return extensions }
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Hour)
		if len(w.starts) != 1 || e.Status()[0].State != Missing {
			t.Errorf("%d tries, state %+v", len(w.starts), e.Status())
		}
		mu.Lock()
		extensions = "two"
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		extensions, there = "three", true
		mu.Unlock()
		time.Sleep(2 * lookAgain)
		stop()
		<-done
		if strings.Count(text.String(), "engine not started") != 1 ||
			!strings.Contains(text.String(), "it was there") {
			t.Errorf("log: %s", &text)
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	m := func(kv ...any) (out value.Map) {
		for i := 0; i < len(kv); i += 2 {
			out = append(out, value.Pair{Key: kv[i], Value: kv[i+1]})
		}
		return out
	}
	options := m("port", int64(1))
	for _, tt := range []struct {
		option any
		want   []Engine
	}{
		{nil, nil},
		{[]any{}, nil},
		{[]any{"one", m("two", options), m("three", nil), m()},
			[]Engine{{Name: "one", Module: "one"}, {Name: "two", Module: "two", Options: options},
				{Name: "three", Module: "three"}}},
		{m("one", m("engine_module", "two", "port", int64(1)), "every", nil),
			[]Engine{{Name: "one", Module: "two", Options: options},
				{Name: "every", Module: "every", Everywhere: true}}},
		{[]any{m("one", nil, "token", "x"), "reactor", m("x", m("engine_module", "reactor"))},
			[]Engine{{Name: "one", Module: "one"}}},
	} {
		if got := Parse(tt.option, []string{"every"}); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%v: %v, want %v", tt.option, got, tt.want)
		}
	}
}
