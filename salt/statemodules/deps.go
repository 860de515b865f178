package statemodules

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"clustermaster/salt/function"
	"clustermaster/salt/gather"
	"clustermaster/salt/modules"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// Order is a runner or wheel function to be run on this master.
type Order struct {
	Wheel  bool
	Fun    string
	Args   []any
	Kwargs value.Map
	User   string
}

// Outcome is how it ended.
type Outcome struct {
	JID     string
	Return  any
	Success bool
}

// Runners are the runner and wheel functions of this master.
type Runners interface {
	// Takes reports whether a function has a parameter of that name; false also if there is no such
	// function.
	Takes(wheel bool, fun, param string) bool
	// Check returns the order as others may see it, without secrets, or says why it can't begin.
	Check(o Order) (Order, error)
	// Run returns when the call is over. What the function made of it is in the Outcome; the error
	// is ctx's.
	Run(ctx context.Context, o Order) (Outcome, error)
}

// Modules are the execution functions that work on a master.
type Modules interface {
	Has(fun string) bool
	Params(fun string) (params []function.Param, rest bool)
	Call(ctx context.Context, who modules.Minion, fun string, args []any,
		kwargs value.Map) (any, error)
}

// Files are file_roots.
type Files interface {
	Read(env, path string) (abs string, data []byte, found bool, err error)
}

// Deps is what the functions ask of the master. All must be there but Log.
type Deps struct {
	// jobs go out and come back through it; its events are those of all masters
	Minions          gather.Master
	Timeout          time.Duration // of jobs, unless a state says otherwise
	GatherJobTimeout time.Duration
	Failhard         bool // the master's option
	Runners          Runners
	Fire             func(tag string, data value.Map)
	Modules          Modules
	Files            Files
	// Render runs a text through a renderer, as templates of state files are.
	Render func(ctx context.Context, who modules.Minion, path, text, pipe string,
		vars value.Map) (any, error)
	// Nested is the outputter nested, without colours.
	Nested func(v any, indent int) string
	Log    *slog.Logger
}

// New makes all functions.
func New(d Deps) orchestrate.Table {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	all := orchestrate.Table{}
	for _, module := range []orchestrate.Table{Test(), checks(d), orchestration(d), eventStates(d),
		commandStates(d), httpStates(d), moduleStates(d)} {
		maps.Copy(all, module)
	}
	return all
}

// opt and need shorten the tables.
var need, opt = function.Need, function.Opt

func none(names ...string) (params []function.Param) {
	for _, n := range names {
		params = append(params, function.Opt(n, nil))
	}
	return params
}
