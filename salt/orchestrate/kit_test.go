package orchestrate_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render/rendertest"
	"clustermaster/salt/statemodules"
	"clustermaster/serve/fileserver"
	"clustermaster/test/salttrees"
	"clustermaster/value"
)

const jid = "20260101000000000000"

// runTree runs a tree as testdata/orchestrate.py does.
func runTree(t *testing.T, tr *salttrees.Tree, root string,
	change ...func(*orchestrate.Deps, value.Map)) value.Map {
	t.Helper()
	tr.Place(t, root)
	config, _ := tr.Get("config")
	asked, _ := tr.Get("request")
	request := salttrees.YAML(t, strings.ReplaceAll(asked, "ROOT", root))
	events := []any{}
	var mu sync.Mutex
	o := newOrchestrator(t, root, salttrees.YAML(t, strings.ReplaceAll(config, "ROOT", root)),
		func(tag string, data value.Map) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, []any{tag, data})
		}, change...)
	said, err := ask(t.Context(), o, request,
		func(data value.Map) { events = append(events, []any{"progress", data}) })
	if err != nil {
		return value.Map{{Key: "raised", Value: err.Error()}, {Key: "events", Value: events}}
	}
	return value.Map{{Key: "return", Value: said}, {Key: "events", Value: events}}
}

// ask calls the runner function that a request names.
func ask(ctx context.Context, o *orchestrate.Orchestrator, request value.Map,
	progress func(value.Map)) (any, error) {
	fun := request.String("fun")
	req := orchestrate.Request{
		Mods: texts(valueOf(request, "mods")), Saltenv: request.String("saltenv"),
		Pillarenv: request.String("pillarenv"),
		Exclude:   list(valueOf(request, "exclude")), Pillar: mapOf(request, "pillar"),
		User: "root",
	}
	if len(req.Mods) == 0 {
		req.Mods = []string{"o"}
	}
	if b, ok := valueOf(request, "test").(bool); ok {
		req.Test = &b
	}
	host := func(v any) value.Map { return value.Map{{Key: o.ID(), Value: v}} }
	switch fun {
	case "", "orchestrate":
		req.JID = jid
		v, err := o.SLS(ctx, req)
		if err != nil {
			return nil, err
		}
		code := int64(1)
		if m, ok := v.(value.Map); ok && orchestrate.Succeeded(m) {
			code = 0
		}
		return value.Map{{Key: "data", Value: host(v)}, {Key: "outputter", Value: "highstate"},
			{Key: "retcode", Value: code}}, nil
	case "orchestrate_show_sls":
		v, err := o.Show(ctx, req)
		return host(v), err
	case "orchestrate_high", "orchestrate_single":
		var v any
		var err error
		if fun == "orchestrate_high" {
			v, err = o.High(ctx, mapOf(request, "data"), req)
		} else {
			v, err = o.Single(ctx, request.String("fun_"), request.String("name"),
				request.Without("fun", "fun_", "name", "test", "queue"), req)
		}
		if err != nil {
			return nil, err
		}
		progress(value.Map{{Key: "data", Value: host(v)}, {Key: "outputter", Value: "highstate"}})
		return host(v), nil
	}
	return nil, errors.New("no such function " + fun)
}

func valueOf(m value.Map, key string) any {
	v, _ := m.Get(key)
	return v
}

func mapOf(m value.Map, key string) value.Map {
	v, _ := valueOf(m, key).(value.Map)
	return v
}

func list(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	case string:
		var out []any
		for part := range strings.SplitSeq(v, ",") {
			out = append(out, part)
		}
		return out
	}
	return []any{v}
}

func texts(v any) []string {
	var out []string
	for _, e := range list(v) {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

type files struct{ *fileserver.Server }

func (f files) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// serve makes a file server of roots, by default one environment base.
func serve(t testing.TB, roots value.Map, base string) (*fileserver.Server, []pillar.Env) {
	t.Helper()
	if roots == nil {
		roots = value.Map{{Key: "base", Value: []any{base}}}
	}
	served := fileserver.Options{FollowSymlinks: true}
	var envs []pillar.Env
	for _, p := range roots {
		name := value.Str(p.Key)
		served.Roots = append(served.Roots, fileserver.Env{Name: name, Roots: texts(p.Value)})
		envs = append(envs, pillar.Env{Name: name, Roots: texts(p.Value)})
	}
	s, err := fileserver.New(served, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, envs
}

// newOrchestrator makes one as the master does, for options as in its configuration.
func newOrchestrator(t testing.TB, root string, config value.Map,
	fire func(tag string, data value.Map),
	change ...func(*orchestrate.Deps, value.Map)) *orchestrate.Orchestrator {
	t.Helper()
	fileRoots, _ := serve(t, mapOf(config, "file_roots"), filepath.Join(root, "files"))
	pillarRoots, envs := serve(t, mapOf(config, "pillar_roots"), filepath.Join(root, "pillar"))
	functions := modules.New(modules.Deps{Files: files{fileRoots}, Version: "3008.3"})
	opts := append(config, value.Pair{Key: "id", Value: "master1"})
	c := pillar.New(pillar.Deps{Files: files{pillarRoots}, Renderer: rendertest.Renderer(),
		Functions: functions}, pillar.Options{Roots: envs, MasterOpts: opts}, nil, nil)
	o := orchestrate.Options{ID: "master1", AutoOrder: true,
		EnvOrder: texts(valueOf(config, "env_order")), GlobalConditions: mapOf(config,
			"global_state_conditions"), MergeStrategy: "recurse", Local: true, Opts: opts}
	for name, field := range map[string]*bool{"state_auto_order": &o.AutoOrder,
		"failhard": &o.Failhard, "state_events": &o.Events, "local": &o.Local, "test": &o.Test} {
		if v, ok := valueOf(config, name).(bool); ok {
			*field = v
		}
	}
	if n, ok := valueOf(config, "state_max_parallel").(int64); ok {
		o.MaxParallel = int(n)
	}
	o.DisabledRequisites = texts(valueOf(config, "disabled_requisites"))
	own := salttrees.Grains(t, "orchestrate.py")
	deps := orchestrate.Deps{
		Files: files{fileRoots}, Renderer: rendertest.Renderer(), Modules: functions,
		Functions: statemodules.Test(), Fire: fire,
		Grains: func() value.Map { return own },
		Pillar: func(ctx context.Context, id string, grains value.Map, saltenv, pillarenv string,
			over value.Map) (value.Map, error) {
			made, err := c.Pillar(ctx, pillar.Request{ID: id, Grains: grains, Saltenv: saltenv,
				Pillarenv: pillarenv, Override: over})
			return made.Pillar, err
		},
	}
	for _, f := range change {
		f(&deps, opts)
	}
	return orchestrate.New(deps, o, nil, nil)
}

func TestMain(m *testing.M) { rendertest.Main(m) }

// show writes what a tree gave as testdata/orchestrate.py does.
func show(t *testing.T, v any, root string) string {
	t.Helper()
	text, err := value.JSON(plain(v, root), value.JSONStyle{Indent: -1})
	if err != nil {
		t.Fatal(err)
	}
	return salttrees.Indent(t, []byte(text))
}

func plain(v any, root string) any {
	switch v := v.(type) {
	case value.Map:
		out := value.Map{}
		for _, p := range v {
			key := value.Str(plain(p.Key, root))
			if key != "start_time" && key != "duration" {
				out = append(out, value.Pair{Key: key, Value: plain(p.Value, root)})
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e, root)
		}
		return out
	case string:
		return strings.ReplaceAll(strings.ReplaceAll(v, root, "ROOT"), jid, "JID")
	}
	return v
}
