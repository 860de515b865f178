package main

import (
	"context"
	"os"

	"clustermaster/salt/cli"
	"clustermaster/salt/modules"
	"clustermaster/salt/runner"
	"clustermaster/serve/checkup"
	"clustermaster/tools/doctor"
	"clustermaster/tools/migrate"
	"clustermaster/tools/status"
)

// operatingCommands look at a master or a cluster from the outside.
func operatingCommands() []cli.Command {
	looking := func(name, help string) cli.Command {
		return cli.Command{Name: name, Help: help, Run: cli.UntilSignal(
			func(ctx context.Context, args []string) int {
				return status.Command(ctx, name, args, os.Stdout, os.Stderr)
			})}
	}
	return []cli.Command{
		{Name: "doctor", Help: "check this machine, its configuration and its cluster",
			Run: cli.UntilSignal(func(ctx context.Context, args []string) int {
				return doctor.Command(ctx, args, os.Stdout, os.Stderr)
			})},
		{Name: "migrate", Help: "migrate plan|apply|rollback: from a Salt master to this one, and back",
			Run: cli.UntilSignal(func(ctx context.Context, args []string) int {
				return migrate.Command(ctx, args, modules.New(modules.Deps{}).Names(), os.Stdout,
					os.Stderr)
			})},
		looking("status", "show the cluster: masters, what is being moved, what is wrong"),
		looking("members", "list the masters of the cluster"),
		looking("watch", "show the cluster again and again, or wait until it is healthy"),
	}
}

// openCheckup makes this master's part of the exchange of reports.
func (r *process) openCheckup() {
	r.checkup = &checkup.Exchange{Options: r.opts, Release: Version, Bus: r.bus, Mesh: r.mesh}
}

// adoptJobs imports the jobs of a Salt master.
func (r *process) adoptJobs(ctx context.Context, cachedir string, dry bool) (runner.AdoptedJobs,
	error) {
	done, err := r.jobs.Adopt(ctx, cachedir, dry)
	return runner.AdoptedJobs(done), err
}
