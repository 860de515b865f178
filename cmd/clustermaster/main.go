package main

import (
	"context"
	"fmt"
	"os"

	"clustermaster/cluster/level"
	"clustermaster/config/settings"
	"clustermaster/salt/cli"
	"clustermaster/serve/daemon"
	"clustermaster/tools/bench"
	"clustermaster/tools/dev"
	"clustermaster/tools/setup"
	"clustermaster/tools/simulation"
)

// Version is the release. The linker may set it (-X main.Version); else it is the first release of
// the highest level that this program supports.
var Version string

func main() {
	if Version == "" {
		Version = level.Release(level.Supported())
	}
	os.Exit(binary().Run(context.Background(), os.Args, os.Stdout, os.Stderr))
}

func binary() cli.Binary {
	return cli.Binary{
		Name: "clustermaster", Version: Version, Commands: commands(),
		About:    "A Salt master that is a cluster by nature.",
		Examples: []string{"clustermaster init", "clustermaster salt-master -c /etc/salt", "salt '*' test.ping"},
	}
}

func commands() []cli.Command {
	env := cliEnv()
	typed := func(run func(context.Context, []string, cli.Env) int) func(context.Context,
		[]string) int {
		return cli.UntilSignal(func(ctx context.Context, args []string) int {
			return run(ctx, args, env)
		})
	}
	return append([]cli.Command{
		{Name: "salt-master", Help: "run the master", Run: saltMaster},
		{Name: "salt", Help: "run functions on minions", Run: typed(cli.Salt)},
		{Name: "salt-key", Help: "accept, reject, delete and list minion keys", Run: typed(cli.SaltKey)},
		{Name: "salt-run", Help: "run runner functions on this master", Run: typed(cli.SaltRun)},
		{Name: "salt-cp", Help: "copy a file to minions", Run: typed(cli.SaltCP)},
		{Name: "dev", Help: "start a cluster with a balancer and simulated minions, to play with", Run: dev.Command},
		{Name: "bench", Help: "measure masters from the minions' side: ours or Salt's",
			Run: func(ctx context.Context, args []string) int {
				return bench.Command(ctx, args, os.Stdout, os.Stderr)
			}},
		{Name: "simulate", Help: "show how a cluster grows, in memory",
			Run: func(ctx context.Context, args []string) int {
				return simulation.Command(ctx, args, os.Stdout, os.Stderr)
			}},
		{Name: "init", Help: "write the first configuration of a new cluster",
			Run: func(_ context.Context, args []string) int {
				return setup.Command(args, os.Stdout, os.Stderr)
			}},
		{Name: "config", Help: "config check [-c DIR]: read the configuration as a start would, and say what is wrong",
			Run: func(_ context.Context, args []string) int {
				return daemon.CheckConfig(args, settings.Check)
			}},
		{Name: "completion", Help: "completion bash|zsh|fish: print the shell completion",
			Run: func(_ context.Context, args []string) int {
				return cli.Completion(args, env, programs()...)
			}},
		{Name: "manuals", Help: "manuals DIR: write the manual pages of all commands into a folder",
			Run: func(_ context.Context, args []string) int {
				return cli.Manuals(args, env, "clustermaster "+Version, programs()...)
			}},
		{Name: "version", Help: "print the version", Run: func(context.Context, []string) int {
			fmt.Println("clustermaster " + Version)
			return 0
		}},
	}, operatingCommands()...)
}
