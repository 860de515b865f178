package pillar

import (
	"context"
	"fmt"

	"clustermaster/wire"
)

// render runs one file through its pipeline.
func (p *compilation) render(ctx context.Context, f file, env, sls string, vars wire.Map) (any, error) {
	if p.rendered++; p.rendered > maxRendered {
		return nil, fmt.Errorf("more than %d files rendered for one pillar", maxRendered)
	}
	return p.deps.Renderer.Render(ctx, Source{Path: f.abs, SLS: sls, SaltEnv: env, Data: f.data}, p.opts.Renderer, p.context(vars), host{p, env})
}

func (p *compilation) context(vars wire.Map) Context {
	return Context{ID: p.req.ID, Grains: p.grains, Pillar: p.pillar, Opts: p.seen, Vars: vars}
}

// host answers templates of one environment.
type host struct {
	p   *compilation
	env string
}

var _ Host = host{}

// Call runs an execution module's function for the minion whose pillar this is.
func (h host) Call(ctx context.Context, fun string, args []any, kwargs wire.Map) (any, error) {
	if h.p.deps.Functions == nil {
		return nil, fmt.Errorf("function %s: this master runs no functions for templates", fun)
	}
	return h.p.deps.Functions.Call(ctx, Minion{
		ID: h.p.req.ID, Grains: h.p.grains, Pillar: h.p.pillar, Saltenv: h.env, Pillarenv: h.p.pillarenv, Opts: h.p.seen,
	}, fun, args, kwargs)
}

// File reads what a template imports.
func (h host) File(_ context.Context, saltenv, path string) ([]byte, bool, error) {
	if saltenv == "" {
		saltenv = h.env
	}
	f, found, err := h.p.open(saltenv, path)
	return f.data, found, err
}
