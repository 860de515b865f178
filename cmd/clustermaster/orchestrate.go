package main

import (
	"context"

	"clustermaster/config/settings"
	"clustermaster/salt/orchestrate"
	"clustermaster/salt/output"
	"clustermaster/salt/statemodules"
	"clustermaster/serve/orders"
	"clustermaster/value"
)

// newOrchestrations makes the part that runs states on this master.
func (r *process) newOrchestrations() orders.Orchestrations {
	o, kept := r.opts, orchestrate.KeptPauses{Cache: r.banks}
	made := orchestrate.New(orchestrate.Deps{
		Files: opened{r.files}, Renderer: r.render, Modules: r.hosted,
		Functions: r.hosted.States(r.stateFunctions()),
		Pillar:    r.pillar.OnMaster,
		Decrypt: func(ctx context.Context, v any, renderer string) (any, error) {
			return r.pillar.Decrypt(ctx, o.ID, v, renderer)
		},
		Grains: r.grains,
		Fire:   func(tag string, data value.Map) { r.bus.Fire(tag, data) },
		Pauses: kept,
	}, settings.Orchestrate(o), r.log, r.reg)
	return orders.Orchestrations{Orchestrator: made, Pauses: kept}
}

// stateFunctions makes the functions of states.
func (r *process) stateFunctions() orchestrate.Table {
	o := r.opts
	return statemodules.New(statemodules.Deps{
		Minions: r.orders, Timeout: o.Timeout, GatherJobTimeout: o.GatherJobTimeout,
		SyndicWait: o.WaitForSyndics(), Failhard: o.Failhard, User: o.User,
		SSH:     r.hosted.SSH,
		Runners: orders.ForStates{Functions: r.functions}, Log: r.log,
		Fire: func(tag string, data value.Map) { r.bus.Fire(tag, data) }, Modules: r.hosted,
		Nested: func(v any, indent int) string {
			return output.Defaults().Text(output.Result{Value: v, Outputter: "nested",
				Indent: indent})
		},
	})
}
