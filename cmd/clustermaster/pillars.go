package main

import (
	"context"
	"time"

	"clustermaster/config/settings"
	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render"
	"clustermaster/salt/target"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/master"
	"clustermaster/store/miniondata"
	"clustermaster/value"
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

func (k keptPillars) Pillar(ctx context.Context, id, pillarenv string) (value.Map, time.Time, bool, error) {
	return k.PillarMade(ctx, id, pillarenv)
}

// openPillars joins the makers of pillars.
func (r *rooms) openPillars() error {
	o := r.opts
	var err error
	if r.items, err = fileserver.New(settings.PillarFiles(o), r.log, nil); err != nil {
		return err
	}
	r.render = render.New(settings.Render(o), r.log, r.reg) // it starts nothing before it is used
	r.modules = modules.New(r.moduleDeps())
	r.pillar = pillar.New(pillar.Deps{
		Files: pillarFiles{r.items}, Renderer: r.render, Functions: r.modules, Kept: keptPillars{r.data},
		Matches: func(ctx context.Context, compound any) ([]string, error) {
			found, err := target.Match(ctx, "compound", compound, "", targets{r}, true)
			return found.Minions, err
		},
	}, settings.Pillar(o), r.log, r.reg)
	return nil
}

// pillarMaker makes pillars for the operator.
type pillarMaker struct{ r *rooms }

func (p pillarMaker) request(ctx context.Context, id string, extra value.Map, saltenv, pillarenv string) (pillar.Request, error) {
	grains, found, err := p.r.data.Grains(ctx, id)
	if err != nil {
		return pillar.Request{}, err
	}
	if !found {
		grains = value.Map{{Key: "fqdn", Value: id}}
	}
	for _, kw := range extra {
		if name, ok := kw.Key.(string); ok {
			grains = grains.Set(name, kw.Value)
		}
	}
	return pillar.Request{ID: id, Grains: grains, Saltenv: saltenv, Pillarenv: pillarenv, CleanCache: true}, nil
}

func (p pillarMaker) MakePillar(ctx context.Context, id string, extra value.Map, saltenv, pillarenv string) (value.Map, error) {
	r, err := p.request(ctx, id, extra, saltenv, pillarenv)
	if err != nil {
		return nil, err
	}
	made, err := p.r.pillar.Pillar(ctx, r)
	return made.Pillar, err
}

func (p pillarMaker) Top(ctx context.Context, id, saltenv string) (value.Map, []string, error) {
	r, err := p.request(ctx, id, nil, saltenv, "")
	if err != nil {
		return nil, nil, err
	}
	return p.r.pillar.Top(ctx, r)
}

func (p pillarMaker) Kept(ctx context.Context, id, pillarenv string) (value.Map, bool, error) {
	return p.r.data.PillarOf(ctx, id, pillarenv)
}

func (p pillarMaker) Forget(ctx context.Context, id string) error {
	return p.r.data.DropPillar(ctx, id)
}

// mineReader reads mines for the operator.
type mineReader struct{ r *rooms }

func (m mineReader) MineGet(ctx context.Context, tgt, fun any, tgtType string) (value.Map, error) {
	return m.r.master.MineGet(ctx, "", tgt, fun, tgtType)
}
