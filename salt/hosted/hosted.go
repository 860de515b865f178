package hosted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/render"
	"clustermaster/value"
)

// Answered are the execution functions that the master itself runs when Python code calls them:
// Salt's own would read folders that are empty here, or use a port that takes no orders.
var Answered = []string{
	"data.cas", "data.clear", "data.dump", "data.get", "data.has_key", "data.items", "data.keys",
	"data.load", "data.pop", "data.set",
	"data.update", "data.values", "mine.get", "publish.full_data", "publish.publish",
	"publish.runner", "saltutil.runner", "saltutil.wheel",
}

// Deps is what the functions use.
type Deps struct {
	Native *modules.Modules
	Host   *pythonhost.Host
	// Find returns the interpreter with Salt, or an error with the reason why there is none.
	Find    func() (string, error)
	Folders Folders // of the site's own modules
	// Changed is called when a runner may have changed the site's modules; may be nil.
	Changed func()
	Engines func() value.Map // name to its state
	// SSHTimeout limits a call of salt-ssh, by a runner or a state.
	SSHTimeout time.Duration
	Log        *slog.Logger
}

// Functions are the execution modules of this master and of Salt. They are safe for concurrent use.
type Functions struct {
	d                Deps
	modules, pillars *pythonhost.Site // the site's own
	// Runners and Wheels are the runner and the wheel functions of the site and of Salt.
	Runners, Wheels *Runners
	SSH             SSH
	staged          stages
	// Of the states, nil without them: forgets what is known of their functions, and finds grains.
	forgetStates func()
	machine      func(ctx context.Context, who modules.Minion) (value.Map, error)
}

// New makes the functions.
func New(d Deps) *Functions {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	f := &Functions{d: d, modules: d.Folders.Site("modules"), pillars: d.Folders.Site("pillar")}
	f.Runners = &Runners{Host: d.Host, Kind: pythonhost.Runner, Available: f.available,
		Site: d.Folders.Site("runners"), Log: d.Log,
		Limits: map[string]Limit{"ssh.cmd": {d.SSHTimeout, sshTimeoutOption}}}
	f.SSH = SSH{Host: d.Host, Available: f.available, Timeout: d.SSHTimeout}
	f.Wheels = &Runners{Host: d.Host, Kind: pythonhost.Wheel, Available: f.available,
		Site: d.Folders.Site("wheel"), Log: d.Log}
	return f
}

// available returns why there is no interpreter with Salt, or nil if there is one.
func (f *Functions) available() error {
	_, err := f.d.Find()
	return err
}

var (
	_ pillar.Functions    = (*Functions)(nil)
	_ pillar.Binder       = (*Functions)(nil)
	_ pillar.FunctionsFor = (*bound)(nil)
	_ pillar.ExtPillars   = (*bound)(nil)
	_ pillar.Renderers    = (*bound)(nil)
	_ render.Explainer    = (*Functions)(nil)
	_ render.Explainer    = (*bound)(nil)
	_ render.Holder       = (*bound)(nil)
	_ render.Overrider    = (*bound)(nil)
	_ render.Exception    = (*pythonhost.Error)(nil)
)

// WhyMissing implements render.Explainer: without Salt, functions that are not native are missing.
func (f *Functions) WhyMissing() string {
	if err := f.available(); err != nil {
		return err.Error()
	}
	return ""
}

// Has implements pillar.Functions, for callers without a minion.
func (f *Functions) Has(ctx context.Context, name string) bool {
	b := &bound{f: f}
	defer b.close()
	return b.HasFor(ctx, modules.Minion{}, name)
}

// Call implements pillar.Functions, for a single call.
func (f *Functions) Call(ctx context.Context, m modules.Minion, fun string, args []any,
	kwargs value.Map) (any, error) {
	b := &bound{f: f}
	defer b.close()
	return b.Call(ctx, m, fun, args, kwargs)
}

// HasRenderer reports whether a renderer that package render lacks can be asked for.
func (f *Functions) HasRenderer(name string, src render.Source) bool {
	return (&bound{f: f}).HasRenderer(name, src)
}

// RunStage runs a renderer, for files of the master itself.
func (f *Functions) RunStage(ctx context.Context, m modules.Minion, name, args string, val any,
	src render.Source, keywords value.Map) (any, error) {
	b := &bound{f: f}
	defer b.close()
	return b.RunStage(ctx, m, name, args, val, src, keywords)
}

// Bind implements pillar.Binder.
func (f *Functions) Bind() (pillar.Functions, func()) {
	b := &bound{f: f}
	return b, b.close
}

// native reports whether package modules has a function and no site module replaces it.
func (f *Functions) native(ctx context.Context, fun string) bool {
	return f.d.Native.Has(ctx, fun) && !f.Overrides(fun)
}

// Overrides reports whether a module of the site replaces a native one.
func (f *Functions) Overrides(fun string) bool {
	module, _, _ := strings.Cut(fun, ".")
	return f.modules.Has(module)
}

// bound is the functions of one pillar, with one child that is made when Python is first needed.
type bound struct {
	f       *Functions
	session *pythonhost.Session
	minion  modules.Minion // that the session is for
}

func (b *bound) close() {
	if b.session != nil {
		b.session.Close()
		b.session = nil
	}
}

// sameMap reports whether two maps are the same in memory; pillars are replaced, not changed.
func sameMap(a, b value.Map) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// of returns the session for a minion. Another pillar or other options bind it anew, because loaded
// modules keep the old ones.
func (b *bound) of(m modules.Minion, anyPillar bool) *pythonhost.Session {
	as := pythonhost.Minion{
		ID: m.ID, Grains: m.Grains, Pillar: m.Pillar, Saltenv: m.Opts.String("saltenv"),
		Pillarenv: m.Pillarenv, PillarRoots: pillarRoots(m), States: m.States,
	}
	if b.session != nil && b.minion.ID == m.ID && b.minion.Opts.String("saltenv") == as.Saltenv &&
		sameMap(pillarRoots(b.minion), as.PillarRoots) &&
		(anyPillar || sameMap(b.minion.Pillar, m.Pillar)) {
		return b.session
	}
	b.minion = m
	if b.session == nil {
		b.session = b.f.d.Host.Session(as)
	} else {
		b.session.Rebind(as)
	}
	return b.session
}

func pillarRoots(m modules.Minion) value.Map {
	v, _ := m.Opts.Get("pillar_roots")
	roots, _ := v.(value.Map)
	return roots
}

// Ahead implements render.Holder.
func (b *bound) Ahead(ctx context.Context) context.Context {
	if b.session != nil {
		ctx = b.session.Context(ctx)
	}
	return ahead(ctx)
}

// ahead has nobody with a child wait for a render worker, because templates with a worker wait for
// children.
func ahead(ctx context.Context) context.Context {
	if pythonhost.Counts(ctx) {
		return render.Ahead(ctx)
	}
	return ctx
}

// hasTimeout bounds the check whether a function exists.
const hasTimeout = time.Minute

// Has implements pillar.Functions.
func (b *bound) Has(ctx context.Context, name string) bool { return b.HasFor(ctx, b.minion, name) }

// HasFor implements pillar.FunctionsFor.
func (b *bound) HasFor(ctx context.Context, m modules.Minion, name string) bool {
	d := &b.f.d
	if b.f.native(ctx, name) {
		return true
	}
	if !strings.Contains(name, ".") || b.f.available() != nil {
		return d.Native.Has(ctx, name)
	}
	limited, cancel := context.WithTimeout(ctx, hasTimeout)
	defer cancel()
	found, err := b.of(m, false).Has(limited, name)
	if err != nil && ctx.Err() == nil {
		d.Log.Error("Python host can't tell whether a function exists", "fun", name, "minion",
			m.ID, "err", err)
	}
	return found || strings.HasSuffix(name, ".") && d.Native.Has(ctx, name)
}

// Call implements pillar.Functions.
func (b *bound) Call(ctx context.Context, m modules.Minion, fun string, args []any,
	kwargs value.Map) (any, error) {
	d := &b.f.d
	if b.f.native(ctx, fun) {
		v, err := d.Native.Call(b.Ahead(ctx), m, fun, args, kwargs)
		if !errors.Is(err, modules.ErrOutside) || b.f.available() != nil {
			return v, err
		}
	}
	if err := b.f.available(); err != nil {
		return nil, fmt.Errorf("function %s: %w; %w", fun, modules.ErrUnknown, err)
	}
	render.Impure(ctx) // also a function that is, for the part of it that is built in
	v, err := b.of(m, false).Call(ctx, pythonhost.Call{Kind: pythonhost.Module, Fun: fun,
		Args: args, Kwargs: kwargs, Retcode: modules.Retcode(ctx)})
	if errors.Is(err, pythonhost.ErrUnknown) {
		return nil, fmt.Errorf("function %s: %w; %w", fun, modules.ErrUnknown, err)
	}
	return v, err
}

// WhyMissing implements render.Explainer.
func (b *bound) WhyMissing() string { return b.f.WhyMissing() }

// Overrides implements render.Overrider.
func (b *bound) Overrides(fun string) bool { return b.f.Overrides(fun) }

// OverridesExtPillar implements pillar.ExtPillars.
func (b *bound) OverridesExtPillar(name string) bool { return b.f.pillars.Has(name) }

// ExtPillar implements pillar.ExtPillars.
func (b *bound) ExtPillar(ctx context.Context, m modules.Minion, name string, soFar value.Map,
	given any, extra value.Map) (any, bool, error) {
	if err := b.f.available(); err != nil {
		return nil, true, err
	}
	before := m.Pillar
	m.Pillar = nil // which releases before 3008 leave empty for the functions of an ext_pillar
	v, err := b.of(m, true).Call(ctx, pythonhost.Call{Kind: pythonhost.Pillar, Fun: name,
		Given: given, Pillar: soFar, Before: before, Extra: extra})
	if errors.Is(err, pythonhost.ErrUnknown) {
		b.f.d.Log.Error("ext_pillar can't be loaded", "fun", name, "err", err)
		return nil, false, nil
	}
	return v, true, err
}

// HasRenderer implements pillar.Renderers. A py module that imports Salt needs Salt's Python.
func (b *bound) HasRenderer(name string, src render.Source) bool {
	if name == "py" && !importsSalt(src.Data) {
		return false
	}
	return b.f.available() == nil
}

func importsSalt(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) > 1 && (words[0] == "import" || words[0] == "from") &&
			(words[1] == "salt" || strings.HasPrefix(words[1], "salt.")) {
			return true
		}
	}
	return false
}

// RunStage implements pillar.Renderers.
func (b *bound) RunStage(ctx context.Context, m modules.Minion, name, args string, val any,
	src render.Source, keywords value.Map) (any, error) {
	v, err := b.of(m, false).Call(ctx, pythonhost.Call{Kind: pythonhost.Renderer, Fun: name,
		Args: []any{val}, Kwargs: value.Map{
			{Key: "argline", Value: args}, {Key: "saltenv", Value: src.SaltEnv},
			{Key: "sls", Value: src.SLS}, {Key: "path", Value: src.Path},
			{Key: "keywords", Value: keywords},
		}})
	if errors.Is(err, pythonhost.ErrUnknown) {
		return nil, fmt.Errorf("the renderer %q of %s is not available: %w", name, src.Path, err)
	}
	return v, err
}
