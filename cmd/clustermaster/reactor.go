package main

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/config/settings"
	"clustermaster/salt/gather"
	"clustermaster/salt/mastergrains"
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
	grains := mastergrains.Of(o.ID, saltVersion)
	r.reactor = reactor.New(reactor.Deps{
		Bus: r.bus, Renderer: r.render, Host: reactor.Host{
			Functions: r.hosted, Open: opened{r.files}.Open,
			Minion: modules.Minion{ID: o.ID, Grains: grains, Saltenv: "base", Opts: opts},
		}, File: opened{r.files}.Open,
		Changes: r.reactions.Changes,
		Publish: func(ctx context.Context, j reactor.Job) error {
			done, err := r.orders.Publish(ctx, gather.Publish{
				Tgt: j.Tgt, TgtType: j.TgtType, Fun: j.Fun, Arg: j.Args, Ret: j.Ret, JID: j.JID,
				User: o.User, Kwargs: j.Kwargs,
			})
			if err == nil && done.Error != "" {
				err = errors.New(done.Error)
			}
			return err
		},
		Run: r.functions.React,
		Caller: func(ctx context.Context, c reactor.Call) error {
			_, found, err := r.onMaster().Run(ctx, c.Fun, c.Args, c.Kwargs)
			if err == nil && !found {
				err = fmt.Errorf("function %s: %w", c.Fun, modules.ErrUnknown)
			}
			return err
		},
		Signature: r.functions.Signature,
	}, reactor.Options{
		Rules: reactor.ReadRules(rules), Renderer: o.Renderer, ID: o.ID, Grains: grains, Opts: opts,
		WorkerThreads: o.ReactorWorkerThreads, WorkerHWM: o.ReactorWorkerHWM,
	}, r.log, r.reg)
}
