package statemodules

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// Test is the module test: states with every kind of result that do nothing.
func Test() orchestrate.Table {
	name := []function.Param{function.Need("name")}
	return orchestrate.Table{
		"test.nop": {Params: name, VarKwargs: true, Run: testNop},
		"test.succeed_without_changes": {Params: name, VarKwargs: true,
			Run: testOutcome(true, false, "Success!", "")},
		"test.fail_without_changes": {Params: name, VarKwargs: true,
			Run: testOutcome(false, false, "Failure!",
				"If we weren't testing, this would be a failure!")},
		"test.succeed_with_changes": {Params: name, VarKwargs: true,
			Run: testOutcome(true, true, "Success!",
				"If we weren't testing, this would be successful with changes")},
		"test.fail_with_changes": {Params: name, VarKwargs: true,
			Run: testOutcome(false, true, "Failure!",
				"If we weren't testing, this would be failed with changes")},
		"test.configurable_test_state": {
			Params: []function.Param{function.Need("name"), function.Opt("changes", true),
				function.Opt("result", true), function.Opt("comment", ""),
				function.Opt("warnings", nil), function.Opt("allow_test_mode_failure", false)},
			Run: testConfigurable,
		},
		"test.show_notification": {Params: []function.Param{function.Need("name"),
			function.Opt("text", nil)}, VarKwargs: true, Run: testNotification},
		"test.mod_watch": {Params: []function.Param{function.Need("name"),
			function.Opt("sfun", nil)}, VarKwargs: true, Run: testWatch},
	}
}

func pretended() value.Map {
	return value.Map{{Key: "testing", Value: value.Map{{Key: "old", Value: "Unchanged"},
		{Key: "new", Value: "Something pretended to change"}}}}
}

func testNop(_ context.Context, c orchestrate.Call) (value.Map, error) {
	return orchestrate.Return(c.Name, nil, true, "Success!"), nil
}

// testOutcome makes a function with a fixed outcome. tried is the comment in test mode, where the
// result is nil if there would be changes; with "" test mode makes no difference.
func testOutcome(result, changes bool, comment, tried string) func(context.Context,
	orchestrate.Call) (value.Map, error) {
	return func(_ context.Context, c orchestrate.Call) (value.Map, error) {
		said, ok := c.Args.Get("comment")
		if !ok {
			said = comment
		}
		ret := orchestrate.Return(c.Name, nil, result, said)
		if changes {
			ret = ret.Set("changes", pretended())
		}
		if c.Test && tried != "" {
			if changes {
				ret = ret.Set("result", nil)
			}
			ret = ret.Set("comment", tried)
		}
		return ret, nil
	}
}

func testConfigurable(_ context.Context, c orchestrate.Call) (value.Map, error) {
	changes, err := choice(c.Arg("changes"),
		"You have specified the state option 'changes' with invalid arguments. It must be either True, False, or 'Random'")
	if err != nil {
		return nil, err
	}
	result, err := choice(c.Arg("result"),
		"You have specified the state option 'result' with invalid arguments. It must be either True, False, or 'Random'")
	if err != nil {
		return nil, err
	}
	ret := orchestrate.Return(c.Name, nil, result, c.Arg("comment"))
	if changes {
		ret = ret.Set("changes", pretended())
	}
	switch w := c.Arg("warnings").(type) {
	case nil:
	case string:
		ret = ret.Set("warnings", []any{w})
	case []any:
		ret = ret.Set("warnings", w)
	default:
		return nil,
			errors.New("You have specified the state option 'warnings' with invalid arguments. It must be a string or a list of strings") // Salt's text
	}
	if !c.Test {
		return ret, nil
	}
	switch {
	case value.Truth(c.Arg("allow_test_mode_failure")) && c.Arg("result") == false:
		ret = ret.Set("result", false)
	case c.Arg("changes") == false:
		ret = ret.Set("result", true)
	default:
		ret = ret.Set("result", nil)
	}
	if !value.Truth(c.Arg("comment")) {
		ret = ret.Set("comment", "This is a test")
	}
	return ret, nil
}

// choice is True or False; 'Random' picks one of them.
func choice(v any, wrong string) (bool, error) {
	if b, ok := v.(bool); ok {
		return b, nil
	}
	if strings.EqualFold(value.Str(v), "random") {
		return rand.IntN(2) == 0, nil
	}
	return false, errors.New(wrong)
}

func testNotification(_ context.Context, c orchestrate.Call) (value.Map, error) {
	if !value.Truth(c.Arg("text")) {
		return nil,
			errors.New("Missing required argument text.") // Salt's text
	}
	return orchestrate.Return(c.Name, nil, true, c.Arg("text")), nil
}

func testWatch(_ context.Context, c orchestrate.Call) (value.Map, error) {
	changed := []any{}
	for _, w := range c.Watched {
		if w.Changed {
			changed = append(changed, w.State+": "+w.ID)
		}
	}
	given := func(key string, fallback any) any {
		if v, ok := c.Args.Get(key); ok {
			return v
		}
		return fallback
	}
	return value.Map{
		{Key: "name", Value: c.Name}, {Key: "result", Value: given("result", true)},
		{Key: "comment", Value: given("comment", "Watch statement fired.")},
		{Key: "changes", Value: given("changes",
			value.Map{{Key: "Requisites with changes", Value: changed}})},
	}, nil
}
