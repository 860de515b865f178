package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/keystore"
	"clustermaster/salt/cli"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/daemon"
	"clustermaster/serve/operator"
)

// saltVersion is the release of Salt that this master speaks as.
const saltVersion = cli.SaltVersion

func cliEnv() cli.Env {
	e := cli.OS()
	e.Build = Version
	e.Versions = versions
	e.Offline = offlineKeys
	return e
}

func printVersions(prog string, all bool) {
	fmt.Printf("%s %s (clustermaster %s)\n", prog, saltVersion, Version)
	if all {
		fmt.Println("\n" + versions())
	}
}

// versions lists the program's parts, one a line.
func versions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Dependency Versions:\n %20s: %s\n", "go", runtime.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			fmt.Fprintf(&b, " %20s: %s\n", d.Path[strings.LastIndexByte(d.Path, '/')+1:], d.Version)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// offlineKeys reads the key folders of a master that does not run.
func offlineKeys(_ context.Context, o *config.Options) (operator.KeyLists, error) {
	keys, err := keystore.ReadDir(o.KeysDir())
	if err != nil {
		return operator.KeyLists{}, err
	}
	var lists operator.KeyLists
	for _, k := range keys {
		lists.Keys = append(lists.Keys, operator.Key{ID: k.ID, State: k.State.String(), Pub: k.Pub})
	}
	return lists, nil
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
		_, err = settings.Master(o)
	}
	if err == nil {
		_, err = acl.New(settings.ACL(o))
	}
	if err == nil {
		noPython := func(context.Context) ([]string, error) { return nil, errors.New("nobody is asked") }
		_, err = auth.New(settings.Auth(o), auth.Deps{Python: noPython})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return daemon.ExitConfig
	}
	fmt.Printf("%s: good\n", o.ConfFile)
	return 0
}
