package hosted

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"clustermaster/salt/function"
	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/pythonhost"
	"clustermaster/value"
)

// States are the state functions of this master, of the site and of Salt. A module of the site
// replaces a native one, and a native one Salt's.
type States struct {
	f      *Functions
	native orchestrate.Table
	owned  map[string]bool // the native modules
	site   *pythonhost.Site
	look   chan struct{} // holds a token while one run looks for grains

	mu     sync.Mutex // guards the fields below
	grains value.Map  // as Salt finds them
	until  time.Time  // when to look again
	forgot int        // how often the grains were forgotten
}

var (
	_ orchestrate.Binder = (*States)(nil)
	_ orchestrate.Bound  = (*states)(nil)
)

// grainsFor is how long the grains of the machine are used, because Salt takes a second for them.
const grainsFor = 5 * time.Minute

// States returns the state functions.
func (f *Functions) States(native orchestrate.Table) *States {
	s := &States{f: f, native: native, owned: map[string]bool{}, site: f.d.Folders.Site("states"),
		look: make(chan struct{}, 1)}
	for name := range native {
		module, _, _ := strings.Cut(name, ".")
		s.owned[module] = true
	}
	f.forgetStates, f.machine = s.forget, s.machine
	return s
}

func (s *States) forget() {
	s.site.Forget()
	s.forgetGrains()
}

func (s *States) forgetGrains() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
	s.forgot++
}

// Lookup implements orchestrate.Functions: it finds native functions only.
func (s *States) Lookup(name string) (orchestrate.Function, bool) { return s.native.Lookup(name) }

// Bind implements orchestrate.Binder. It starts no process before Python is needed.
func (s *States) Bind(ctx context.Context, who modules.Minion) orchestrate.Bound {
	return &states{s: s, ctx: ctx, who: who, known: map[string]*stateFunction{},
		instance: strconv.FormatUint(rand.Uint64(), 10)}
}

// states are the functions of one run, with one child that is made when Python is first needed.
type states struct {
	s   *States
	ctx context.Context // of the run
	// names the run in accumulator, a folder of cachedir in which file.accumulated keeps its texts
	instance string

	mu      sync.Mutex // guards the fields below; held while a function is described
	who     modules.Minion
	session *pythonhost.Session
	grains  value.Map // of the session
	known   map[string]*stateFunction
	reload  bool // before the next call
}

// stateFunction is a function in Python, or the reason why there is none.
type stateFunction struct {
	f       orchestrate.Function
	missing string
}

// Lookup implements orchestrate.Functions.
func (b *states) Lookup(name string) (orchestrate.Function, bool) {
	module, _, _ := strings.Cut(name, ".")
	if b.s.owned[module] && !b.s.site.Has(module) {
		return b.s.native.Lookup(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.known[name]
	if !ok {
		found = b.describe(name)
		b.known[name] = found
	}
	return found.f, found.missing == ""
}

// Why implements orchestrate.Bound.
func (b *states) Why(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.known[name]; found != nil {
		return found.missing
	}
	return ""
}

// Reload implements orchestrate.Bound.
func (b *states) Reload(who modules.Minion, grains bool) {
	if grains {
		b.s.forgetGrains()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.who, b.reload = who, true
	clear(b.known)
}

// Close implements orchestrate.Bound.
func (b *states) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != nil {
		b.session.Close()
		b.session = nil
		if dir := b.who.Opts.String("cachedir"); dir != "" {
			_ = os.Remove(filepath.Join(dir, "accumulator", b.instance)) // mostly there is none
		}
	}
}

// describe finds a function in Python.
func (b *states) describe(name string) *stateFunction {
	if err := b.s.f.available(); err != nil {
		return &stateFunction{missing: fmt.Sprintf("'%s' is not available: %s", name, err)}
	}
	session, err := b.open()
	if err != nil {
		return &stateFunction{missing: fmt.Sprintf("'%s' is not available: %s", name, err)}
	}
	ctx, cancel := context.WithTimeout(b.ctx, describeTimeout)
	defer cancel()
	all, err := session.Describe(ctx, pythonhost.State, name)
	d, ok := all[name]
	switch {
	case errors.Is(err, pythonhost.ErrUnknown), err == nil && !ok:
		text := fmt.Sprintf("'%s' is not available.", name)
		if err != nil {
			text = err.Error()
		}
		return &stateFunction{missing: text}
	case err != nil:
		return &stateFunction{missing: fmt.Sprintf("'%s' is not available: %s", name, err)}
	}
	f := orchestrate.Function{VarKwargs: d.VarKwargs,
		Wants: orchestrate.Wants{Running: d.Running, Lowstate: d.Lowstate}}
	for _, p := range d.Params {
		f.Params = append(f.Params, function.Param{Name: p.Name, Required: p.Required,
			Default: p.Default})
	}
	f.Run = func(ctx context.Context, c orchestrate.Call) (value.Map, error) {
		return b.run(ctx, name, f, c)
	}
	return &stateFunction{f: f}
}

// open returns the run's session, as of the last Reload.
func (b *states) open() (*pythonhost.Session, error) {
	if b.session != nil && !b.reload {
		return b.session, nil
	}
	grains, err := b.s.machine(b.ctx, b.who)
	if err != nil {
		return nil, err
	}
	b.grains, b.reload = grains, false
	if b.session == nil {
		b.session = b.start()
	} else {
		b.session.Reload(grains, b.who.Pillar)
	}
	return b.session, nil
}

func (b *states) start() *pythonhost.Session {
	test, _ := b.who.Opts.Get("test")
	return b.s.f.d.Host.States(pythonhost.Minion{ID: b.who.ID, Grains: b.grains,
		Pillar: b.who.Pillar, Saltenv: b.who.Opts.String("saltenv"), Pillarenv: b.who.Pillarenv,
		States: true, Opts: value.Map{{Key: "id", Value: b.who.ID}, {Key: "test", Value: test}}})
}

// machine returns the grains of state functions: those that Salt finds on this machine, and over
// them the master's own, which templates see.
func (s *States) machine(ctx context.Context, who modules.Minion) (value.Map, error) {
	select {
	case s.look <- struct{}{}:
		defer func() { <-s.look }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	grains, until, forgot := s.grains, s.until, s.forgot
	s.mu.Unlock()
	if time.Now().After(until) {
		session := s.f.d.Host.States(pythonhost.Minion{})
		defer session.Close()
		v, err := session.Call(ctx, pythonhost.Call{Kind: pythonhost.Grains, Fun: "grains.items"})
		if err != nil {
			return nil, fmt.Errorf("find the grains of this machine: %w", err)
		}
		grains, _ = v.(value.Map)
		s.mu.Lock()
		if s.grains = grains; s.forgot == forgot {
			s.until = time.Now().Add(grainsFor)
		}
		s.mu.Unlock()
	}
	return over(grains, who.Grains), nil
}

// Machine returns the grains of this machine for functions that run on it: own, and below them
// those that Salt finds, if it is installed.
func (f *Functions) Machine(ctx context.Context, own value.Map) value.Map {
	if f.machine == nil || f.available() != nil {
		return own
	}
	grains, err := f.machine(ctx, modules.Minion{Grains: own})
	if err != nil {
		f.d.Log.Error("functions run with the master's own grains only", "err", err)
		return own
	}
	return grains
}

// over returns a copy of a map with the pairs of another one in it.
func over(m, more value.Map) value.Map {
	out := append(value.Map{}, m...)
	at := make(map[any]int, len(out))
	for i, p := range out {
		at[p.Key] = i
	}
	for _, p := range more {
		if i, ok := at[p.Key]; ok {
			out[i].Value = p.Value
		} else {
			out = append(out, p)
		}
	}
	return out
}

// run calls a function. Parallel states have a child each, the others that of the run.
func (b *states) run(ctx context.Context, name string, f orchestrate.Function,
	c orchestrate.Call) (value.Map, error) {
	call := pythonhost.Call{Kind: pythonhost.State, Fun: name, Kwargs: given(f, c),
		State: &pythonhost.StateCall{Test: c.Test, Env: c.Env, JID: c.JID,
			Instance: b.instance, User: c.User, Umask: c.Umask, Low: c.Low, Running: c.Running,
			Lowstate: c.Lowstate}}
	b.mu.Lock()
	session, err := b.open()
	if err == nil && c.Beside {
		session = b.start()
		defer session.Close()
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	v, err := session.Call(ctx, call)
	var failed *pythonhost.Error
	if errors.As(err, &failed) && failed.Shown != "" {
		return nil, errors.New(strings.TrimSuffix(failed.Shown, "\n"))
	}
	if err != nil {
		return nil, err
	}
	m, _ := v.(value.Map)
	return m, nil
}

// given are the arguments without those that have their default value, for which Python may have
// one that can't be sent.
func given(f orchestrate.Function, c orchestrate.Call) value.Map {
	defaults := make(map[string]any, len(f.Params))
	for _, p := range f.Params {
		if !p.Required {
			defaults[p.Name] = p.Default
		}
	}
	out := value.Map{}
	for _, p := range c.Args {
		name, _ := p.Key.(string)
		if d, ok := defaults[name]; !ok || !reflect.DeepEqual(d, p.Value) {
			out = append(out, p)
		}
	}
	if reqs, ok := c.Low.Get("__reqs__"); ok && f.VarKwargs {
		out = append(out, value.Pair{Key: "__reqs__", Value: reqs})
	}
	return out
}
