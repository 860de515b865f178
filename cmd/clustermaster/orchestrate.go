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
	"clustermaster/serve/fileserver"
	"clustermaster/value"
)

// stateFiles are file_roots as SLS files are read from them.
type stateFiles struct{ *fileserver.Server }

func (f stateFiles) Open(env, path string) (string, []byte, bool, error) { return f.Read(env, path) }

// newOrchestrator joins what runs states on this master.
func newOrchestrator(t *operators) *orchestrate.Orchestrator {
	r, o := t.rooms, t.opts
	return orchestrate.New(orchestrate.Deps{
		Files: stateFiles{r.files}, Renderer: r.render, Modules: r.modules, Functions: stateFunctions(t),
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
		Pauses: pauses{r},
	}, settings.Orchestrate(o), r.log, r.reg)
}

// stateFunctions are the functions of states.
func stateFunctions(t *operators) orchestrate.Functions {
	r, o := t.rooms, t.opts
	return statemodules.New(statemodules.Deps{
		Minions: t, Timeout: time.Duration(o.Timeout), GatherJobTimeout: o.GatherJobTimeout, Failhard: o.Failhard,
		Runners: stateRunners{t}, Fire: func(tag string, data value.Map) { r.bus.Fire(tag, data) }, Modules: r.modules, Files: r.files,
		Render: r.moduleDeps().Render,
		Nested: func(v any, indent int) string {
			return output.Defaults().Text(output.Result{Value: v, Outputter: "nested", Indent: indent})
		},
		Log: r.log,
	})
}

// stateRunners are the runner and wheel functions as states call them.
type stateRunners struct{ t *operators }

func (s stateRunners) of(wheel bool) *runner.Runner {
	if wheel {
		return s.t.wheels
	}
	return s.t.runners
}

func (s stateRunners) Takes(wheel bool, fun, param string) bool { return s.of(wheel).Takes(fun, param) }

func (s stateRunners) Check(o statemodules.Order) (statemodules.Order, error) {
	req, err := s.of(o.Wheel).Check(runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs, User: o.User})
	o.Args, o.Kwargs = req.Args, req.Kwargs
	return o, err
}

func (s stateRunners) Run(ctx context.Context, o statemodules.Order) (statemodules.Outcome, error) {
	res := s.of(o.Wheel).Run(ctx, runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs, User: o.User, Shown: true}, nil)
	return statemodules.Outcome{JID: res.JID, Return: res.Return, Success: res.Success}, ctx.Err()
}

// orchestrations runs states for the runner family state.
type orchestrations struct {
	*orchestrate.Orchestrator
	pauses
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
	return s.change(ctx, jid, change)
}

// pauses keeps which orchestrations are to wait, as keys of the cache: every master sees them.
type pauses struct{ r *rooms }

const pauseBank = "state_pause"

func (p pauses) Pause(ctx context.Context, jid string) (value.Map, error) {
	v, _, err := p.r.banks.Fetch(ctx, pauseBank, jid)
	m, _ := v.(value.Map)
	return m, err
}

func (p pauses) change(ctx context.Context, jid string, change func(value.Map) value.Map) error {
	asked, err := p.Pause(ctx, jid)
	if err != nil {
		return err
	}
	if asked = change(asked); len(asked) > 0 {
		return p.r.banks.Store(ctx, pauseBank, jid, asked)
	}
	_, err = p.r.banks.Flush(ctx, pauseBank, jid)
	return err
}

// Forget implements orchestrate.Pauses.
func (p pauses) Forget(ctx context.Context, jid string) error {
	asked, err := p.Pause(ctx, jid)
	if err != nil || asked == nil {
		return err
	}
	_, err = p.r.banks.Flush(ctx, pauseBank, jid)
	return err
}
