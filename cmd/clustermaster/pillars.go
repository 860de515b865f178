package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"clustermaster/config"
	"clustermaster/fileserver"
	"clustermaster/internal/yaml11"
	"clustermaster/master"
	"clustermaster/miniondata"
	"clustermaster/pillar"
	"clustermaster/target"
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

// plainYAML renders files that are YAML and no templates.
type plainYAML struct{}

func (plainYAML) Render(_ context.Context, src pillar.Source, pipe string, _ pillar.Context, _ pillar.Host) (any, error) {
	if bytes.Contains(src.Data, []byte("{%")) || bytes.Contains(src.Data, []byte("{{")) || bytes.HasPrefix(src.Data, []byte("#!")) {
		return nil, fmt.Errorf("file %s needs the renderers %s, which are not built in", src.Path, pipe)
	}
	v, err := yaml11.Load(src.Data)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return wire.Map{}, nil
	}
	return wireValue(v), nil
}

// openPillars joins the makers of pillars.
func (r *rooms) openPillars() error {
	o := r.opts
	roots := fileOptions(o)
	roots.Roots = nil
	for _, e := range o.PillarRoots {
		roots.Roots = append(roots.Roots, fileserver.Env{Name: e.Name, Roots: e.Dirs})
	}
	files, err := fileserver.New(roots, r.log, nil)
	if err != nil {
		return err
	}
	r.pillar = pillar.New(pillar.Deps{
		Files: pillarFiles{files}, Renderer: plainYAML{}, Kept: keptPillars{r.data},
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
