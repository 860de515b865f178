package main

import (
	"context"

	"clustermaster/config/settings"
	"clustermaster/salt/modules"
	"clustermaster/salt/reactor"
	"clustermaster/value"
)

// openReactor makes the reactor; it needs bus, renderer and state only when it runs.
func (r *process) openReactor() {
	o := r.opts
	rules, _ := settings.Value(o.Reactor).([]any)
	opts, _ := settings.Value(o.Values()).(value.Map)
	r.reactions = reactor.NewAgreed(r.node)
	grains := r.grains()
	r.reactor = reactor.New(reactor.Deps{
		Bus: r.bus, Renderer: r.render, Host: reactor.Host{
			Functions: r.hosted, Open: opened{r.files}.Open,
			Minion: modules.Minion{ID: o.ID, Grains: grains, Saltenv: "base", Opts: opts},
		}, File: opened{r.files}.Open,
		Changes: r.reactions.Changes,
		Publish: func(ctx context.Context, j reactor.Job) error { return r.orders.React(ctx, j, o.User) },
		Run:     r.functions.React,
		Caller: func(ctx context.Context, c reactor.Call) error {
			return r.onMaster().Do(ctx, c.Fun, c.Args, c.Kwargs)
		},
		Signature: r.functions.Signature,
	}, reactor.Options{
		Rules: reactor.ReadRules(rules), Renderer: o.Renderer, ID: o.ID, Grains: grains, Opts: opts,
		WorkerThreads: o.ReactorWorkerThreads, WorkerHWM: o.ReactorWorkerHWM,
	}, r.log, r.reg)
}
