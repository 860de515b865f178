package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"clustermaster/config/saltlog"
)

// exitUsage is EX_USAGE of sysexits.h.
const exitUsage = 64

// Command is "clustermaster dev": the playground. It returns the exit code.
func Command(ctx context.Context, args []string) int {
	cfg := Config{Stdout: os.Stdout, Stderr: os.Stderr}
	var level string
	fs := pflag.NewFlagSet("clustermaster dev", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.Dir, "dir", "",
		"folder for configs, state and logs; kept (default: a temporary one, removed)")
	fs.IntVar(&cfg.Masters, "masters", 3, "number of masters, 1 to 9")
	fs.IntVar(&cfg.Simulated, "minions", 3, "number of simulated minions")
	fs.StringVar(&cfg.HAProxy, "haproxy", "",
		"HAProxy program to balance with (default: a built-in balancer)")
	fs.StringVar(&cfg.Template, "haproxy-config", "lb/haproxy.cfg",
		"HAProxy config whose addresses are filled in")
	fs.StringVar(&cfg.Venvs, "venvs", "",
		"folder with virtual environments salt-RELEASE: one real salt-minion of each instead of simulated ones")
	fs.BoolVar(&cfg.Leave, "leave", false,
		"stop everything after the tour instead of waiting for Ctrl-C")
	fs.StringVarP(&level, "log-level", "l", "error", "log level of balancer and simulated minions")
	err := fs.Parse(args)
	lv, lerr := saltlog.ParseLevel(level)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Printf("Usage: clustermaster dev [options]\n\nStart a cluster on loopback addresses with minions behind a balancer, show what it does, and let you play.\n\nOptions:\n%s\nExamples:\n  clustermaster dev\n  clustermaster dev --masters 5 --minions 20\n  clustermaster dev --haproxy haproxy --venvs .build/venvs\n", fs.FlagUsages())
		return 0
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("it takes no argument %q", fs.Arg(0))
	case err == nil && (cfg.Masters < 1 || cfg.Masters > 9):
		err = fmt.Errorf("--masters %d: must be 1 to 9", cfg.Masters)
	case err == nil:
		err = lerr
	}
	if err != nil {
		fmt.Fprintf(os.Stderr,
			"Usage: clustermaster dev [options]\n\nclustermaster dev: error: %v\n", err)
		return exitUsage
	}
	exe, err := os.Executable()
	if err == nil {
		cfg.Binary, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clustermaster dev: find own program:", err)
		return 1
	}
	cfg.Log = slog.New(saltlog.New(saltlog.Output{To: saltlog.Stream(os.Stderr), Level: lv,
		Layout: saltlog.Console}))
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := Run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "clustermaster dev:", err)
		return 1
	}
	return 0
}
