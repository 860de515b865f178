package main

import (
	"context"

	"clustermaster/config/settings"
	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/fileview"
	"clustermaster/value"
)

// opened gives single files of file_roots or pillar_roots.
type opened struct{ *fileserver.Server }

func (f opened) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// moduleDeps is what the functions of templates need from this master.
func (r *process) moduleDeps() modules.Deps {
	o := r.opts
	return modules.Deps{
		Files: opened{r.files},
		Mine: func(ctx context.Context, id string, tgt, fun any, tgtType string) (value.Map,
			error) {
			return r.master.MineGet(ctx, id, tgt, fun, tgtType)
		},
		Runner: r.functions.ForTemplate,
		Render: func(ctx context.Context, m modules.Minion, path, text, pipe string,
			vars value.Map) (any, error) {
			return r.pillar.RenderText(ctx,
				pillar.Request{ID: m.ID, Grains: m.Grains, Saltenv: m.Saltenv,
					Pillarenv: m.Pillarenv}, opened{r.files}, m.Pillar, path, text, pipe, vars)
		},
		SDB: func(profile string) (value.Map, bool) {
			m, ok := settings.Value(o.Extra[profile]).(value.Map)
			return m, ok
		},
		ForeignSDB: settings.Modules(o).Site("sdb").Has,
		Nodegroup:  r.world.Nodegroup,
		Datastore:  modules.KeptDatastore{Cache: r.banks}, Version: saltVersion,
		HashType: o.HashType, Log: r.log.With("component", "modules"),
	}
}

// grains are the master's own.
func (r *process) grains() value.Map { return settings.Grains(r.opts, saltVersion, r.log).Load() }

// onMaster makes the functions of templates, as this master calls them.
func (r *process) onMaster() modules.OnMaster {
	opts, _ := settings.Value(r.opts.Extra).(value.Map)
	return modules.OnMaster{Modules: r.hosted, ID: r.opts.ID, Opts: opts, Pillar: r.pillar.OnMaster,
		Grains: func(ctx context.Context) value.Map {
			return r.hosted.Machine(ctx, r.grains())
		}}
}

// fileEvents makes the events of fileserver_events.
func (r *process) fileEvents() fileview.Events {
	return fileview.Events{On: r.opts.Extra["fileserver_events"] == true, Leads: r.node.IsLeader,
		Fire: func(tag string, data value.Map) { r.bus.Fire(tag, data) }}
}
