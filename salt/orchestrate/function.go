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
	// Run does the work. It returns what Salt's function returns, with keys in Salt's order.
	// Required are name, changes (a map), result (true, false or nil) and comment (text or a list
	// of texts); optional are warnings, out, __jid__, skip_watch, skip_req, sub_state_run and
	// others. The map then belongs to the caller. An error is an exception of the function: the
	// state fails with its text. When ctx ends Run soon returns an error or a partial return.
	// Several goroutines may call Run at once.
	Run func(ctx context.Context, c Call) (value.Map, error)
}

// Functions finds state functions. Besides those that states name, a module x may have x.mod_watch
// (without it watch counts as require), x.mod_beacon, and x.mod_run_check, which never runs: a
// module that has it checks unless, onlyif and creates itself.
type Functions interface {
	Lookup(name string) (Function, bool)
}

// Table maps names to functions.
type Table map[string]Function

// Lookup implements Functions.
func (t Table) Lookup(name string) (Function, bool) {
	f, ok := t[name]
	return f, ok
}
