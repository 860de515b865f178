package statemodules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// moduleStates is the module module (salt/states/module.py): it calls the execution functions of
// docs/template-functions.md as states.
func moduleStates(d Deps) orchestrate.Table {
	m := caller{d.Modules}
	name := []function.Param{need("name")}
	wait := orchestrate.Function{Params: name, VarKwargs: true, Run: idle}
	run := orchestrate.Function{Params: name, VarKwargs: true, Run: m.run}
	return orchestrate.Table{"module.wait": wait, "module.watch": wait, "module.run": run,
		"module.mod_watch": run}
}

type caller struct{ modules Modules }

// ofPillar are the functions that return secrets. Templates get the values; the returns of states
// show only that there are some.
var ofPillar = []string{"pillar.get", "pillar.fetch", "pillar.items", "pillar.item", "pillar.raw"}

// execute calls a function and masks secrets in its return.
func (m caller) execute(ctx context.Context, c orchestrate.Call, fun string, args []any,
	kwargs value.Map) (any, error) {
	v, err := m.modules.Call(ctx, c.Master, fun, args, kwargs)
	if slices.Contains(ofPillar, fun) {
		v = orchestrate.Masked(v)
	}
	return v, err
}

// run accepts both forms: functions as keywords, or one function as the state's name.
func (m caller) run(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	if ret, refused := noReturner(c); refused {
		return ret, nil
	}
	keys := 0
	legacy := false
	for _, p := range c.Args {
		name, _ := p.Key.(string)
		if slices.Contains([]string{"name", "__reqs__", "sfun"}, name) {
			continue
		}
		keys++
		legacy = legacy || !strings.Contains(name, ".")
	}
	if legacy || keys == 0 {
		return m.one(ctx, c)
	}
	return m.several(ctx, c)
}

// noReturner refuses a state that would send the result to a returner: a master has none.
func noReturner(c orchestrate.Call) (value.Map, bool) {
	r, given := c.Args.Get("returner")
	if !given || r == nil {
		return nil, false
	}
	return ended(started(c.Name), false,
		fmt.Sprintf("Returner %s is not available on a master; leave returner out",
			value.Str(r))), true
}

// several runs the functions that a state names as keywords.
func (m caller) several(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	var all []any
	var funs, missing, tried []string
	for _, p := range c.Args.Without("name") {
		name, _ := p.Key.(string)
		all = append(all, name)
		if !strings.Contains(name, ".") {
			continue
		}
		funs = append(funs, name)
		fun, _, _ := strings.Cut(name, ":")
		if !m.modules.Has(fun) {
			missing = append(missing, fun)
		} else if c.Test {
			tried = append(tried, fun)
		}
	}
	ret := value.Map{{Key: "name", Value: all}, {Key: "changes", Value: value.Map{}},
		{Key: "comment", Value: ""}, {Key: "result", Value: nil}}
	if len(missing)+len(tried) > 0 {
		var parts []string
		if len(missing) > 0 {
			ret = ret.Set("result", false)
			parts = append(parts, fmt.Sprintf("Unavailable function%s: %s.", plural(missing),
				strings.Join(missing, ", ")))
		}
		if len(tried) > 0 {
			parts = append(parts, fmt.Sprintf("Function%s %s to be executed.", plural(tried),
				strings.Join(tried, ", ")))
		}
		return ret.Set("comment", strings.Join(parts, " ")), nil
	}
	var failures, successes []string
	changes := value.Map{}
	for _, name := range funs {
		fun, _, _ := strings.Cut(name, ":")
		given, _ := c.Args.Get(name)
		returned, err := m.call(ctx, c, fun, given)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		returnedMap, isMap := returned.(value.Map)
		switch {
		case err != nil:
			failures = append(failures, fmt.Sprintf("'%s' failed: %s", name, reason(err)))
		case good(returned):
			said := any("Success")
			if !isMap {
				said = returned
			} else if comment, ok := returnedMap.Get("comment"); ok {
				said = comment
			}
			successes = append(successes, name+": "+value.Str(said))
			changes = changes.Set(name, returned)
		case isMap:
			said, ok := returnedMap.Get("comment")
			if !ok {
				said = "(error message N/A)"
			}
			failures = append(failures, fmt.Sprintf("'%s' failed: %s", name, value.Str(said)))
		default:
			failures = append(failures, fmt.Sprintf("'%s': %s", name, value.Str(returned)))
		}
	}
	return ret.Set("changes", changes).Set("comment",
		strings.Join(append(failures, successes...), ", ")).Set("result", len(failures) == 0), nil
}

// plural is the suffix that Salt's comment has when several functions are named.
func plural(funs []string) string {
	if len(funs) > 1 {
		return "True"
	}
	return ""
}

// call runs a function with a state's list of arguments: values are positional, maps are keywords.
// As in Salt, every missing optional parameter gets its default by name, so further positional
// values collide with them.
func (m caller) call(ctx context.Context, c orchestrate.Call, fun string, given any) (any, error) {
	params, _ := m.modules.Params(fun)
	expected := make(map[string]any)
	kwargs := value.Map{}
	required := func(name string) bool {
		return slices.ContainsFunc(params, func(p function.Param) bool {
			return p.Name == name &&
				p.Required
		})
	}
	for _, p := range params {
		if !p.Required {
			kwargs = append(kwargs, value.Pair{Key: p.Name, Value: p.Default})
		}
	}
	var args []any
	for _, e := range elements(given) {
		named, ok := e.(value.Map)
		if !ok {
			args = append(args, e)
			continue
		}
		for _, p := range named {
			name := value.Str(p.Key)
			if required(name) {
				expected[name] = p.Value
			} else {
				kwargs = kwargs.Set(name, p.Value)
			}
		}
	}
	for _, p := range params {
		if v, ok := expected[p.Name]; ok {
			args = append(args, v)
		}
	}
	var missing []string
	for i, p := range params {
		if i >= len(args) && p.Required {
			missing = append(missing, p.Name)
		}
	}
	if len(missing) > 0 {
		return nil, missingArguments(missing)
	}
	return m.execute(ctx, c, fun, args, kwargs)
}

// missingArguments are required parameters without a value.
type missingArguments []string

func (m missingArguments) Error() string { return "Missing arguments: " + strings.Join(m, ", ") }

// elements are the items of a list of arguments. The items of a text are its
// characters, as in Python.
func elements(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	case string:
		var out []any
		for _, r := range v {
			out = append(out, string(r))
		}
		return out
	}
	return []any{v}
}

// aliased are the parameters that need another name in a state, because the state uses theirs.
var aliased = map[string]string{"name": "m_name", "fun": "m_fun", "names": "m_names",
	"state": "m_state", "saltenv": "m_saltenv"}

// one runs the function that is the state's name.
func (m caller) one(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	ret := value.Map{{Key: "name", Value: c.Name}, {Key: "changes", Value: value.Map{}},
		{Key: "comment", Value: ""}, {Key: "result", Value: nil}}
	if !m.modules.Has(c.Name) {
		return ended(ret, false, fmt.Sprintf("Module function %s is not available", c.Name)), nil
	}
	if c.Test {
		return ret.Set("comment", fmt.Sprintf("Module function %s is set to execute", c.Name)), nil
	}
	params, rest := m.modules.Params(c.Name)
	var args []any
	var missing []string
	for _, p := range params {
		word := p.Name
		if a, ok := aliased[p.Name]; ok {
			word = a
		}
		v, ok := c.Args.Get(word)
		if !ok && !p.Required && word != p.Name && p.Name != "name" {
			v, ok = c.Args.Get(p.Name)
		}
		switch {
		case ok:
			args = append(args, v)
		case !p.Required:
			args = append(args, p.Default)
		default:
			missing = append(missing, word)
		}
	}
	if len(missing) > 0 {
		return ended(ret, false, "The following arguments are missing: "+strings.Join(missing,
			" ")), nil
	}
	var kwargs value.Map
	if rest {
		if v, ok := c.Args.Get("args"); ok {
			more, ok := v.([]any)
			if !ok {
				return ended(ret, false, "'args' must be a list."), nil
			}
			args = append(args, more...)
		}
		if v, ok := c.Args.Get("kwargs"); ok {
			if kwargs, ok = v.(value.Map); !ok {
				return ended(ret, false, "'kwargs' must be a dict."), nil
			}
		}
	}
	returned, err := m.execute(ctx, c, c.Name, args, kwargs)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return ended(ret, false, fmt.Sprintf("Module function %s threw an exception. Exception: %s",
			c.Name, reason(err))), nil
	}
	return ended(ret.Set("changes", value.Map{{Key: "ret", Value: returned}}), good(returned),
		fmt.Sprintf("Module function %s executed", c.Name)), nil
}

// good reports whether a function's return is a success. A failure is false, or a map that anywhere
// holds a false result or a return code other than 0.
func good(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case value.Map:
		for _, p := range v {
			inner, isMap := p.Value.(value.Map)
			switch {
			case p.Key == "result" && p.Value == false, p.Key == "retcode" && !isZero(p.Value),
				isMap && !good(inner):
				return false
			}
		}
	}
	return true
}

func isZero(v any) bool { return v == int64(0) || v == float64(0) || v == false || v == uint64(0) }
