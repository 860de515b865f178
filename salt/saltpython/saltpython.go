// Package saltpython finds a Python interpreter that has Salt.
package saltpython

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Onedir is the interpreter of Salt's own packages.
const Onedir = "/opt/saltstack/salt/bin/python3"

// None is the value of the option python_host that turns Python off.
const None = "none"

// probe exits with 0 if the interpreter has Salt. It does not import Salt, which takes long.
const probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('salt') is None)"

const probeTimeout = 20 * time.Second

// ErrMissing is the answer of Find on a machine without Salt.
var ErrMissing = errors.New("no Python with Salt is installed: install the package salt-common (rpm: salt), or name an interpreter with python_host")

// Find returns the interpreter that the option python_host names. For "" it looks for Salt's own,
// then for a python3 in PATH that has Salt. The error says what to install.
func Find(option string) (string, error) {
	switch option {
	case None:
		return "", errors.New("python_host is none: name an interpreter there that has Salt")
	case "":
		for _, candidate := range []string{Onedir, "python3"} {
			path, err := exec.LookPath(candidate)
			if err == nil && has(path) == nil {
				return path, nil
			}
		}
		return "", ErrMissing
	}
	path, err := exec.LookPath(option)
	if err != nil {
		return "", fmt.Errorf("python_host %s can't be run: %w", option, err)
	}
	if err := has(path); err != nil {
		return "", fmt.Errorf("python_host %s: %w", option, err)
	}
	return path, nil
}

var probed sync.Map // path to error

// has returns nil if an interpreter has Salt. That answer is kept, because each probe starts a
// process.
func has(path string) error {
	if _, ok := probed.Load(path); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-c", probe).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1 && len(out) == 0:
		return errors.New("it has no Salt; install Salt for it")
	case err != nil:
		return fmt.Errorf("it does not run: %w: %s", err,
			strings.TrimSpace(string(out[:min(len(out), 500)])))
	}
	probed.Store(path, true)
	return nil
}

// pause is how long a failed search is not repeated.
const pause = time.Minute

// Finder returns a function that looks for the interpreter at its first call, and again a minute
// after a search found none.
func Finder(option string) func() (string, error) {
	return finder(func() (string, error) { return Find(option) })
}

func finder(find func() (string, error)) func() (string, error) {
	var mu sync.Mutex
	var path string
	var err error
	var until time.Time
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if path == "" && time.Now().After(until) {
			path, err = find()
			until = time.Now().Add(pause)
		}
		return path, err
	}
}
