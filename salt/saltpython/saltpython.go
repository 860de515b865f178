// Package saltpython finds an interpreter of Python that has Salt.
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

// Onedir is where Salt's own packages put their interpreter.
const Onedir = "/opt/saltstack/salt/bin/python3"

// None is the value of the option python_host by which none is used.
const None = "none"

// probe ends with 0 where the interpreter can import Salt, which it does not do: that takes long.
const probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('salt') is None)"

const probeTimeout = 20 * time.Second

// Find returns the interpreter that the option python_host names; "" looks for Salt's own, and for
// a python3 in PATH that has Salt. The error says what to install.
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
		return "",
			errors.New("no Python with Salt is installed: install the package salt-common or salt-master, or name an interpreter with python_host")
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

// has tells whether an interpreter has Salt. A yes is kept, for it costs a process.
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

// pause is how long a search without success is believed.
const pause = time.Minute

// Finder looks for the interpreter when it is first asked, and again a minute after it found none.
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
