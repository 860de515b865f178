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

// eventStates is the module event (salt/states/event.py). Salt's own master fires into a bus that
// it does not have, so that the states fail; here the event goes to the bus of the cluster.
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

// idle is what a state does that only works when what it watches changes.
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

// eventData is what an event carries: what the state asks for of the master, its further keywords,
// its data; the last one wins.
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

// only is the part of a map with these keys.
func only(m value.Map, keys []any) value.Map {
	out := value.Map{}
	for _, p := range m {
		if containsValue(keys, p.Key) {
			out = append(out, p)
		}
	}
	return out
}
