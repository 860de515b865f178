package main

import (
	"context"
	"time"

	"clustermaster/config/settings"
	"clustermaster/internal/yaml11"
	"clustermaster/salt/mastergrains"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/output"
	"clustermaster/salt/pillar"
	"clustermaster/salt/runner"
	"clustermaster/salt/statemodules"
	"clustermaster/serve/orders"
	"clustermaster/value"
)

// newOrchestrations joins what runs states on this master.
func (r *rooms) newOrchestrations() orchestrations {
	o, kept := r.opts, orchestrate.KeptPauses{Cache: r.banks}
	made := orchestrate.New(orchestrate.Deps{
		Files: opened{r.files}, Renderer: r.render, Modules: r.modules, Functions: r.stateFunctions(),
		Pillar: func(ctx context.Context, id string, grains value.Map, saltenv, pillarenv string, over value.Map) (value.Map, error) {
			made, err := r.pillar.Pillar(ctx, pillar.Request{ID: id, Grains: grains, Saltenv: saltenv, Pillarenv: pillarenv, Override: over, CleanCache: true})
			return made.Pillar, err
		},
		Decrypt: func(ctx context.Context, v any, renderer string) (any, error) {
			text := string(yaml11.Dump(value.Map{{Key: "v", Value: v}}))
			made, err := r.pillar.RenderText(ctx, pillar.Request{ID: o.ID}, nil, nil, "", text, "yaml|"+renderer, nil)
			if err != nil {
				return nil, err
			}
			m, _ := made.(value.Map)
			plain, _ := m.Get("v")
			return plain, nil
		},
		Grains: func() value.Map { return mastergrains.Of(o.ID, saltVersion) },
		Fire:   func(tag string, data value.Map) { r.bus.Fire(tag, data) },
		Pauses: kept,
	}, settings.Orchestrate(o), r.log, r.reg)
	return orchestrations{made, kept}
}

// stateFunctions are the functions of states.
func (r *rooms) stateFunctions() orchestrate.Functions {
	o := r.opts
	return statemodules.New(statemodules.Deps{
		Minions: r.orders, Timeout: time.Duration(o.Timeout), GatherJobTimeout: o.GatherJobTimeout, Failhard: o.Failhard,
		Runners: orders.ForStates{Functions: r.functions}, Fire: func(tag string, data value.Map) { r.bus.Fire(tag, data) }, Modules: r.modules, Files: r.files,
		Render: r.moduleDeps().Render,
		Nested: func(v any, indent int) string {
			return output.Defaults().Text(output.Result{Value: v, Outputter: "nested", Indent: indent})
		},
		Log: r.log,
	})
}

// orchestrations runs states for the runner family state.
type orchestrations struct {
	*orchestrate.Orchestrator
	orchestrate.KeptPauses
}

var _ runner.Orchestrator = orchestrations{}

func (s orchestrations) SLS(ctx context.Context, o runner.Orchestration) (any, bool, error) {
	v, err := s.Orchestrator.SLS(ctx, orchestrate.Request(o))
	ret, _ := v.(value.Map)
	return v, orchestrate.Succeeded(ret), err
}

func (s orchestrations) Show(ctx context.Context, o runner.Orchestration) (any, error) {
	return s.Orchestrator.Show(ctx, orchestrate.Request(o))
}

func (s orchestrations) High(ctx context.Context, data value.Map, o runner.Orchestration) (any, error) {
	return s.Orchestrator.High(ctx, data, orchestrate.Request(o))
}

func (s orchestrations) Single(ctx context.Context, fun, name string, kwargs value.Map, o runner.Orchestration) (any, error) {
	return s.Orchestrator.Single(ctx, fun, name, kwargs, orchestrate.Request(o))
}

func (s orchestrations) Pause(ctx context.Context, jid string, change func(value.Map) value.Map) error {
	return s.Change(ctx, jid, change)
}
