package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/config"
	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render"
	"clustermaster/salt/target"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/master"
	"clustermaster/store/miniondata"
	"clustermaster/wire"
)

// pillars makes pillars for the request handler.
type pillars struct{ *pillar.Compiler }

func (p pillars) Pillar(ctx context.Context, r master.PillarRequest) (master.MadePillar, error) {
	made, err := p.Compiler.Pillar(ctx, pillar.Request(r))
	return master.MadePillar(made), err
}

// pillarFiles are pillar_roots, read by the rules of the file server.
type pillarFiles struct{ *fileserver.Server }

func (f pillarFiles) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// keptPillars is where pillar_cache keeps pillars.
type keptPillars struct{ *miniondata.Data }

func (k keptPillars) Pillar(ctx context.Context, id, pillarenv string) (wire.Map, time.Time, bool, error) {
	return k.PillarMade(ctx, id, pillarenv)
}

// newRenderer makes the renderer; it unpacks and starts nothing before it is used.
func newRenderer(o *config.Options, log *slog.Logger, reg prometheus.Registerer) *render.Renderer {
	return render.New(render.Options{
		Dir: filepath.Join(o.DataDir(), "render"), Python: o.RenderPython, Workers: o.RenderWorkers, Timeout: o.RenderTimeout,
		MemoryLimit: int64(o.RenderMemory), OutputLimit: int64(o.RenderOutput), IdleStop: o.RenderIdle, CacheSize: cacheSize(o.RenderCache),
	}, log, reg)
}

// cacheSize says "none" as the renderer wants it said.
func cacheSize(n int) int64 {
	if n == 0 {
		return -1
	}
	return int64(n)
}

// openPillars joins the makers of pillars.
func (r *rooms) openPillars() error {
	o := r.opts
	roots := fileOptions(o)
	roots.Roots = nil
	for _, e := range o.PillarRoots {
		roots.Roots = append(roots.Roots, fileserver.Env{Name: e.Name, Roots: e.Dirs})
	}
	var err error
	if r.items, err = fileserver.New(roots, r.log, nil); err != nil {
		return err
	}
	r.render = newRenderer(o, r.log, r.reg)
	r.modules = modules.New(r.moduleDeps())
	r.pillar = pillar.New(pillar.Deps{
		Files: pillarFiles{r.items}, Renderer: r.render, Functions: r.modules, Kept: keptPillars{r.data},
		Matches: func(ctx context.Context, compound any) ([]string, error) {
			found, err := target.Match(ctx, "compound", compound, "", targets{r}, true)
			return found.Minions, err
		},
	}, pillarOptions(o), r.log, r.reg)
	return nil
}

func pillarOptions(o *config.Options) pillar.Options {
	p := pillar.Options{
		StateTop: o.StateTop, Renderer: o.Renderer, Saltenv: o.Saltenv, Pillarenv: o.Pillarenv, PillarenvFromSaltenv: o.PillarenvFromSaltenv,
		EnvOrder: o.EnvOrder, MergeStrategy: o.PillarSourceMergingStrategy, MergeLists: o.PillarMergeLists,
		IncludesOverrideSLS: o.PillarIncludesOverrideSLS, SafeRenderError: o.PillarSafeRenderError, PillarOpts: o.PillarOpts,
		ExtPillarFirst: o.ExtPillarFirst, OnDemandExtPillar: o.OnDemandExtPillar,
		DecryptPillarDelimiter: o.DecryptPillarDelimiter, DecryptPillarDefault: o.DecryptPillarDefault, DecryptPillarRenderers: o.DecryptPillarRenderers,
		Cache: o.PillarCache, CacheTTL: o.PillarCacheTTL, MaxSize: o.MaxPillarSize, Timeout: o.PillarTimeout,
	}
	p.MasterOpts, _ = wireValue(o.Values()).(wire.Map)
	p.Nodegroups, _ = wireValue(o.Nodegroups).(wire.Map)
	if len(o.ExtPillar) > 0 {
		p.ExtPillar = wireValue(o.ExtPillar)
	}
	if len(o.DecryptPillar) > 0 {
		p.DecryptPillar = wireValue(o.DecryptPillar)
	}
	for _, e := range o.PillarRoots {
		p.Roots = append(p.Roots, pillar.Env{Name: e.Name, Roots: e.Dirs})
	}
	return p
}

// pillarMaker makes pillars for the operator.
type pillarMaker struct{ r *rooms }

func (p pillarMaker) request(ctx context.Context, id string, extra wire.Map, saltenv, pillarenv string) (pillar.Request, error) {
	grains, found, err := p.r.data.Grains(ctx, id)
	if err != nil {
		return pillar.Request{}, err
	}
	if !found {
		grains = wire.Map{{Key: "fqdn", Value: id}}
	}
	for _, kw := range extra {
		if name, ok := kw.Key.(string); ok {
			grains = grains.Set(name, kw.Value)
		}
	}
	return pillar.Request{ID: id, Grains: grains, Saltenv: saltenv, Pillarenv: pillarenv, CleanCache: true}, nil
}

func (p pillarMaker) MakePillar(ctx context.Context, id string, extra wire.Map, saltenv, pillarenv string) (wire.Map, error) {
	r, err := p.request(ctx, id, extra, saltenv, pillarenv)
	if err != nil {
		return nil, err
	}
	made, err := p.r.pillar.Pillar(ctx, r)
	return made.Pillar, err
}

func (p pillarMaker) Top(ctx context.Context, id, saltenv string) (wire.Map, []string, error) {
	r, err := p.request(ctx, id, nil, saltenv, "")
	if err != nil {
		return nil, nil, err
	}
	return p.r.pillar.Top(ctx, r)
}

func (p pillarMaker) Kept(ctx context.Context, id, pillarenv string) (wire.Map, bool, error) {
	return p.r.data.PillarOf(ctx, id, pillarenv)
}

func (p pillarMaker) Forget(ctx context.Context, id string) error {
	return p.r.data.DropPillar(ctx, id)
}

// mineReader reads mines for the operator.
type mineReader struct{ r *rooms }

func (m mineReader) MineGet(ctx context.Context, tgt, fun any, tgtType string) (wire.Map, error) {
	return m.r.master.MineGet(ctx, "", tgt, fun, tgtType)
}
