package statemodules

import (
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
)

// judging holds the criteria for the returns of salt.state.
type judging struct {
	allowed     int // minions that may fail
	failMinions any
	expect      bool
	test        bool
}

// judgeStates completes the return of salt.state.
func judgeStates(ret value.Map, answers []answer, by judging) value.Map {
	if jid := jidOf(answers); jid != "" {
		ret = ret.Set("__jid__", jid)
	}
	exempted, ret := exempt(ret, by.failMinions)
	if len(answers) == 0 && by.expect {
		return ended(ret, false, "No minions returned")
	}
	var failed, unchanged []string
	details := make(map[string]string)
	changes := value.Map{}
	for _, a := range answers {
		switch {
		case a.failed, !passed(a.ret):
			if !slices.Contains(exempted, a.id) {
				failed = append(failed, a.id)
				details[a.id] = failureDetail(a)
			}
			var shown any = false
			if !a.failed {
				shown = a.ret
			}
			changes = append(changes, value.Pair{Key: a.id, Value: shown})
		case changed(a.ret):
			changes = append(changes, value.Pair{Key: a.id, Value: a.ret})
		default:
			unchanged = append(unchanged, a.id)
		}
	}
	if len(changes) > 0 {
		ret = ret.Set("changes", value.Map{{Key: "out", Value: "highstate"},
			{Key: "ret", Value: changes}})
	}
	result, comment := any(true), "States ran successfully."
	if len(failed) > by.allowed {
		slices.Sort(failed)
		result, comment = false, "Run failed on minions: "+strings.Join(failed, ", ")
		for _, id := range failed {
			if d := details[id]; d != "" {
				comment += "\n" + d
			}
		}
	} else {
		if len(changes) > 0 {
			comment += " Updating " + names(changes) + "."
		}
		if len(unchanged) > 0 {
			comment += " No changes made to " + strings.Join(unchanged, ", ") + "."
		}
	}
	if by.test && len(changes) > 0 && result == true {
		result = nil
	}
	return ended(ret, result, comment)
}

// judgeFunction completes the return of salt.function. It calls judge for each return.
func judgeFunction(ret value.Map, fun string, answers []answer, failMinions any,
	judge func(any) (bool, error)) (value.Map, error) {
	if jid := jidOf(answers); jid != "" {
		ret = ret.Set("__jid__", jid)
	}
	exempted, ret := exempt(ret, failMinions)
	if len(answers) == 0 {
		return ended(ret, false, "No minions responded"), nil
	}
	var failed []string
	changes := make(value.Map, 0, len(answers))
	for _, a := range answers {
		shown, ok := any(false), false
		if !a.failed {
			shown = a.ret
			passed, err := judge(a.ret)
			if err != nil {
				return nil, err
			}
			ok = passed && a.ret != false
		}
		// as in Salt, a return code counts even for the minions in failMinions
		if a.retcode != 0 || !ok && !slices.Contains(exempted, a.id) {
			failed = append(failed, a.id)
		}
		changes = append(changes, value.Pair{Key: a.id, Value: shown})
	}
	result, comment := true, "Function ran successfully."
	if len(failed) > 0 {
		slices.Sort(failed)
		result, comment = false, fmt.Sprintf("Running function %s failed on minions: %s", fun,
			strings.Join(failed, ", "))
	}
	comment += fmt.Sprintf(" Function %s ran on %s.", fun, names(changes))
	ret = ret.Set("changes", value.Map{{Key: "ret", Value: changes}})
	return ended(ret, result, comment), nil
}

// names joins the keys of a map with commas.
func names(m value.Map) string {
	out := make([]string, len(m))
	for i, p := range m {
		out[i] = value.Str(p.Key)
	}
	return strings.Join(out, ", ")
}

// failureDetail says in one line what a minion returned instead of states;
// "" if it returned states.
func failureDetail(a answer) string {
	if a.failed {
		return "Minion " + a.id + " did not return a state result."
	}
	switch v := a.ret.(type) {
	case value.Map:
		return ""
	case []any:
		var parts []string
		for _, e := range v {
			if value.Truth(e) {
				parts = append(parts, value.Str(e))
			}
		}
		if len(parts) == 0 {
			return "Minion " + a.id + " returned an empty error list."
		}
		return "Minion " + a.id + " returned errors: " + strings.Join(parts, "; ")
	default:
		return "Minion " + a.id + " returned " + value.Repr(v) + " instead of a state result."
	}
}

// passed is salt.utils.state.check_result(v, recurse=True): at least one state, and none failed.
func passed(v any) bool {
	states, ok := v.(value.Map)
	if !ok || len(states) == 0 {
		return false
	}
	for _, p := range states {
		one, ok := p.Value.(value.Map)
		if !ok {
			continue
		}
		result, there := one.Get("result")
		if there && result == false || !there && !passed(one) {
			return false
		}
	}
	return true
}

// changed reports whether one of a minion's states changed something.
func changed(v any) bool {
	states, _ := v.(value.Map)
	for _, p := range states {
		one, _ := p.Value.(value.Map)
		if changes, _ := one.Get("changes"); value.Truth(changes) {
			return true
		}
	}
	return false
}
