package main

import (
	"context"

	"clustermaster/config/settings"
	"clustermaster/salt/schedule"
	"clustermaster/value"
)

// openSchedule makes the schedule.
func (r *process) openSchedule() {
	o := r.opts
	option, _ := settings.Value(o.Schedule).(value.Map)
	entries := schedule.Entries(option, func(fun string) bool {
		_, ok := r.functions.Runners.Lookup(fun)
		return ok
	}, r.log)
	r.sched = schedule.New(schedule.Deps{
		Cluster: schedule.Agreed{Node: r.node, Reachable: r.node.Peers().Alive},
		Run:     r.functions.Scheduled, Return: r.returners.Ran,
		Fire: r.bus.Fire, NewJID: r.newJID, Now: r.node.Now,
	},
		schedule.Options{Entries: entries, ID: o.ID, Node: r.node.Self().Node, Alone: r.port == nil,
			Window: o.LoopInterval, ClockLimit: o.ClusterClockLimit,
			Returners: settings.ScheduleReturners(o)}, r.log, r.reg)
}

// runSchedule runs the schedule once this master has the cluster's state.
func (r *process) runSchedule(ctx context.Context) error {
	if r.node.WaitServing(ctx) != nil { // ctx has ended
		return nil
	}
	return r.sched.Run(ctx)
}
