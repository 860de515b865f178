package main

import (
	"context"
	"fmt"
	"os"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/salt/cli"
	"clustermaster/serve/daemon"
	"clustermaster/serve/operator"
	"clustermaster/serve/orders"
)

// saltVersion is the release of Salt that this master speaks as.
const saltVersion = cli.SaltVersion

func cliEnv() cli.Env {
	e := cli.OS()
	e.Build = Version
	e.Versions = daemon.Versions
	e.Offline = func(_ context.Context, o *config.Options) (operator.KeyLists, error) {
		return orders.OfflineKeys(o.KeysDir())
	}
	return e
}

func printVersions(prog string, all bool) {
	if all {
		fmt.Printf("Salt Version:\n          Salt: %s (clustermaster %s)\n\n%s\n", saltVersion, Version,
			daemon.Versions())
		return
	}
	fmt.Printf("%s %s (clustermaster %s)\n", prog, saltVersion, Version)
}

// configCommand is "clustermaster config check".
func configCommand(_ context.Context, args []string) int {
	dir := ""
	if len(args) == 3 && args[1] == "-c" {
		dir, args = args[2], args[:1]
	}
	if len(args) != 1 || args[0] != "check" {
		fmt.Fprintln(os.Stderr, "Usage: clustermaster config check [-c DIR]")
		return daemon.ExitUsage
	}
	o, warnings, err := config.Load(dir, os.Getenv)
	for _, w := range warnings {
		fmt.Println("warning:", w)
	}
	if err == nil {
		err = settings.Check(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return daemon.ExitConfig
	}
	fmt.Printf("%s: good\n", o.ConfFile)
	return 0
}
