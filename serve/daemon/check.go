package daemon

import (
	"context"
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
// package config's checks, and what it takes although it can't work.
func CheckConfig(args []string, check func(*config.Options) (doubts []string, err error)) int {
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
		err = startable(o, check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitConfig
	}
	if !o.HasFile() {
		fmt.Printf("warning: %s\nthe defaults: good\n", o.NoFile())
		return 0
	}
	fmt.Printf("%s: good\n", o.ConfFile)
	return 0
}

// startable is an error of all that a start would refuse on this machine.
func startable(o *config.Options, check func(*config.Options) (doubts []string, err error)) error {
	doubts, err := check(o)
	for _, d := range doubts {
		fmt.Println("warning:", d)
	}
	errs := []error{err, noHost(context.Background(), o)}
	var unknown *noUserError
	if _, err := lookupUser(o.User); errors.As(err, &unknown) {
		errs = append(errs, fmt.Errorf("user: %s is no user of this machine; make it, or name another",
			unknown.name))
	}
	return errors.Join(errs...)
}
