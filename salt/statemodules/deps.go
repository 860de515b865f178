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

// Order is one call of a runner or wheel function on this master.
type Order struct {
	Wheel  bool
	Fun    string
	Args   []any
	Kwargs value.Map
	User   string
}

// Outcome is the result of an Order.
type Outcome struct {
	JID     string
	Return  any
	Success bool
}

// Runners are the runner and wheel functions of this master.
type Runners interface {
	// Takes reports whether a function has a parameter of that name; false for an unknown function.
	Takes(wheel bool, fun, param string) bool
	// Check returns the order as events may show it, without secrets. The error says
	// why the order can't begin.
	Check(o Order) (Order, error)
	// Run returns when the call has ended. The Outcome holds the function's return or failure;
	// the error is ctx's alone.
	Run(ctx context.Context, o Order) (Outcome, error)
}

// Modules are the execution functions that templates and states can call on a master.
type Modules interface {
	Has(ctx context.Context, fun string) bool
	Call(ctx context.Context, who modules.Minion, fun string, args []any,
		kwargs value.Map) (any, error)
}

// SSH runs execution functions on targets of a roster.
type SSH interface {
	// Cmd takes the keyword arguments of Salt's saltutil.cmd. It returns a map of what is known of
	// each target's answer (return or ret, retcode, jid), and the first error that was logged, ""
	// if none was.
	Cmd(ctx context.Context, tgt any, fun string, kwargs value.Map) (value.Map, string, error)
}

// Deps holds what the functions need of the master. Only Log may be nil.
type Deps struct {
	// Minions sends jobs and receives their returns; its events are those of all masters.
	Minions          gather.Master
	Timeout          time.Duration // of a job, unless the state sets one
	GatherJobTimeout time.Duration
	SyndicWait       time.Duration // as in gather.Options
	Failhard         bool          // the master's option
	User             string        // the master's option
	Runners          Runners
	SSH              SSH
	Fire             func(tag string, data value.Map)
	Modules          Modules
	// Nested renders a value with the outputter nested, without colours.
	Nested func(v any, indent int) string
	Log    *slog.Logger
}

// New returns the table of all functions.
func New(d Deps) orchestrate.Table {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	all := orchestrate.Table{}
	for _, module := range []orchestrate.Table{Test(), checks(d), orchestration(d)} {
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
