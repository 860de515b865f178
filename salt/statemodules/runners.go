package statemodules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// maxParallelRunners is how many runners one state may start at a time. The runners themselves
// bound the total of all states.
const maxParallelRunners = 256

// runner is salt.runner: a runner function of this master.
func (o orchestrator) runner(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	if c.Test {
		return tried(c.Name, fmt.Sprintf("Runner function '%s' would be executed.", c.Name)), nil
	}
	rest := c.Args.Without("name", "arg", "kwarg", "jid")
	args, kwargs, err := arguments(c.Arg("arg"), c.Arg("kwarg"))
	if err != nil {
		return nil, err
	}
	for _, p := range rest {
		if name, _ := p.Key.(string); !strings.HasPrefix(name, "__") {
			kwargs = kwargs.Set(name, p.Value)
		}
	}
	out, err := o.order(ctx, c, Order{Fun: c.Name, Args: args, Kwargs: kwargs, User: c.User})
	if err != nil {
		return nil, err
	}
	return ran("Runner", c.Name, out), nil
}

// wheel is salt.wheel: a wheel function of this master.
func (o orchestrator) wheel(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	if c.Test {
		return tried(c.Name, fmt.Sprintf("Wheel function '%s' would be executed.", c.Name)), nil
	}
	kwargs := value.Map{}
	for _, p := range c.Args.Without("name") {
		if name, _ := p.Key.(string); !strings.HasPrefix(name, "__") {
			kwargs = append(kwargs, p)
		}
	}
	out, err := o.order(ctx, c, Order{Wheel: true, Fun: c.Name, Kwargs: kwargs, User: c.User})
	if err != nil {
		return nil, err
	}
	return ran("Wheel", c.Name, out), nil
}

// tried is the return in test mode.
func tried(name, comment string) value.Map {
	return value.Map{{Key: "name", Value: name}, {Key: "result", Value: nil},
		{Key: "changes", Value: value.Map{}}, {Key: "comment", Value: comment}}
}

// ran is the return of a state that called one function.
func ran(kind, name string, out Outcome) value.Map {
	if m, ok := out.Return.(value.Map); ok {
		if _, failed := m.Get("Error"); failed {
			out.Success = false
		}
	}
	word := "executed"
	if !out.Success {
		word = "failed"
	}
	ret := orchestrate.Return(name, value.Map{{Key: "return", Value: out.Return}}, out.Success,
		fmt.Sprintf("%s function '%s' %s.", kind, name, word))
	return ret.Set("__jid__", out.JID)
}

// arguments checks the parameters arg and kwarg of a state.
func arguments(arg, kwarg any) ([]any, value.Map, error) {
	args, ok := arg.([]any)
	if !ok && value.Truth(arg) {
		return nil, nil, fmt.Errorf("arg must be a list of arguments, not %s", value.Repr(arg))
	}
	kwargs, ok := kwarg.(value.Map)
	if !ok && value.Truth(kwarg) {
		return nil, nil, fmt.Errorf("kwarg must be a map of arguments, not %s", value.Repr(kwarg))
	}
	return args, slices.Clone(kwargs), nil
}

// nesting are the runners that continue under the job id of the orchestration that starts them.
var nesting = []string{"state.orchestrate", "state.orch", "state.sls"}

// order runs a function for an orchestration, after the event that shows its arguments. The error
// is ctx's, or says why the order can't begin.
func (o orchestrator) order(ctx context.Context, c orchestrate.Call, r Order) (Outcome, error) {
	if o.d.Runners.Takes(r.Wheel, r.Fun, "saltenv") {
		r.Kwargs = r.Kwargs.Set("saltenv", c.Env)
	}
	if !r.Wheel && slices.Contains(nesting, r.Fun) && c.JID != "" {
		r.Kwargs = r.Kwargs.Set("orchestration_jid", c.JID)
	}
	shown, wrong := o.d.Runners.Check(r)
	kwargs := shown.Kwargs
	if kwargs == nil {
		kwargs = value.Map{}
	}
	if r.Wheel {
		o.args(c, value.Map{{Key: "type", Value: "wheel"}, {Key: "name", Value: r.Fun},
			{Key: "args", Value: kwargs}})
	} else {
		o.args(c, value.Map{{Key: "type", Value: "runner"}, {Key: "name", Value: r.Fun},
			{Key: "args", Value: append([]any{}, shown.Args...)}, {Key: "kwargs", Value: kwargs}})
	}
	if wrong != nil {
		return Outcome{}, wrong
	}
	return o.d.Runners.Run(ctx, r)
}

// parallelRunners is salt.parallel_runners: it runs several runners at the same time.
func (o orchestrator) parallelRunners(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	orders, err := parallelOrders(c)
	if err != nil {
		return value.Map{{Key: "name", Value: c.Name}, {Key: "result", Value: false},
			{Key: "changes", Value: value.Map{}}, {Key: "comment", Value: err.Error()}}, nil
	}
	if c.Test {
		names := make([]string, len(orders))
		for i, r := range orders {
			names[i] = "'" + r.order.Fun + "'"
		}
		return tried(c.Name, fmt.Sprintf("Runner functions %s would be executed.",
			strings.Join(names, ", "))), nil
	}
	failures := make([]error, len(orders))
	var wg sync.WaitGroup
	for i := range orders {
		wg.Go(func() { orders[i].out, failures[i] = o.order(ctx, c, orders[i].order) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// a runner that could not begin leaves the results of the others as they are
	for i, err := range failures {
		if err != nil {
			orders[i].out = Outcome{Return: err.Error()}
		}
	}
	return judgeRunners(c.Name, orders, o.d.Nested), nil
}

// parallel is one runner of several.
type parallel struct {
	id    string
	order Order
	out   Outcome
}

// errRunners is the comment of a state without runners.
var errRunners = errors.New("The runners parameter must be a string or dict.") // Salt's text

// parallelOrders reads the parameter runners: a name, or a map from id to a list of
// maps with name and kwarg.
func parallelOrders(c orchestrate.Call) ([]parallel, error) {
	given := c.Arg("runners")
	if name, ok := given.(string); ok {
		given = value.Map{{Key: name, Value: nil}}
	}
	m, ok := given.(value.Map)
	if !ok {
		return nil, errRunners
	}
	if len(m) > maxParallelRunners {
		return nil,
			fmt.Errorf("%d runners are too many: one state can start %d at a time", len(m), maxParallelRunners)
	}
	orders := make([]parallel, len(m))
	for i, p := range m {
		id := value.Str(p.Key)
		config := repacked(p.Value)
		_, kwargs, err := arguments(nil, config["kwarg"])
		if err != nil {
			return nil, fmt.Errorf("runner %s: %w", id, err)
		}
		fun := id
		if name, ok := config["name"]; ok {
			fun = value.Str(name)
		}
		orders[i] = parallel{id: id, order: Order{Fun: fun, Kwargs: kwargs, User: c.User}}
	}
	return orders, nil
}

// repacked merges a list of maps into one map and ignores every other item.
func repacked(v any) map[string]any {
	list, ok := v.([]any)
	if m, one := v.(value.Map); one && !ok {
		list = []any{m}
	}
	out := make(map[string]any)
	for _, e := range list {
		m, _ := e.(value.Map)
		for _, p := range m {
			out[value.Str(p.Key)] = p.Value
		}
	}
	return out
}

// judgeRunners completes the return of salt.parallel_runners. Salt looks for an
// orchestration's return code in a place where it no longer is, so no orchestration ever fails
// there; here the code counts.
func judgeRunners(name string, runners []parallel, nested func(any, int) string) value.Map {
	highstate := true
	for _, r := range runners {
		m, _ := r.out.Return.(value.Map)
		_, data := m.Get("data")
		highstate = highstate && data && m.String("outputter") == "highstate"
	}
	var failed []parallel
	for _, r := range runners {
		if !r.out.Success || exitCode(r.out.Return) != 0 {
			failed = append(failed, r)
		}
	}
	comment := "All runner functions executed successfully."
	switch {
	case len(failed) == 0:
	case highstate:
		comments := make([]string, len(failed))
		for i, r := range failed {
			comments[i] = fmt.Sprintf("Runner %s failed with return value:\n%s", r.id,
				nested(r.out.Return, 2))
		}
		comment = strings.Join(comments, "\n")
	case len(failed) == 1:
		comment = fmt.Sprintf("Runner %s failed.", failed[0].id)
	default:
		ids := make([]string, len(failed))
		for i, r := range failed {
			ids[i] = r.id
		}
		comment = fmt.Sprintf("Runners %s failed.", strings.Join(ids, ", "))
	}
	changes := value.Map{}
	for _, r := range runners {
		if !highstate {
			changes = append(changes, value.Pair{Key: r.id, Value: r.out.Return})
			continue
		}
		m, _ := r.out.Return.(value.Map)
		data, _ := m.Get("data")
		if found := changesIn(data); value.Truth(found) {
			changes = append(changes, value.Pair{Key: r.id, Value: found})
		}
	}
	if !highstate {
		changes = value.Map{{Key: "ret", Value: changes}}
	}
	return value.Map{{Key: "name", Value: name}, {Key: "result", Value: len(failed) == 0},
		{Key: "changes", Value: changes}, {Key: "comment", Value: comment}}
}

// exitCode is the first exit_code or retcode in a returned map that is not 0; otherwise 0.
func exitCode(v any) int {
	m, _ := v.(value.Map)
	for _, key := range []string{"exit_code", "retcode"} {
		code, _ := m.Get(key)
		if n, ok := wholeNumber(code); ok && n != 0 {
			return n
		}
	}
	return 0
}

// changesIn finds the changes of states in an orchestration's return.
func changesIn(v any) any {
	m, ok := v.(value.Map)
	if !ok {
		return nil
	}
	if changes, ok := m.Get("changes"); ok {
		if inner, ok := changes.(value.Map); ok && inner.String("out") == "highstate" {
			if ret, ok := inner.Get("ret"); ok {
				return ret
			}
		}
		return changes
	}
	found := value.Map{}
	for _, p := range m {
		if changes := changesIn(p.Value); value.Truth(changes) {
			found = append(found, value.Pair{Key: p.Key, Value: changes})
		}
	}
	return found
}
