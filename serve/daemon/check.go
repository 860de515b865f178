package daemon

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"clustermaster/config"
)

const checkUsage = `Usage: clustermaster config check [-c DIR]

Reads the configuration as a start would, and says what is wrong. It changes nothing.

Options:
  -c DIR   folder of the file "master" (default /etc/salt)

Exit codes: 0 the configuration is good, 1 a start would refuse it, 64 the command line is wrong.

Examples:
  clustermaster config check
  clustermaster config check -c /etc/salt
`

// CheckConfig implements "clustermaster config check": it reads the configuration as a start would,
// and also refuses files that a start would leave out. Check reports what a start refuses beyond
// package config's checks.
func CheckConfig(args []string, check func(*config.Options) error) int {
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		fmt.Print(checkUsage)
		return 0
	}
	dir := ""
	if len(args) == 3 && args[1] == "-c" {
		dir, args = args[2], args[:1]
	}
	if len(args) != 1 || args[0] != "check" {
		fmt.Fprintln(os.Stderr, "Usage: clustermaster config check [-c DIR]")
		return ExitUsage
	}
	o, warnings, err := config.Load(dir, os.Getenv)
	for _, w := range warnings {
		if !w.Severe {
			fmt.Println("warning:", w)
		}
	}
	if err = errors.Join(err, config.Broken(warnings)); err == nil {
		err = check(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitConfig
	}
	fmt.Printf("%s: good\n", o.ConfFile)
	return 0
}
