package orchestrate

import (
	"context"
	"os"
	"slices"

	"clustermaster/value"
)

// conditions checks onlyif, unless and creates: Salt's _run_check. The result true means that the
// state need not run.
func (x *run) conditions(ctx context.Context, ch *chunk) (value.Map, error) {
	result, comments := false, []any{}
	skip, skips := any(nil), false
	for _, check := range []struct {
		key string
		run func(ctx context.Context, ch *chunk, v any) (value.Map, error)
	}{{"onlyif", x.onlyIf}, {"unless", x.unless}, {"creates", x.creates}} {
		v, ok := ch.get(check.key)
		if !ok {
			continue
		}
		one, err := check.run(ctx, ch, v)
		if err != nil {
			return nil, err
		}
		own, _ := one.Get("result")
		result = result || own == true
		said, _ := one.Get("comment")
		comments = append(comments, said)
		if s, ok := one.Get("skip_watch"); ok {
			skip, skips = s, true
		}
	}
	ret := append(value.Map{{Key: "result", Value: result}, {Key: "comment", Value: comments}},
		ch.names()...)
	if skips {
		ret = append(ret, value.Pair{Key: "skip_watch", Value: skip})
	}
	return ret, nil
}

// names are the fields that conditions return about a chunk.
func (ch *chunk) names() value.Map {
	return value.Map{{Key: "__sls__", Value: ch.sls}, {Key: "__id__", Value: ch.id},
		{Key: "name", Value: ch.name}}
}

// entries returns a value as a list.
func entries(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}

func outcome(result bool, comment any) value.Map {
	return value.Map{{Key: "result", Value: result}, {Key: "comment", Value: comment}}
}

func skipping(comment string) value.Map {
	return append(outcome(true, comment), value.Pair{Key: "skip_watch", Value: true})
}

// onlyIf lets a state run if all conditions hold.
func (x *run) onlyIf(ctx context.Context, ch *chunk, v any) (value.Map, error) {
	ret := value.Map{{Key: "result", Value: false}}
	for _, entry := range entries(v) {
		holds, wrong, err := x.holds(ctx, ch, "onlyif", entry)
		switch {
		case err != nil:
			return nil, err
		case wrong == badType:
			return outcome(false, "onlyif execution failed, bad type passed"), nil
		case wrong != "":
			return outcome(false, wrong), nil
		case !holds:
			return skipping("onlyif condition is false"), nil
		}
		ret = outcome(false, "onlyif condition is true")
	}
	return ret, nil
}

// unless lets a state run if one condition does not hold.
func (x *run) unless(ctx context.Context, ch *chunk, v any) (value.Map, error) {
	ret := value.Map{{Key: "result", Value: false}}
	for _, entry := range entries(v) {
		holds, wrong, err := x.holds(ctx, ch, "unless", entry)
		switch {
		case err != nil:
			return nil, err
		case wrong == badType:
			ret = overlay(ret, outcome(false, "unless condition is false, bad type passed"))
		case wrong != "":
			return overlay(ret, value.Map{{Key: "comment", Value: wrong}}), nil
		case !holds:
			return outcome(false, "unless condition is false"), nil
		default:
			ret = overlay(ret, skipping("unless condition is true"))
		}
	}
	return ret, nil
}

const badType = "bad type"

// holds checks one condition: a command, or a function of the execution modules with its arguments.
// wrong is the error text for any other value.
func (x *run) holds(ctx context.Context, ch *chunk, key string, entry any) (holds bool,
	wrong string, err error) {
	switch entry := entry.(type) {
	case string:
		code, err := x.command(ctx, entry, x.commandOptions(ch))
		if ctx.Err() != nil {
			return false, "", context.Cause(ctx)
		}
		if err != nil { // the command did not start: the state does not run, as in Salt
			return key == "unless", "", nil
		}
		return code == 0, "", nil
	case value.Map:
		fun, ok := entry.Get("fun")
		if !ok {
			return false, "no `fun` argument in " + key + ": " + show(entry), nil
		}
		v, err := x.function(ctx, value.Str(fun), entry)
		if err != nil {
			return false, "", err
		}
		return value.Truth(v), "", nil
	}
	return false, badType, nil
}

// function calls an execution module's function of a condition: args, get_return, and keywords.
func (x *run) function(ctx context.Context, fun string, entry value.Map) (any, error) {
	path, _ := entry.Get("get_return")
	list, _ := entry.Get("args")
	filled, err := x.slots(ctx, x.who, append(entry.Without("fun", "args", "get_return"),
		value.Pair{Key: "args", Value: orList(list)}))
	if err != nil {
		return nil, err
	}
	list, _ = filled.Get("args")
	args, _ := list.([]any)
	v, err := x.o.deps.Modules.Call(ctx, x.who, fun, args, filled.Without("args"))
	if err != nil || !value.Truth(path) {
		return v, err
	}
	found, _ := value.Traverse(v, path, "")
	return found, nil
}

func orList(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return nil
}

// commandOptions are the arguments of a state that also apply to its conditions.
func (x *run) commandOptions(ch *chunk) value.Map {
	var out value.Map
	v, _ := ch.get("cmd_opts_exclude")
	without := map[string]bool{}
	for _, e := range entries(v) {
		without[value.Str(e)] = true
	}
	for _, key := range []string{"cwd", "root", "runas", "env", "prepend_path", "umask", "timeout",
		"success_retcodes"} {
		if v, _ := ch.get(key); v != nil && !without[key] {
			out = append(out, value.Pair{Key: key, Value: v})
		}
	}
	if v, ok := ch.get("shell"); ok && !without["shell"] {
		return append(out, value.Pair{Key: "shell", Value: v})
	}
	return append(out, x.shell()...)
}

// shell returns the option for the master's own shell, if its grains have one.
func (x *run) shell() value.Map {
	v, ok := x.who.Grains.Get("shell")
	if !ok {
		return nil
	}
	return value.Map{{Key: "shell", Value: v}}
}

// command runs a shell command and returns its exit code.
func (x *run) command(ctx context.Context, text string, opts value.Map) (int64, error) {
	opts = append(slices.Clone(opts), value.Map{{Key: "python_shell", Value: true},
		{Key: "ignore_retcode", Value: true}}...)
	v, err := x.o.deps.Modules.Call(ctx, x.who, "cmd.retcode", []any{text}, opts)
	code, _ := v.(int64)
	return code, err
}

// creates lets a state run if one of its files does not exist.
func (x *run) creates(_ context.Context, _ *chunk, v any) (value.Map, error) {
	there := func(v any) bool {
		path, ok := v.(string)
		if !ok {
			return false
		}
		_, err := os.Stat(path)
		return err == nil
	}
	switch v := v.(type) {
	case string:
		if there(v) {
			return skipping(v + " exists"), nil
		}
	case []any:
		if !slices.ContainsFunc(v, func(e any) bool { return !there(e) }) {
			return skipping("All files in creates exist"), nil
		}
	}
	return outcome(false, "Creates files not found"), nil
}

// checkCommand lets commands judge whether a state succeeded.
func (x *run) checkCommand(ctx context.Context, ch *chunk) (value.Map, error) {
	v, _ := ch.get("check_cmd")
	ret := append(value.Map{{Key: "result", Value: false}}, ch.names()...)
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, entry := range list {
		code, err := x.command(ctx, value.Str(entry), x.shell())
		if err != nil {
			return nil, err
		}
		if code != 0 {
			return ret.Set("comment", "check_cmd determined the state failed").Set("result",
				false), nil
		}
		ret = ret.Set("comment", "check_cmd determined the state succeeded").Set("result", true)
	}
	return ret, nil
}

// globalConditions checks the option global_state_conditions; it returns the return of a state that
// they prevent.
func (x *run) globalConditions(ctx context.Context, ch *chunk) (value.Map, error) {
	asked, allowed := false, false
	for _, p := range x.o.opts.GlobalConditions {
		if key := value.Str(p.Key); key != "*" && key != ch.module+"."+ch.fun && key != ch.module {
			continue
		}
		if _, text := p.Value.(string); !text {
			if _, list := p.Value.([]any); !list {
				continue
			}
		}
		for _, condition := range entries(p.Value) {
			v, err := x.o.deps.Modules.Call(ctx, x.who, "match.compound", []any{condition}, nil)
			if err != nil {
				return nil, err
			}
			asked, allowed = true, allowed || value.Truth(v)
		}
	}
	if !asked || allowed {
		return nil, nil
	}
	return value.Map{
		{Key: "name", Value: ch.name}, {Key: "comment",
			Value: "Failed to meet global state conditions. State not called."},
		{Key: "changes", Value: value.Map{}}, {Key: "result", Value: nil},
	}, nil
}
