package main

import (
	"context"
	"fmt"

	"clustermaster/config"
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
