package main

import (
	"context"

	"clustermaster/config/settings"
	"clustermaster/salt/mastertops"
	"clustermaster/salt/modules"
	"clustermaster/value"
)

// masterTops makes the handler of _master_tops; nil if the option master_tops names nothing.
func (r *process) masterTops() (func(ctx context.Context, id string, opts value.Map) value.Map,
	error) {
	option, _ := settings.Value(r.opts.Extra["master_tops"]).(value.Map)
	if len(option) == 0 {
		return nil, nil
	}
	t, err := mastertops.New(option, mastertops.Deps{
		Output: modules.Output, Renderer: r.render, Log: r.log,
		Other: func(ctx context.Context, name string, q mastertops.Request) (value.Map, error) {
			return r.hosted.Top(ctx, name, q.Opts, q.Grains)
		},
		Overrides: settings.Modules(r.opts).Site("tops").Has,
	})
	if err != nil {
		return nil, err
	}
	return t.Answer, nil
}
