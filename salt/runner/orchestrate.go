package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Orchestration says which states to run, and how.
type Orchestration struct {
	Mods               []string // SLS files, also patterns
	Saltenv, Pillarenv string   // "" for those of the options
	Test               *bool    // nil: the option test decides
	Exclude            []any
	Pillar             value.Map // merged over the master's own
	PillarEnc          string    // the renderer that decrypts it
	JID                string    // "" for a run that can't be paused
	User               string
}

// Orchestrator runs states on this master. Results are maps from states to their returns, or lists
// of error texts.
type Orchestrator interface {
	// ID returns the master's id in returns.
	ID() string
	// SLS runs SLS files, and reports whether all states succeeded.
	SLS(ctx context.Context, o Orchestration) (ret any, succeeded bool, err error)
	// Show returns the high data of SLS files, High runs high data, Single runs one state.
	Show(ctx context.Context, o Orchestration) (any, error)
	High(ctx context.Context, data value.Map, o Orchestration) (any, error)
	Single(ctx context.Context, fun, name string, kwargs value.Map, o Orchestration) (any, error)
	// Pause changes the requests to an orchestration, on whichever master it runs: a map from the
	// id of a state, or __all__, to a map with kill or duration.
	Pause(ctx context.Context, jid string, change func(asked value.Map) value.Map) error
}

// OrchestrateWithJID reports whether salt-run gives the function the id of its own job.
func OrchestrateWithJID(fun string) bool {
	return fun == "state.orchestrate" || fun == "state.orch" || fun == "state.sls"
}

const orchestrateDoc = `Run states on this master: an orchestration of minions, runners and wheel functions.

mods
    SLS files of file_roots: a list, or names with commas between them.

saltenv : base
    The environment that they are in.

test : None
    True changes nothing and says what would change.

exclude : None
    SLS files, or maps with id or sls, that are left out.

pillar : None
    A map that is laid over the pillar of this master.

pillarenv : None
    The environment of the pillar; all of them are merged without it.

pillar_enc : None
    The renderer, such as gpg, that decrypts what pillar holds.

orchestration_jid : None
    The job id of the orchestration, in events and for state.pause.

The exit code of salt-run is 1 if a state failed.

Example:

    salt-run state.orchestrate webserver
    salt-run state.orchestrate webserver saltenv=dev test=True pillar='{"nodes": 3}'`

// OrchestrationFamily is the part of the family state that runs states.
func OrchestrationFamily(o Orchestrator) []Function {
	env := []function.Param{function.Opt("pillar", nil), function.Opt("pillarenv", nil),
		function.Opt("pillar_enc", nil)}
	orchestrate := Function{
		Doc: orchestrateDoc,
		Params: append([]function.Param{function.Need("mods"), function.Opt("saltenv", "base"),
			function.Opt("test", nil), function.Opt("exclude", nil)},
			append(slices.Clip(env), function.Opt("orchestration_jid", nil))...),
		Run: func(ctx context.Context, c *Call) (any,
			error) {
			return orchestrateSLS(ctx, c, o)
		},
	}
	show := Function{
		Doc: `Show the states of SLS files as state.orchestrate reads them, before it orders them.

Parameters are those of state.orchestrate.

Example:

    salt-run state.orchestrate_show_sls webserver`,
		Params: append([]function.Param{function.Need("mods"), function.Opt("saltenv", "base"),
			function.Opt("test", nil), function.Opt("queue", false)}, env...),
		Run: func(ctx context.Context, c *Call) (any, error) {
			req, err := orchestration(c)
			if err != nil {
				return nil, err
			}
			req.JID = ""
			v, err := o.Show(ctx, req)
			return value.Map{{Key: o.ID(), Value: v}}, err
		},
	}
	one := []Function{
		{
			Name: "state.orchestrate_single", VarKwargs: true,
			Params: []function.Param{function.Need("fun"), function.Need("name"),
				function.Opt("test", nil), function.Opt("queue", false),
				function.Opt("pillar", nil)},
			Doc: `Run one state on this master, with its arguments as keywords.

Example:

    salt-run state.orchestrate_single fun=salt.wheel name=key.list_all`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				kwargs := slices.Clone(c.Kwargs())
				if c.Given("pillar") {
					kwargs = append(kwargs, value.Pair{Key: "pillar", Value: c.Arg("pillar")})
				}
				return orchestrateOne(c, o,
					func(req Orchestration) (any,
						error) {
						return o.Single(ctx, c.Text("fun"), c.Text("name"), kwargs, req)
					})
			},
		},
		{
			Name: "state.orchestrate_high", VarKwargs: true,
			Params: []function.Param{function.Need("data"), function.Opt("test", nil),
				function.Opt("queue", false), function.Opt("pillar", nil)},
			Doc: `Run states on this master that you give as a map, in the form of an SLS file.

Example:

    salt-run state.orchestrate_high '{one: {salt.function: [{name: test.ping}, {tgt: "*"}]}}'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return orchestrateOne(c, o, func(req Orchestration) (any, error) {
					data, ok := value.Plain(c.Arg("data")).(value.Map)
					if !ok {
						return []any{"High data is not a dictionary and is invalid"}, nil
					}
					return o.High(ctx, data, req)
				})
			},
		},
	}
	all := append(one, named(orchestrate, "state.orchestrate", "state.orch", "state.sls")...)
	all = append(all, named(show, "state.orchestrate_show_sls", "state.orch_show_sls")...)
	return append(all, pauses(o)...)
}

// named returns a copy of a function for each name.
func named(f Function, names ...string) []Function {
	out := make([]Function, len(names))
	for i, name := range names {
		f.Name = name
		out[i] = f
	}
	return out
}

func orchestrateSLS(ctx context.Context, c *Call, o Orchestrator) (any, error) {
	req, err := orchestration(c)
	if err != nil {
		return nil, err
	}
	if c.Given("orchestration_jid") {
		req.JID = c.Text("orchestration_jid")
	}
	v, succeeded, err := o.SLS(ctx, req)
	if err != nil {
		return nil, err
	}
	code := int64(1)
	if succeeded {
		code = 0
	}
	return value.Map{{Key: "data", Value: value.Map{{Key: o.ID(), Value: v}}},
		{Key: "outputter", Value: "highstate"}, {Key: "retcode", Value: code}}, nil
}

// orchestrateOne runs states that are not in SLS files; Salt shows their result twice, first as an
// event.
func orchestrateOne(c *Call, o Orchestrator, run func(Orchestration) (any, error)) (any, error) {
	if err := pillarIsMap(c); err != nil {
		return nil, err
	}
	req := Orchestration{User: c.User}
	for _, kw := range c.Kwargs() {
		switch kw.Key {
		case "saltenv":
			req.Saltenv = value.Str(kw.Value)
		case "pillarenv":
			req.Pillarenv = value.Str(kw.Value)
		}
	}
	req.Pillar, _ = value.Plain(c.Arg("pillar")).(value.Map)
	v, err := run(req)
	if err != nil {
		return nil, err
	}
	ret := value.Map{{Key: o.ID(), Value: v}}
	c.Progress(value.Map{{Key: "data", Value: ret}, {Key: "outputter", Value: "highstate"}})
	return ret, nil
}

func pillarIsMap(c *Call) error {
	if _, ok := value.Plain(c.Arg("pillar")).(value.Map); c.Given("pillar") && !ok {
		return &function.ArgumentError{Text: "Pillar data must be formatted as a dictionary"}
	}
	return nil
}

// orchestration reads the parameters that the functions on SLS files share.
func orchestration(c *Call) (Orchestration, error) {
	req := Orchestration{
		Mods: c.Texts("mods"), Saltenv: c.Text("saltenv"), Pillarenv: c.Text("pillarenv"),
		PillarEnc: c.Text("pillar_enc"), JID: c.JID, User: c.User,
	}
	if err := pillarIsMap(c); err != nil {
		return req, err
	}
	req.Pillar, _ = value.Plain(c.Arg("pillar")).(value.Map)
	if c.Given("test") { // anything but False is a test, as in Salt
		test := c.Arg("test") != false
		req.Test = &test
	}
	if !c.True("exclude") {
		return req, nil
	}
	if list, ok := value.Plain(c.Arg("exclude")).([]any); ok {
		req.Exclude = list
		return req, nil
	}
	for part := range strings.SplitSeq(c.Text("exclude"), ",") {
		req.Exclude = append(req.Exclude, strings.TrimSpace(part))
	}
	return req, nil
}

// pauses are the functions that pause, resume or end a running orchestration.
func pauses(o Orchestrator) []Function {
	jid, id := function.Need("jid"), function.Opt("state_id", nil)
	change := func(ctx context.Context, c *Call,
		change func(asked value.Map, id string) value.Map) (any, error) {
		id := "__all__"
		if c.Given("state_id") {
			id = c.Text("state_id")
		}
		if err := o.Pause(ctx, c.Text("jid"),
			func(asked value.Map) value.Map { return change(asked, id) }); err != nil {
			return nil, fmt.Errorf("pause orchestration %s: %w", c.Text("jid"), err)
		}
		return nil, nil
	}
	entry := func(asked value.Map, id string) value.Map {
		v, _ := asked.Get(id)
		m, _ := v.(value.Map)
		return slices.Clone(m)
	}
	pause := Function{
		Doc: `Pause a running orchestration, on whatever master it runs.

jid
    Of the orchestration; salt-run jobs.master lists those that run on a master.

state_id : None
    The id of the state before which it waits; without it the next one.

duration : None
    Seconds after which it resumes alone.

Example:

    salt-run state.pause 20260101120000000000 migrate duration=60`,
		Params: []function.Param{jid, id, function.Opt("duration", nil)},
		Run: func(ctx context.Context, c *Call) (any, error) {
			seconds, err := int64(0), error(nil)
			if c.True("duration") {
				var n float64
				if n, err = c.Number("duration"); err != nil {
					return nil, err
				}
				seconds = int64(n)
			}
			return change(ctx, c, func(asked value.Map, id string) value.Map {
				e := entry(asked, id)
				if seconds > 0 {
					e = e.Set("duration", seconds)
				}
				if e == nil {
					e = value.Map{}
				}
				return asked.Set(id, e)
			})
		},
	}
	resume := Function{
		Doc: `Resume an orchestration that state.pause stopped.

state_id : None
    The id that was paused; without it all of them.

Example:

    salt-run state.resume 20260101120000000000`,
		Params: []function.Param{jid, id},
		Run: func(ctx context.Context, c *Call) (any, error) {
			return change(ctx, c, func(asked value.Map, id string) value.Map {
				if id == "__all__" {
					return nil
				}
				return asked.Without(id)
			})
		},
	}
	kill := Function{
		Name: "state.soft_kill",
		Doc: `End a running orchestration before its next state; the state in progress completes.

state_id : None
    The id of the state before which it ends.

Example:

    salt-run state.soft_kill 20260101120000000000`,
		Params: []function.Param{jid, id},
		Run: func(ctx context.Context, c *Call) (any, error) {
			return change(ctx, c, func(asked value.Map,
				id string) value.Map {
				return asked.Set(id, entry(asked, id).Set("kill", true))
			})
		},
	}
	return slices.Concat(named(pause, "state.pause", "state.set_pause"),
		named(resume, "state.resume", "state.rm_pause"), []Function{kill})
}
