package settings

import (
	"path/filepath"

	"clustermaster/config"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render"
	"clustermaster/serve/fileserver"
	"clustermaster/value"
)

// Files takes the file server's options, with file_roots.
func Files(o *config.Options) fileserver.Options {
	f := fileserver.Options{
		IgnoreRegex: o.FileIgnoreRegex, IgnoreGlob: o.FileIgnoreGlob,
		FollowSymlinks: o.FileserverFollowSymlinks,
		IgnoreSymlinks: o.FileserverIgnoreSymlinks, HashType: o.HashType,
		BufferSize: o.FileBufferSize,
	}
	for _, e := range o.FileRoots {
		f.Roots = append(f.Roots, fileserver.Env{Name: e.Name, Roots: e.Dirs})
	}
	return f
}

// Pillar takes the options for making pillars. release is the release of Salt that the master
// reports.
func Pillar(o *config.Options, release string) pillar.Options {
	p := pillar.Options{
		Release:  release,
		StateTop: o.StateTop, Renderer: o.Renderer, Saltenv: o.Saltenv, Pillarenv: o.Pillarenv,
		PillarenvFromSaltenv: o.PillarenvFromSaltenv,
		EnvOrder:             o.EnvOrder, MergeStrategy: o.PillarSourceMergingStrategy,
		MergeLists:          o.PillarMergeLists,
		IncludesOverrideSLS: o.PillarIncludesOverrideSLS, SafeRenderError: o.PillarSafeRenderError,
		PillarOpts:     o.PillarOpts,
		ExtPillarFirst: o.ExtPillarFirst, OnDemandExtPillar: o.OnDemandExtPillar,
		DecryptPillarDelimiter: o.DecryptPillarDelimiter,
		DecryptPillarDefault:   o.DecryptPillarDefault,
		DecryptPillarRenderers: o.DecryptPillarRenderers,
		GitIncludes:            o.Option("git_pillar_includes") != false,
		Cache:                  o.PillarCache, CacheTTL: o.PillarCacheTTL, MaxSize: o.MaxPillarSize,
		Timeout: o.PillarTimeout,
	}
	p.MasterOpts, _ = Value(o.Values()).(value.Map)
	p.Nodegroups, _ = Value(o.Nodegroups).(value.Map)
	if len(o.ExtPillar) > 0 {
		p.ExtPillar = Value(o.ExtPillar)
	}
	if len(o.DecryptPillar) > 0 {
		p.DecryptPillar = Value(o.DecryptPillar)
	}
	for _, e := range o.PillarRoots {
		p.Roots = append(p.Roots, pillar.Env{Name: e.Name, Roots: e.Dirs})
	}
	return p
}

// PillarFiles takes the file server's options for pillar_roots. As with Salt, its options that hide
// files do not hold there: its loop over folders drops ignored names from a copy.
func PillarFiles(o *config.Options) fileserver.Options {
	f := fileserver.Options{FollowSymlinks: true, HashType: o.HashType, BufferSize: o.FileBufferSize}
	for _, e := range o.PillarRoots {
		f.Roots = append(f.Roots, fileserver.Env{Name: e.Name, Roots: e.Dirs})
	}
	return f
}

// Render takes the renderer's options.
func Render(o *config.Options) render.Options {
	return render.Options{
		Dir:         filepath.Join(o.DataDir(), "render"),
		Python:      o.RenderPython,
		Workers:     o.RenderWorkers,
		Timeout:     o.RenderTimeout,
		MemoryLimit: int64(o.RenderMemory),
		OutputLimit: int64(o.RenderOutput),
		IdleStop:    o.RenderIdle,
		CacheSize:   cacheSize(o.RenderCache),
	}
}

// Orchestrate takes the options of orchestrations.
func Orchestrate(o *config.Options) orchestrate.Options {
	so := orchestrate.Options{
		ID:                 o.ID,
		Renderer:           o.Renderer,
		EnvOrder:           o.EnvOrder,
		AutoOrder:          o.StateAutoOrder,
		Failhard:           o.Failhard,
		Events:             o.StateEvents,
		Local:              o.Local,
		Test:               o.Test,
		MaxParallel:        o.StateMaxParallel,
		DisabledRequisites: o.DisabledRequisites,
		Saltenv:            o.Saltenv,
		Pillarenv:          o.Pillarenv,
		MergeStrategy:      o.PillarSourceMergingStrategy,
		MergeLists:         o.PillarMergeLists,
		DecryptRenderers:   o.DecryptPillarRenderers,
	}
	so.Opts, _ = Value(o.Values()).(value.Map)
	so.GlobalConditions, _ = Value(o.GlobalStateConditions).(value.Map)
	return so
}

// cacheSize is what the renderer takes for "none".
func cacheSize(n int) int64 {
	if n == 0 {
		return -1
	}
	return int64(n)
}
