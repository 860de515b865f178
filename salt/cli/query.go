package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"clustermaster/config"
	"clustermaster/serve/operator"
)

// ErrDown is the error of Query if no master answers on the socket in the configuration's sock_dir.
var ErrDown = errors.New("no master answers")

// NoRightsError is the error of Query for a user that may not connect to the socket.
type NoRightsError = operator.NoRightsError

// unadorned is the configuration of a user, without the options that change what salt-run prints
// or that have it not wait for the result.
func unadorned(dir string, getenv func(string) string) (*config.Options, []config.Warning, error) {
	o, warnings, err := config.LoadForClient(dir, getenv)
	if o != nil {
		o.ShowJID, o.OutputFile = false, ""
		delete(o.Extra, "async")
		delete(o.Extra, "quiet")
	}
	return o, warnings, err
}

// Query runs a runner function in the way of salt-run, on the master of the configuration folder
// dir, and decodes its answer into to, a pointer for package json. args are arguments as on a
// command line. warnings are the lines that salt-run prints on standard error. The error is
// ErrDown if no master runs, and a NoRightsError for a user that may not ask it.
func Query(ctx context.Context, getenv func(string) string, dir string, to any, fun string,
	args ...string) (warnings []string, err error) {
	var stdout, stderr strings.Builder
	env := Env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Getenv: getenv,
		Load: unadorned}
	var down error
	env.Dial = func(ctx context.Context, sockDir string) (Daemon, error) {
		d, err := Env{}.dial(ctx, &config.Options{SockDir: sockDir})
		switch {
		case errors.As(err, new(*NoRightsError)):
			down = err
		case err != nil:
			down = ErrDown
		}
		return d, err
	}
	words := []string{"--out=json"}
	if dir != "" {
		words = append(words, "-c", dir)
	}
	SaltRun(ctx, append(append(words, fun), args...), env)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for line := range strings.Lines(stderr.String()) {
		if line = strings.TrimSpace(strings.TrimPrefix(line, "[WARNING ]")); line != "" {
			warnings = append(warnings, line)
		}
	}
	if down != nil {
		return warnings, down
	}
	dec := json.NewDecoder(strings.NewReader(stdout.String()))
	if err := dec.Decode(to); err != nil {
		text := strings.TrimSpace(stdout.String())
		var said string
		if json.Unmarshal([]byte(text), &said) == nil {
			text = said
		}
		if text == "" {
			text = strings.Join(warnings, "; ")
		}
		return warnings, fmt.Errorf("%s: %s", fun, text)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return warnings, fmt.Errorf("%s: more than one answer", fun)
	}
	return warnings, nil
}
