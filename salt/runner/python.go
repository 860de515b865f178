package runner

import (
	"context"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// PythonHost runs functions of Salt's loader beside this master.
type PythonHost interface {
	// Status describes the processes and their calls.
	Status() PythonStatus
	// Runner runs one of Salt's own runner functions in Python.
	Runner(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error)
}

// PythonStatus describes the Python processes.
type PythonStatus struct {
	Interpreter  string // "" if none has Salt; then Problem says why
	Problem      string
	Python, Salt string // versions; "" while no process runs
	PID          int
	Children     uint64 // started so far
	Calls        []PythonCall
	// Modules, Runners and Wheels are the site's own.
	Modules, Runners, Wheels []string
	Engines                  value.Map // name to its state
}

// PythonCall is a running call.
type PythonCall struct {
	PID       int
	Fun, File string
	Since     time.Time
}

// synced are the kinds of modules that Salt's runner saltutil copies.
var synced = []string{
	"all", "cache", "clouds", "eauth_tokens", "engines", "executors", "fileserver", "grains",
	"modules", "output", "pillar",
	"proxymodules", "queues", "renderers", "returners", "roster", "runners", "sdb", "serializers",
	"states", "thorium", "tops",
	"utils", "wheel",
}

// Python is the family python, and saltutil.sync_*.
func Python(host PythonHost) []Function {
	out := []Function{{
		Name: "python.status",
		Doc: `Show the Python host of this master: interpreter, versions, process, children started, calls
under way, the site's own modules, and the engines.

Example:

    salt-run python.status`,
		Run: func(context.Context, *Call) (any, error) { return pythonStatus(host.Status()), nil },
	}}
	for _, kind := range synced {
		name := "saltutil.sync_" + kind
		out = append(out, Function{
			Name: name,
			Params: []function.Param{function.Opt("saltenv", "base"),
				function.Opt("extmod_whitelist", nil), function.Opt("extmod_blacklist", nil)},
			Doc: "Copy modules (" + kind + `) from the folders of file_roots such as salt://_modules
to extension_modules of every master. Needs a Python with Salt.

Example:

    salt-run ` + name,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return host.Runner(ctx, name, nil, value.Map{
					{Key: "saltenv", Value: c.Arg("saltenv")},
					{Key: "extmod_whitelist", Value: c.Arg("extmod_whitelist")},
					{Key: "extmod_blacklist", Value: c.Arg("extmod_blacklist")},
				})
			},
		})
	}
	return out
}

func pythonStatus(s PythonStatus) value.Map {
	calls := []any{}
	for _, c := range s.Calls {
		calls = append(calls, value.Map{
			{Key: "pid", Value: c.PID}, {Key: "function", Value: c.Fun},
			{Key: "file", Value: c.File},
			{Key: "seconds", Value: time.Since(c.Since).Seconds()},
		})
	}
	out := value.Map{{Key: "interpreter", Value: s.Interpreter}}
	if s.Problem != "" {
		out = append(out, value.Pair{Key: "problem", Value: s.Problem})
	}
	return append(out, value.Map{
		{Key: "python", Value: s.Python}, {Key: "salt", Value: s.Salt}, {Key: "pid", Value: s.PID},
		{Key: "children_started", Value: int64(s.Children)}, {Key: "calls", Value: calls},
		{Key: "site_modules", Value: value.Texts(s.Modules)},
		{Key: "site_runners", Value: value.Texts(s.Runners)},
		{Key: "site_wheels", Value: value.Texts(s.Wheels)}, {Key: "engines", Value: s.Engines},
	}...)
}
