package orchestrate

import (
	"context"

	"clustermaster/salt/function"
	"clustermaster/salt/modules"
	"clustermaster/value"
)

// Call is one call of a state function.
type Call struct {
	// "test", "nop"; Fun is mod_watch for a watch that fired, and SFun then the state's own
	// function
	State, Fun string
	SFun       string
	ID, SLS    string // __id__ and __sls__
	Name       string // also in Args
	Env        string // __env__: the saltenv
	// the function's parameters in their order, given or default, then further keywords if the
	// function accepts them
	Args value.Map
	// test=True, or the trial run of a state that has a prereq on it: change nothing, return result
	// nil for what would change
	Test    bool
	JID     string // of the orchestration; events of its parts go below salt/run/JID
	User    string // who runs the orchestration
	Master  modules.Minion
	Watched []Watched // for mod_watch: the states of its watch requisites
	Umask   int       // for the files that it makes; -1 for none
	Low     value.Map // the state's low data, as modules of Salt see it; read only
	// the returns so far by the states' tags, and the low data of all states; only for functions
	// that want them
	Running  value.Map
	Lowstate []any
	Beside   bool // parallel: True
}

// Arg returns an argument by name; nil if it is neither given nor a parameter.
func (c *Call) Arg(name string) any {
	v, _ := c.Args.Get(name)
	return v
}

// Watched is a state that another one watches.
type Watched struct {
	State, ID string
	Changed   bool
}

// Return makes a state's return with its keys in the order of most of Salt's functions.
func Return(name string, changes value.Map, result, comment any) value.Map {
	if changes == nil {
		changes = value.Map{}
	}
	return value.Map{{Key: "name", Value: name}, {Key: "changes", Value: changes},
		{Key: "result", Value: result}, {Key: "comment", Value: comment}}
}

// Function is one state function, such as test.nop.
type Function struct {
	Params    []function.Param // as in Salt's signature; the first one is the name
	VarKwargs bool             // takes any further keywords
	Wants     Wants
	// Run does the work. It returns what Salt's function returns, with keys in Salt's order.
	// Required are name, changes (a map), result (true, false or nil) and comment (text or a list
	// of texts); optional are warnings, out, __jid__, skip_watch, skip_req, sub_state_run and
	// others. The map then belongs to the caller. An error is an exception of the function: the
	// state fails with its text. When ctx ends Run soon returns an error or a partial return.
	// Several goroutines may call Run at once.
	Run func(ctx context.Context, c Call) (value.Map, error)
}

// Wants says which of Call's larger fields a function reads.
type Wants struct{ Running, Lowstate bool }

// Functions finds state functions. Besides those that states name, a module x may have x.mod_watch
// (without it watch counts as require), x.mod_beacon, and x.mod_run_check, which never runs: a
// module that has it checks unless, onlyif and creates itself.
type Functions interface {
	Lookup(name string) (Function, bool)
}

// Binder is implemented by Functions that keep something for each run, such as a process.
type Binder interface {
	// Bind returns the functions for one run on this master; ctx is the run's.
	Bind(ctx context.Context, who modules.Minion) Bound
}

// Bound are the functions of one run.
type Bound interface {
	Functions
	// Why returns the reason why a function is missing, "" if none is known.
	Why(name string) string
	// Reload makes the functions see modules that the run has changed, and who's pillar and grains.
	// With grains, the functions also look anew for grains of their own.
	Reload(who modules.Minion, grains bool)
	Close()
}

// bind returns the functions of one run.
func bind(ctx context.Context, f Functions, who modules.Minion) Bound {
	if b, ok := f.(Binder); ok {
		return b.Bind(ctx, who)
	}
	return unbound{f}
}

// unbound are functions that keep nothing for a run.
type unbound struct{ Functions }

func (unbound) Why(string) string           { return "" }
func (unbound) Reload(modules.Minion, bool) {}
func (unbound) Close()                      {}

// Table maps names to functions.
type Table map[string]Function

// Lookup implements Functions.
func (t Table) Lookup(name string) (Function, bool) {
	f, ok := t[name]
	return f, ok
}
