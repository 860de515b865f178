package statemodules

import (
	"context"
	"os"
	"slices"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
)

// eventStates is the module event (salt/states/event.py). On Salt's own master these states fail,
// because they fire into a bus that it does not have; here the event goes to the cluster's bus.
func eventStates(d Deps) orchestrate.Table {
	send := orchestrate.Function{Params: []function.Param{
		need("name"), opt("data", nil), opt("preload", nil), opt("with_env", false),
		opt("with_grains", false), opt("with_pillar", false), opt("show_changed", true),
	}, VarKwargs: true, Run: sender{d.Fire}.send}
	return orchestrate.Table{
		"event.send": send, "event.fire_master": send, "event.mod_watch": send,
		"event.wait": {Params: []function.Param{need("name"), opt("sfun", nil), opt("data", nil)},
			Run: idle},
	}
}

// idle is a state that does nothing unless a state that it watches has changed.
func idle(_ context.Context, c orchestrate.Call) (value.Map, error) {
	return orchestrate.Return(c.Name, nil, true, ""), nil
}

type sender struct{ fire func(string, value.Map) }

func (s sender) send(_ context.Context, c orchestrate.Call) (value.Map, error) {
	changes := value.Map{}
	if value.Truth(c.Arg("show_changed")) {
		changes = value.Map{{Key: "tag", Value: c.Name}, {Key: "data", Value: c.Arg("data")}}
	}
	if c.Test {
		return orchestrate.Return(c.Name, changes, nil, "Event would have been fired"), nil
	}
	s.fire(c.Name, eventData(c))
	return orchestrate.Return(c.Name, changes, true, "Event fired"), nil
}

// own are the parameters of event.send; other keywords are data.
var own = []string{"name", "data", "preload", "with_env", "with_grains", "with_pillar",
	"show_changed", "sfun"}

// eventData is the data of an event: the parts of the master that the state asks for, then the
// state's further keywords, then its parameter data. A later one replaces an earlier one.
func eventData(c orchestrate.Call) value.Map {
	data := value.Map{}
	env := value.Map{}
	for _, e := range os.Environ() {
		name, val, _ := strings.Cut(e, "=")
		env = append(env, value.Pair{Key: name, Value: val})
	}
	for _, part := range []struct {
		param, key string
		from       value.Map
	}{{"with_env", "environ", env}, {"with_grains", "grains", c.Master.Grains}, {"with_pillar",
		"pillar", c.Master.Pillar}} {
		switch wanted := c.Arg(part.param).(type) {
		case []any:
			data = data.Set(part.key, only(part.from, wanted))
		default:
			if value.Truth(wanted) {
				data = data.Set(part.key, append(value.Map{}, part.from...))
			}
		}
	}
	for _, p := range c.Args {
		if name, _ := p.Key.(string); !slices.Contains(own, name) {
			data = data.Set(name, p.Value)
		}
	}
	given, _ := c.Arg("data").(value.Map)
	for _, p := range given {
		if name, ok := p.Key.(string); ok {
			data = data.Set(name, p.Value)
		} else {
			data = append(data, p)
		}
	}
	return data
}

// only returns the pairs of a map that have one of these keys.
func only(m value.Map, keys []any) value.Map {
	out := value.Map{}
	for _, p := range m {
		if containsValue(keys, p.Key) {
			out = append(out, p)
		}
	}
	return out
}
