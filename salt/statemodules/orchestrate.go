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

// orchestration is the module salt (salt/states/saltmod.py): it gives orders to minions
// and to the master itself.
func orchestration(d Deps) orchestrate.Table {
	o := orchestrator{d: d, minions: minions{d}}
	return orchestrate.Table{
		"salt.state": {Params: []function.Param{
			need("name"), need("tgt"), opt("ssh", false), opt("tgt_type", "glob"), opt("ret", ""),
			opt("ret_config", nil), opt("ret_kwargs", nil), opt("highstate", nil), opt("sls", nil),
			opt("top", nil),
			opt("saltenv", nil), opt("test", nil), opt("pillar", nil), opt("pillarenv", nil),
			opt("expect_minions", true), opt("exclude", nil), opt("fail_minions", nil),
			opt("allow_fail", int64(0)), opt("concurrent", false), opt("timeout", nil),
			opt("batch", nil), opt("queue", false), opt("subset", nil),
			opt("orchestration_jid", nil), opt("failhard", nil),
		}, VarKwargs: true, Run: o.state},
		"salt.function": {Params: []function.Param{
			need("name"), need("tgt"), opt("ssh", false), opt("tgt_type", "glob"), opt("ret", ""),
			opt("ret_config", nil), opt("ret_kwargs", nil), opt("expect_minions", false),
			opt("fail_minions", nil),
			opt("fail_function", nil), opt("arg", nil), opt("kwarg", nil), opt("timeout", nil),
			opt("batch", nil), opt("subset", nil), opt("failhard", nil),
		}, VarKwargs: true, Run: o.function},
		"salt.runner": {Params: []function.Param{need("name")}, VarKwargs: true,
			Run: o.runner},
		"salt.wheel": {Params: []function.Param{need("name")}, VarKwargs: true,
			Run: o.wheel},
		"salt.parallel_runners": {Params: []function.Param{need("name"), need("runners")},
			VarKwargs: true, Run: o.parallelRunners},
		"salt.wait_for_event": {Params: []function.Param{
			need("name"), need("id_list"), opt("event_id", "id"), opt("timeout", int64(300)),
			opt("node", "master"),
		}, Run: o.waitForEvent},
	}
}

type orchestrator struct {
	d       Deps
	minions minions
}

// args fires the event that shows the arguments of one step of an orchestration.
func (o orchestrator) args(c orchestrate.Call, data value.Map) {
	if c.JID != "" {
		o.d.Fire("salt/run/"+c.JID+"/args", data)
	}
}

// state is salt.state: it applies states on minions.
func (o orchestrator) state(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	ret := started(c.Name)
	allowed, ok := wholeNumber(c.Arg("allow_fail"))
	if !ok {
		return ended(ret, false, "Passed invalid value for 'allow_fail', must be an int"), nil
	}
	j := job{
		tgt: c.Arg("tgt"), tgtType: value.Str(c.Arg("tgt_type")), ret: c.Arg("ret"),
		retConfig: c.Arg("ret_config"), retKwarg: c.Arg("ret_kwargs"), timeout: c.Arg("timeout"),
		batch: c.Arg("batch"), subset: c.Arg("subset"),
		expect: value.Truth(c.Arg("expect_minions")), failhard: o.failhard(c), user: c.User,
	}
	switch {
	case value.Truth(c.Arg("highstate")):
		j.fun = "state.highstate"
	case value.Truth(c.Arg("top")):
		j.fun, j.arg = "state.top", []any{c.Arg("top")}
	case value.Truth(c.Arg("sls")):
		j.fun, j.arg = "state.sls", []any{joined(c.Arg("sls"))}
	default:
		return ended(ret, false, "No highstate or sls specified, no execution made"), nil
	}
	test := c.Arg("test")
	if test == nil && c.Test {
		test = true
	}
	if test != nil {
		j.kwarg = j.kwarg.Set("test", test)
	}
	if v := c.Arg("pillar"); value.Truth(v) {
		j.kwarg = j.kwarg.Set("pillar", v)
	}
	for _, key := range []string{"pillarenv", "saltenv", "exclude"} {
		if v := c.Arg(key); v != nil {
			j.kwarg = j.kwarg.Set(key, v)
		}
	}
	j.kwarg = j.kwarg.Set("queue", c.Arg("queue"))
	concurrent, ok := c.Arg("concurrent").(bool)
	if !ok {
		return ended(ret, false, "Must pass in boolean for value of 'concurrent'"), nil
	}
	j.kwarg = j.kwarg.Set("concurrent", concurrent)
	command := o.command(c, j, false)
	o.args(c, value.Map{{Key: "type", Value: "state"}, {Key: "tgt", Value: j.tgt},
		{Key: "name", Value: c.Name}, {Key: "args", Value: command}})
	answers, why, err := o.run(ctx, c, j, command)
	if err != nil {
		return nil, err
	}
	return explained(judgeStates(ret, answers, judging{
		allowed: allowed, failMinions: c.Arg("fail_minions"), expect: j.expect,
		test: value.Truth(c.Arg("test")) || c.Test,
	}), why), nil
}

// function is salt.function: it runs an execution function on minions.
func (o orchestrator) function(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	ret := started(c.Name)
	j := job{
		fun: c.Name, tgt: c.Arg("tgt"), tgtType: value.Str(c.Arg("tgt_type")), ret: c.Arg("ret"),
		retConfig: c.Arg("ret_config"), retKwarg: c.Arg("ret_kwargs"), timeout: c.Arg("timeout"),
		batch: c.Arg("batch"), subset: c.Arg("subset"),
		expect: value.Truth(c.Arg("expect_minions")), failhard: o.failhard(c), user: c.User,
	}
	j.kwarg, _ = c.Arg("kwarg").(value.Map)
	switch arg := c.Arg("arg").(type) {
	case string:
		ret = ret.Set("warnings", []any{"Please specify 'arg' as a list of arguments."})
		for _, word := range strings.Fields(arg) {
			j.arg = append(j.arg, word)
		}
	case []any:
		j.arg = arg
	default:
		if value.Truth(arg) {
			return nil, fmt.Errorf("arg must be a list of arguments, not %s", value.Repr(arg))
		}
	}
	if c.Test {
		return ended(ret, nil, fmt.Sprintf("Function %s would be executed on target %s", c.Name,
			value.Str(j.tgt))), nil
	}
	command := o.command(c, j, true)
	o.args(c, value.Map{{Key: "type", Value: "function"}, {Key: "tgt", Value: j.tgt},
		{Key: "name", Value: c.Name}, {Key: "args", Value: command}})
	answers, why, err := o.run(ctx, c, j, command)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return ended(ret, false, err.Error()), nil
	}
	judge := func(any) (bool, error) { return true, nil }
	if fun := value.Str(c.Arg("fail_function")); value.Truth(c.Arg("fail_function")) {
		if !o.d.Modules.Has(ctx, fun) {
			return nil,
				fmt.Errorf("fail_function %s is not available on this master; "+
					"see docs/template-functions.md", fun)
		}
		judge = func(returned any) (bool, error) {
			v, err := o.d.Modules.Call(ctx, c.Master, fun, []any{returned}, nil)
			return value.Truth(v), err
		}
	}
	ret, err = judgeFunction(ret, c.Name, answers, c.Arg("fail_minions"), judge)
	return explained(ret, why), err
}

func (o orchestrator) failhard(c orchestrate.Call) bool {
	return c.Arg("failhard") == true || o.d.Failhard
}

// command is a job in the form that the event of its arguments shows.
func (o orchestrator) command(c orchestrate.Call, j job, function bool) value.Map {
	kwarg := j.kwarg
	if kwarg == nil {
		kwarg = value.Map{}
	}
	m := value.Map{{Key: "arg", Value: append([]any{}, j.arg...)}, {Key: "kwarg", Value: kwarg},
		{Key: "ret", Value: j.ret}, {Key: "timeout", Value: j.timeout}}
	add := func(key string, v any, there bool) {
		if there {
			m = append(m, value.Pair{Key: key, Value: v})
		}
	}
	returner := func() {
		add("ret_config", j.retConfig, value.Truth(j.retConfig))
		add("ret_kwargs", j.retKwarg, value.Truth(j.retKwarg))
	}
	window := func() {
		add("batch", value.Str(j.batch), j.batch != nil)
		add("subset", j.subset, j.subset != nil)
	}
	if function {
		window()
	} else {
		returner()
	}
	add("tgt_type", j.tgtType, true)
	add("ssh", c.Arg("ssh"), true)
	roster, given := c.Args.Get("roster")
	add("roster", roster, given)
	add("expect_minions", c.Arg("expect_minions"), true)
	if function {
		add("_cmd_meta", true, true)
	} else {
		window()
	}
	add("failhard", true, j.failhard)
	if function {
		returner()
	}
	return m
}

// joined is a list of SLS names in the form that state.sls takes.
func joined(sls any) any {
	list, ok := sls.([]any)
	if !ok {
		return sls
	}
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = value.Str(v)
	}
	return strings.Join(names, ",")
}

// started is the return with which the functions of module salt begin.
func started(name string) value.Map {
	return value.Map{{Key: "name", Value: name}, {Key: "changes", Value: value.Map{}},
		{Key: "comment", Value: ""}, {Key: "result", Value: true}}
}

func ended(ret value.Map, result any, comment string) value.Map {
	return ret.Set("result", result).Set("comment", comment)
}

// exempt returns the minions whose failure does not count. A value that is not a list of ids
// is ignored with a warning.
func exempt(ret value.Map, v any) ([]string, value.Map) {
	switch v := v.(type) {
	case nil:
		return nil, ret
	case string:
		ids := strings.Split(v, ",")
		for i := range ids {
			ids[i] = strings.TrimSpace(ids[i])
		}
		return ids, ret
	case []any:
		ids := make([]string, len(v))
		for i := range v {
			ids[i] = value.Str(v[i])
		}
		return ids, ret
	}
	said, _ := ret.Get("warnings")
	list, _ := said.([]any)
	return nil, ret.Set("warnings", append(slices.Clip(list),
		"'fail_minions' needs to be a list or a comma separated string. Ignored."))
}
