package main

import (
	"context"
	"fmt"
	"strings"

	"clustermaster/config/settings"
	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/runner"
	"clustermaster/serve/fileserver"
	"clustermaster/value"
)

// moduleFiles are file_roots as the functions of templates see them.
type moduleFiles struct{ *fileserver.Server }

func (f moduleFiles) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// moduleDeps is what the functions of templates ask of this master.
func (r *rooms) moduleDeps() modules.Deps {
	o := r.opts
	return modules.Deps{
		Files: moduleFiles{r.files},
		Mine: func(ctx context.Context, id string, tgt, fun any, tgtType string) (value.Map, error) {
			return r.master.MineGet(ctx, id, tgt, fun, tgtType)
		},
		Runner: r.runFor,
		Render: func(ctx context.Context, m modules.Minion, path, text, pipe string, vars value.Map) (any, error) {
			return r.pillar.RenderText(ctx, pillar.Request{ID: m.ID, Grains: m.Grains, Saltenv: m.Saltenv, Pillarenv: m.Pillarenv}, moduleFiles{r.files}, m.Pillar, path, text, pipe, vars)
		},
		SDB: func(profile string) (value.Map, bool) {
			m, ok := settings.Value(o.Extra[profile]).(value.Map)
			return m, ok
		},
		Nodegroup: func(name string) (any, bool) {
			v, ok := o.Nodegroups.Get(name)
			return settings.Value(v), ok
		},
		Datastore: datastore{r}, Version: saltVersion, HashType: o.HashType, Log: r.log.With("component", "modules"),
	}
}

// runFor runs a runner function for a template or a minion (peer_run).
func (r *rooms) runFor(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	done := r.operators.runners.Run(ctx, runner.Request{Fun: fun, Args: args, Kwargs: kwargs, User: r.opts.User}, nil)
	if told, ok := done.Return.(runner.Told); ok {
		done.Return = told.Value
	}
	if !done.Success {
		return done.Return, fmt.Errorf("runner %s: %v", fun, done.Return)
	}
	return done.Return, nil
}

// datastore keeps what the functions of data keep, as a key of the cache.
type datastore struct{ r *rooms }

func (d datastore) Load(ctx context.Context) (value.Map, error) {
	v, _, err := d.r.banks.Fetch(ctx, "data", "datastore")
	m, _ := v.(value.Map)
	return m, err
}

func (d datastore) Dump(ctx context.Context, data value.Map) error {
	return d.r.banks.Store(ctx, "data", "datastore", data)
}

// onMaster runs the functions of templates for salt.cmd, as this master: without grains and pillar.
type onMaster struct{ r *rooms }

func (m onMaster) Run(ctx context.Context, fun string, args []any, kwargs value.Map) (any, bool, error) {
	if !m.r.modules.Has(fun) || strings.HasSuffix(fun, ".") {
		return nil, false, nil
	}
	opts, _ := settings.Value(m.r.opts.Extra).(value.Map)
	v, err := m.r.modules.Call(ctx, modules.Minion{ID: m.r.opts.ID, Saltenv: "base", Opts: opts.Set("id", m.r.opts.ID)}, fun, args, kwargs)
	return v, true, err
}

// servedFiles are file_roots as the runner fileserver sees them.
type servedFiles struct{ r *rooms }

func (f servedFiles) Envs() []string                     { return f.r.files.Envs() }
func (f servedFiles) List(env string) []string           { return f.r.files.List(env) }
func (f servedFiles) Dirs(env string) []string           { return f.r.files.Dirs(env) }
func (f servedFiles) EmptyDirs(env string) []string      { return f.r.files.EmptyDirs(env) }
func (f servedFiles) Links(env string) value.Map         { return f.r.files.Links(env) }
func (f servedFiles) ClearListCache(env string) []string { return f.r.files.ClearListCache(env) }

func (f servedFiles) Update(ctx context.Context) error {
	changes, err := f.r.files.Look(ctx)
	if err == nil {
		f.r.fileChanges(changes)
	}
	return err
}

// fileChanges fires the event of an update with fileserver_events: once in the cluster, for every master finds the same in its own tree.
func (r *rooms) fileChanges(c fileserver.Changes) {
	if r.opts.Extra["fileserver_events"] == true && r.node.IsLeader() {
		r.bus.Fire("salt/fileserver/roots/update", c.Data())
	}
}
