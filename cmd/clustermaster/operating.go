package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"clustermaster/salt/modules"
	"clustermaster/salt/runner"
	"clustermaster/serve/checkup"
	"clustermaster/tools/doctor"
	"clustermaster/tools/migrate"
	"clustermaster/tools/status"
)

// operatingCommands look at a master or a cluster from the outside.
func operatingCommands() []command {
	looking := func(name string) func(context.Context, []string) int {
		return func(ctx context.Context, args []string) int {
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return status.Command(ctx, name, args, os.Stdout, os.Stderr)
		}
	}
	return []command{
		{"doctor", "check this machine, its configuration and its cluster",
			func(ctx context.Context, args []string) int {
				ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				return doctor.Command(ctx, args, os.Stdout, os.Stderr)
			}},
		{"migrate", "migrate plan|apply|rollback: from a Salt master to this one, and back",
			func(ctx context.Context, args []string) int {
				ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				return migrate.Command(ctx, args, modules.New(modules.Deps{}).Names(), os.Stdout,
					os.Stderr)
			}},
		{"status", "show the cluster: masters, what is being moved, what is wrong",
			looking("status")},
		{"members", "list the masters of the cluster", looking("members")},
		{"watch", "show the cluster again and again, or wait until it is healthy",
			looking("watch")},
	}
}

// openCheckup makes this master's part of the exchange of reports.
func (r *process) openCheckup() {
	r.checkup = &checkup.Exchange{Options: r.opts, Release: Version, Bus: r.bus, Mesh: r.mesh}
}

// adoptJobs takes in the jobs of a Salt master.
func (r *process) adoptJobs(ctx context.Context, cachedir string, dry bool) (runner.AdoptedJobs,
	error) {
	done, err := r.jobs.Adopt(ctx, cachedir, dry)
	return runner.AdoptedJobs(done), err
}
