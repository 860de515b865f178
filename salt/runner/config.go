package runner

import (
	"context"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Config is the family config. options returns the master's configuration as read, without secrets.
func Config(options func() value.Map) []Function {
	return []Function{{
		Name: "config.get", Params: []function.Param{function.Need("key"),
			function.Opt("default", ""), function.Opt("delimiter", ":")},
		Doc: `Return an option of the master; a key with colons goes into maps and lists.

Example:

    salt-run config.get file_roots:base
    salt-run config.get file_roots,base delimiter=','`,
		Run: func(_ context.Context, c *Call) (any, error) {
			v, ok := value.Traverse(options(), c.Text("key"), c.Text("delimiter"))
			if !ok {
				return c.Arg("default"), nil
			}
			return v, nil
		},
	}}
}

// ConfigWheel is the wheel family config. values returns all options of the master, set or not,
// without secrets.
func ConfigWheel(values func() value.Map) []Function {
	return []Function{{
		Name: "config.values",
		Doc: `Return every option of the master with its value. Secrets are hidden.

Example:

    wheel.cmd('config.values')`,
		Run: func(context.Context, *Call) (any, error) { return values(), nil },
	}}
}
