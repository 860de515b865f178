package main

import (
	"context"
	"errors"

	"clustermaster/cluster/fsm"
	"clustermaster/config/settings"
	"clustermaster/internal/origin"
	"clustermaster/salt/schedule"
	"clustermaster/value"
)

// openSchedule makes the schedule and says what is wrong with its entries.
func (r *rooms) openSchedule() {
	o := r.opts
	log := r.log.With("component", "schedule")
	option, _ := settings.Value(o.Schedule).(value.Map)
	entries, problems := schedule.Read(option)
	for _, p := range problems {
		if p.Runs {
			log.Warn("scheduled job: "+p.Text, "name", p.Name)
		} else {
			log.Error("scheduled job is not run", "name", p.Name, "err", p.Text)
		}
	}
	for _, e := range entries {
		if _, ok := r.operators.runners.Lookup(e.Function); !ok {
			log.Error("Invalid function in scheduled job; salt-run -d lists those that are here", "name", e.Name, "fun", e.Function)
		}
	}
	r.sched = schedule.New(schedule.Deps{
		Cluster: scheduleCluster{r},
		Run: func(ctx context.Context, jid, fun string, args []any, kwargs value.Map) schedule.Outcome {
			ctx = origin.With(ctx, origin.Origin{From: "schedule", Order: fun, Automatic: true})
			val, code, err := r.operators.runners.Quiet(ctx, "salt/scheduler/"+jid, jid, fun, args, kwargs)
			return schedule.Outcome{Return: val, Retcode: code, Err: err}
		},
		Fire: r.bus.Fire, NewJID: func() string { return r.master.NewJID() }, Now: r.node.Now,
	}, schedule.Options{Entries: entries, ID: o.ID, Node: r.node.Self().Node, Alone: r.port == nil, Window: o.LoopInterval}, r.log, r.reg)
}

// runSchedule runs the schedule once this master knows what the cluster knows.
func (r *rooms) runSchedule(ctx context.Context) error {
	if err := r.node.WaitServing(ctx); err != nil {
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	return r.sched.Run(ctx)
}

// scheduleCluster is the cluster as the schedule sees it.
type scheduleCluster struct{ r *rooms }

var _ schedule.Cluster = scheduleCluster{}

func (c scheduleCluster) Leading() bool            { return c.r.node.IsLeader() }
func (c scheduleCluster) Entries() []fsm.Scheduled { return c.r.node.State().ScheduledEntries() }
func (c scheduleCluster) Alive(node string) bool   { return ringPeers(c).Alive(node) }

func (c scheduleCluster) Scheduled(name string) (fsm.Scheduled, bool) {
	return c.r.node.State().Scheduled(name)
}

func (c scheduleCluster) Propose(ctx context.Context, cmd fsm.Command) (fsm.Result, error) {
	done, _, err := c.r.node.Propose(ctx, cmd)
	return done, err
}
