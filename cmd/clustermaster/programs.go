package main

import (
	"clustermaster/salt/cli"
	"clustermaster/serve/daemon"
)

// programs are the commands that package cli does not parse.
func programs() []cli.Program {
	own := cli.Program{
		Name: "clustermaster", Usage: "COMMAND [ARGUMENTS]",
		About: "A Salt master that is a cluster by nature. Each salt command is also a link to this program.",
		Options: []cli.Option{{Names: "-h --help", Help: "Print the commands and exit."},
			{Names: "--version", Help: "Print the version and exit."}},
		Examples: []string{"clustermaster init", "clustermaster config check -c /etc/salt"},
	}
	for _, c := range commands() {
		own.Words = append(own.Words, c.Name)
	}
	master := cli.Program{
		Name: "salt-master", Usage: "[OPTIONS]",
		About: "The Salt master; with cluster_id set, one of a cluster's.", Words: []string{},
		Options:  cli.OptionsOf(daemon.Flags()),
		Examples: []string{"salt-master -c /etc/salt -l info", "salt-master -d"},
	}
	return []cli.Program{own, master}
}
