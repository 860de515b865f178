package pillar

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/salt/modules"
	"clustermaster/salt/render"
	"clustermaster/value"
)

// Renderer runs render pipelines. An error's text is Salt's.
type Renderer interface {
	Render(ctx context.Context, src render.Source, defaultPipe string, c render.Context, h render.Host) (any, error)
}

// Functions are the execution modules of the master.
type Functions interface {
	// Has reports whether a function is there; a name that ends with a dot asks for any function of that module.
	Has(name string) bool
	// Call runs a function. One that is not there is modules.ErrUnknown.
	Call(ctx context.Context, m modules.Minion, fun string, args []any, kwargs value.Map) (any, error)
}

// render runs one file through its pipeline.
func (p *compilation) render(ctx context.Context, f file, env, sls string, vars value.Map) (any, error) {
	if p.rendered++; p.rendered > maxRendered {
		return nil, fmt.Errorf("more than %d files rendered for one pillar", maxRendered)
	}
	src := render.Source{Path: f.abs, SLS: sls, SaltEnv: env, Data: f.data}
	return p.deps.Renderer.Render(ctx, src, p.opts.Renderer, p.context(vars), host{p: p, env: env})
}

// RenderText renders text for a minion. What it imports comes from roots, from pillar_roots if that is nil.
func (c *Compiler) RenderText(ctx context.Context, r Request, roots Files, pillar value.Map, path, text, pipe string, vars value.Map) (any, error) {
	p := c.newCompilation(r)
	p.pillar = pillar
	src := render.Source{Path: path, SaltEnv: "base", Data: []byte(text)}
	return c.deps.Renderer.Render(ctx, src, pipe, p.context(vars), host{p, "base", roots})
}

func (p *compilation) context(vars value.Map) render.Context {
	return render.Context{ID: p.req.ID, Grains: p.grains, Pillar: p.pillar, Opts: p.seen, Vars: vars}
}

// host answers templates of one environment.
type host struct {
	p     *compilation
	env   string
	roots Files // nil: pillar_roots
}

var (
	_ render.Host           = host{}
	_ render.FunctionLister = host{}
	_ render.FileNamer      = host{}
)

// Call runs an execution module's function for the minion whose pillar this is.
func (h host) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	if h.p.deps.Functions == nil {
		return nil, fmt.Errorf("function %s: %w", fun, render.ErrUnknownFunction)
	}
	v, err := h.p.deps.Functions.Call(ctx, modules.Minion{
		ID: h.p.req.ID, Grains: h.p.grains, Pillar: h.p.pillar, Saltenv: h.env, Pillarenv: h.p.pillarenv, Opts: h.p.told,
	}, fun, args, kwargs)
	if errors.Is(err, modules.ErrUnknown) {
		return nil, fmt.Errorf("function %s: %w", fun, render.ErrUnknownFunction)
	}
	return v, err
}

// HasFunction implements render.FunctionLister.
func (h host) HasFunction(name string) bool {
	return h.p.deps.Functions != nil && h.p.deps.Functions.Has(name)
}

// File reads what a template imports.
func (h host) File(_ context.Context, saltenv, path string) ([]byte, bool, error) {
	f, found, err := h.open(saltenv, path)
	return f.data, found, err
}

// FileName implements render.FileNamer: messages show where a file lies on disk.
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
