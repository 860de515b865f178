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
	"clustermaster/serve/fileview"
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

// keptPillars is where pillar_cache keeps pillars.
type keptPillars struct{ *miniondata.Data }

func (k keptPillars) Pillar(ctx context.Context, id, pillarenv string) (value.Map, time.Time, bool,
	error) {
	return k.PillarMade(ctx, id, pillarenv)
}

// openPillars makes the parts that compile pillars.
func (r *process) openPillars() error {
	o := r.opts
	var err error
	if r.items, err = fileserver.New(settings.PillarFiles(o), r.log, nil); err != nil {
		return err
	}
	r.render = render.New(settings.Render(o), r.log, r.reg) // starts nothing before its first use
	r.modules = modules.New(r.moduleDeps())
	r.openPython()
	r.pillar = pillar.New(pillar.Deps{
		Files: opened{r.items}, Renderer: r.render, Functions: r.hosted, Kept: keptPillars{r.data},
		Matches: func(ctx context.Context, compound any) ([]string, error) {
			found, err := target.Match(ctx, "compound", compound, "", r.world, true)
			return found.Minions, err
		},
		Git: fileview.Git{Store: r.git}.Folders,
	}, settings.Pillar(o, saltVersion), r.log, r.reg)
	return nil
}
