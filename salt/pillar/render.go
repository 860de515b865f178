package pillar

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"clustermaster/salt/modules"
	"clustermaster/salt/render"
	"clustermaster/value"
)

// Renderer runs render pipelines. An error's text is Salt's.
type Renderer interface {
	Render(ctx context.Context, src render.Source, defaultPipe string, c render.Context,
		h render.Host) (any, error)
}

// Functions are the execution modules of the master.
type Functions interface {
	// Has reports whether a function exists; a name that ends with a dot stands for any function of
	// that module.
	Has(ctx context.Context, name string) bool
	// Call runs a function. For an unknown function the error is modules.ErrUnknown.
	Call(ctx context.Context, m modules.Minion, fun string, args []any,
		kwargs value.Map) (any, error)
}

// Binder is implemented by Functions that keep state for the functions of one minion's pillar.
type Binder interface {
	// Bind returns the functions for one pillar, which calls them one after the other; done
	// releases their state. The result may implement ExtPillars, Renderers, render.Holder
	// and render.Overrider.
	Bind() (f Functions, done func())
}

// FunctionsFor is implemented by Functions whose modules depend on the minion: a module may exist
// for some minions only.
type FunctionsFor interface {
	HasFor(ctx context.Context, m modules.Minion, name string) bool
}

// ExtPillars is implemented by Functions that have ext_pillars besides this package's.
type ExtPillars interface {
	// OverridesExtPillar reports whether the site has its own ext_pillar of that name.
	OverridesExtPillar(name string) bool
	// ExtPillar runs one, with its arguments as configured. found is false for an unknown name.
	ExtPillar(ctx context.Context, m modules.Minion, name string, pillar value.Map, args any,
		extra value.Map) (v any, found bool, err error)
}

// Renderers is implemented by Functions that have renderers besides those of package render.
type Renderers interface {
	HasRenderer(name string, src render.Source) bool
	// RunStage passes keywords on to the renderer.
	RunStage(ctx context.Context, m modules.Minion, name, args string, val any,
		src render.Source, keywords value.Map) (any, error)
}

// bind makes the functions keep their state for this compilation; the returned function releases
// it.
func (p *compilation) bind() func() {
	b, ok := p.functions.(Binder)
	if !ok {
		return func() {}
	}
	bound, done := b.Bind()
	p.functions = bound
	return done
}

// minion describes the minion that functions run for.
func (p *compilation) minion(env string) modules.Minion {
	return modules.Minion{ID: p.req.ID, Grains: p.grains, Pillar: p.pillar, Saltenv: env,
		Pillarenv: p.pillarenv, Opts: p.told}
}

// render runs one file through its pipeline.
func (p *compilation) render(ctx context.Context, f file, env, sls string, vars value.Map) (any,
	error) {
	if p.rendered++; p.rendered > maxRendered {
		return nil, fmt.Errorf("more than %d files rendered for one pillar", maxRendered)
	}
	src := render.Source{Path: f.abs, SLS: sls, SaltEnv: env, Data: f.data}
	return p.deps.Renderer.Render(ctx, src, p.opts.Renderer, p.context(vars), host{p: p, env: env})
}

// RenderText renders text for a minion. Imports come from roots, or from pillar_roots if roots is
// nil.
func (c *Compiler) RenderText(ctx context.Context, r Request, roots Files, pillar value.Map, path,
	text, pipe string, vars value.Map) (any, error) {
	p := c.newCompilation(r)
	defer p.bind()()
	p.pillar = pillar
	src := render.Source{Path: path, SaltEnv: "base", Data: []byte(text)}
	return c.deps.Renderer.Render(ctx, src, pipe, p.context(vars), host{p, "base", roots})
}

func (p *compilation) context(vars value.Map) render.Context {
	return render.Context{ID: p.req.ID, Grains: p.grains, Pillar: p.pillar, Opts: p.seen,
		Vars: vars}
}

// host gives templates of one environment what they ask for.
type host struct {
	p     *compilation
	env   string
	roots Files // nil: pillar_roots
}

var (
	_ render.Host           = host{}
	_ render.FunctionLister = host{}
	_ render.FileNamer      = host{}
	_ render.Explainer      = host{}
	_ render.Holder         = host{}
	_ render.Overrider      = host{}
	_ render.StageRunner    = host{}
)

// Call runs an execution module's function for the minion whose pillar this is.
func (h host) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	if h.p.functions == nil {
		return nil, fmt.Errorf("function %s: %w", fun, render.ErrUnknownFunction)
	}
	v, err := h.p.functions.Call(ctx, h.p.minion(h.env), fun, args, kwargs)
	if errors.Is(err, modules.ErrUnknown) {
		return nil, fmt.Errorf("function %s: %w", fun, render.ErrUnknownFunction)
	}
	return v, err
}

// HasFunction implements render.FunctionLister.
func (h host) HasFunction(ctx context.Context, name string) bool {
	if f, ok := h.p.functions.(FunctionsFor); ok {
		return f.HasFor(ctx, h.p.minion(h.env), name)
	}
	return h.p.functions != nil && h.p.functions.Has(ctx, name)
}

// WhyMissing implements render.Explainer.
func (h host) WhyMissing() string { return render.WhyMissing(h.p.functions) }

// Ahead implements render.Holder.
func (h host) Ahead(ctx context.Context) context.Context {
	if f, ok := h.p.functions.(render.Holder); ok {
		ctx = f.Ahead(ctx)
	}
	return ctx
}

// Overrides implements render.Overrider.
func (h host) Overrides(fun string) bool {
	o, ok := h.p.functions.(render.Overrider)
	return ok && o.Overrides(fun)
}

// HasRenderer implements render.StageRunner.
func (h host) HasRenderer(name string, src render.Source) bool {
	r, ok := h.p.functions.(Renderers)
	return ok && r.HasRenderer(name, src)
}

// RunStage implements render.StageRunner.
func (h host) RunStage(ctx context.Context, name, args string, val any, src render.Source,
	vars value.Map) (any, error) {
	if h.roots == nil {
		vars = append(slices.Clip(vars), // Salt's word for imports from pillar_roots
			value.Pair{Key: "_pillar_rend", Value: true})
	}
	return h.p.functions.(Renderers).RunStage(ctx, h.p.minion(h.env), name, args, val, src, vars)
}

// File returns a file that a template imports.
func (h host) File(_ context.Context, saltenv, path string) ([]byte, bool, error) {
	f, found, err := h.open(saltenv, path)
	return f.data, found, err
}

// FileName implements render.FileNamer: messages show a file's path on disk.
func (h host) FileName(saltenv, path string) string {
	if f, found, err := h.open(saltenv, path); found && err == nil {
		return f.abs
	}
	return path
}

func (h host) open(saltenv, path string) (file, bool, error) {
	if saltenv == "" {
		saltenv = h.env
	}
	if h.roots == nil {
		return h.p.open(saltenv, path)
	}
	abs, data, found, err := h.roots.Open(saltenv, path)
	return file{path, abs, data}, found, err
}
