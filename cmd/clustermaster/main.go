package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"clustermaster/cluster/level"
	"clustermaster/salt/cli"
	"clustermaster/serve/daemon"
	"clustermaster/tools/bench"
	"clustermaster/tools/dev"
	"clustermaster/tools/setup"
	"clustermaster/tools/simulation"
)

// Version is the release, which the linker may name (-X main.Version); else it is the first one of
// the highest level that this program supports.
var Version string

// command is one entry of the binary.
type command struct {
	name, help string
	run        func(ctx context.Context, args []string) int
}

func commands() []command {
	env := cliEnv()
	// Ctrl-C ends a command in order: it says which job goes on without it.
	typed := func(run func(context.Context, []string, cli.Env) int) func(context.Context,
		[]string) int {
		return func(ctx context.Context, args []string) int {
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return run(ctx, args, env)
		}
	}
	return append([]command{
		{"salt-master", "run the master", saltMaster},
		{"salt", "run functions on minions", typed(cli.Salt)},
		{"salt-key", "accept, reject, delete and list minion keys", typed(cli.SaltKey)},
		{"salt-run", "run runner functions on this master", typed(cli.SaltRun)},
		{"salt-cp", "copy a file to minions", typed(cli.SaltCP)},
		{"dev", "start a cluster with a balancer and simulated minions, to play with", dev.Command},
		{"bench", "measure masters from the minions' side: ours or Salt's",
			func(ctx context.Context, args []string) int {
				return bench.Command(ctx, args,
					os.Stdout, os.Stderr)
			}},
		{"simulate", "show how a cluster grows, in memory",
			func(ctx context.Context, args []string) int {
				return simulation.Command(ctx, args, os.Stdout, os.Stderr)
			}},
		{"init", "write the first configuration of a new cluster",
			func(_ context.Context, args []string) int {
				return setup.Command(args, os.Stdout, os.Stderr)
			}},
		{"config",
			"config check [-c DIR]: read the configuration as a start would, and say what is wrong",
			configCommand},
		{"completion", "completion bash|zsh|fish: print the shell completion",
			func(_ context.Context, args []string) int {
				return cli.Completion(args, env, programs()...)
			}},
		{"manuals", "manuals DIR: write the manual pages of all commands into a folder",
			manualsCommand},
		{"version", "print the version",
			func(context.Context, []string) int {
				fmt.Println("clustermaster " +
					Version)
				return 0
			}},
	}, operatingCommands()...)
}

func main() {
	if Version == "" {
		Version = level.Release(level.Supported())
	}
	os.Exit(dispatch(context.Background(), os.Args))
}

// dispatch runs the command that the program's name or first argument says.
func dispatch(ctx context.Context, args []string) int {
	all := commands()
	find := func(name string) (command, bool) {
		i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
		if i < 0 {
			return command{}, false
		}
		return all[i], true
	}
	if c, ok := find(filepath.Base(args[0])); ok {
		return c.run(ctx, args[1:])
	}
	if len(args) > 1 {
		if c, ok := find(args[1]); ok {
			return c.run(ctx, args[2:])
		}
		switch args[1] {
		case "-h", "--help", "help":
			usage(os.Stdout, all)
			return 0
		case "--version":
			fmt.Println("clustermaster " + Version)
			return 0
		}
		fmt.Fprintf(os.Stderr, "clustermaster: no command %q\n", args[1])
	}
	usage(os.Stderr, all)
	return daemon.ExitUsage
}

func usage(w *os.File, all []command) {
	fmt.Fprintf(w,
		"Usage: clustermaster COMMAND [ARGUMENTS]\n\nA Salt master that is a cluster by nature. Each salt* command is also a link to this binary.\n\n")
	for _, c := range all {
		fmt.Fprintf(w, "  %-12s %s\n", c.name, c.help)
	}
	fmt.Fprintf(w,
		"\nExamples:\n  clustermaster init\n  clustermaster salt-master -c /etc/salt\n  salt '*' test.ping\n")
}
