package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"clustermaster/serve/checkup"
	"clustermaster/tools/doctor"
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
		{"doctor", "check this machine, its configuration and its cluster", func(ctx context.Context, args []string) int {
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return doctor.Command(ctx, args, os.Stdout, os.Stderr)
		}},
		{"status", "show the cluster: masters, what is being moved, what is wrong", looking("status")},
		{"members", "list the masters of the cluster", looking("members")},
		{"watch", "show the cluster again and again, or wait until it is healthy", looking("watch")},
	}
}

// openCheckup makes this master's part of the exchange of reports.
func (r *rooms) openCheckup() {
	r.checkup = &checkup.Exchange{Options: r.opts, Release: Version, Bus: r.bus, Mesh: r.mesh}
}
