package pillar

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/salt/render"
	"clustermaster/value"
	"clustermaster/wire"
)

// extPillar makes data for a minion from the value that the configuration has under its name.
type extPillar func(ctx context.Context, p *compilation, pillar value.Map, a extArgs) (any, error)

// extPillarNamed finds an ext_pillar.
func extPillarNamed(name string) extPillar {
	switch name {
	case "cmd_yaml":
		return cmdYAML
	case "cmd_json":
		return cmdJSON
	case "file_tree":
		return fileTree
	case "nodegroups":
		return nodegroups
	case "extra_minion_data_in_pillar":
		return extraMinionData
	case "git":
		return gitPillar
	case "gpg":
		return gpgPillar
	}
	return nil
}

const extPillarNames = "cmd_json, cmd_yaml, extra_minion_data_in_pillar, file_tree, git, gpg, nodegroups"

// extArgs are the arguments of an ext_pillar after minion id and pillar.
type extArgs struct {
	list   []any
	kwargs value.Map
}

// argsOf reads them: a map gives keywords, a list positions, anything else the only one.
func argsOf(v any) extArgs {
	switch v := v.(type) {
	case value.Map:
		return extArgs{kwargs: v}
	case []any:
		return extArgs{list: v}
	}
	return extArgs{list: []any{v}}
}

// bind gives each parameter its value.
func (a extArgs) bind(params ...function.Param) (map[string]any, error) {
	ext := function.Signature{Name: "ext_pillar",
		Params: append([]function.Param{function.Need("minion_id"), function.Need("pillar")},
			params...)}
	b, err := ext.Bind(append([]any{nil, nil}, a.list...), a.kwargs)
	return b.Named, err
}

// extPillars merges the data of all ext_pillars into pillar. They see it with the request's
// override. The minion's own data goes into the result only if nothing decrypts it, else into
// p.given. An ext_pillar that fails is an error of the pillar, and the others go on.
func (p *compilation) extPillars(ctx context.Context, pillar value.Map) (value.Map, error) {
	if !p.wellFormed {
		p.fault(`The "ext_pillar" option is malformed`)
		return pillar, nil
	}
	switch {
	case !p.apart:
		pillar = p.override(pillar, p.req.Override)
	case p.opts.ExtPillarFirst: // start with an empty pillar
		pillar = nil
	}
	for _, v := range p.runs {
		run, ok := v.(value.Map)
		if !ok || len(run) == 0 {
			p.fault(`The "ext_pillar" option is malformed`)
			return value.Map{}, nil
		}
		if first, _ := run[0].Key.(string); slices.Contains(p.opts.ExcludeExtPillar, first) {
			continue
		}
		var ext any
		for _, pair := range run {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			name, _ := pair.Key.(string)
			sees := pillar
			if p.apart && name != "gpg" {
				sees = p.override(p.override(pillar, p.given), p.req.Override)
			}
			made, found, err := p.extPillar(ctx, name, sees, pair.Value)
			if err == nil && !found { // Salt continues without telling the minion
				p.log.Error("ext_pillar not found: put it into the folder pillar of extension_modules",
					"minion", p.req.ID, "fun", name)
				continue
			}
			if err != nil {
				p.fault("Failed to load ext_pillar %s: %s", name, err)
				continue
			}
			ext = made // of several in one entry the last counts, as in Salt
		}
		if !value.Truth(ext) {
			continue
		}
		m, ok := ext.(value.Map)
		if !ok {
			p.fault("Failed to load ext_pillar %v: it made no dictionary", run[0].Key)
			continue
		}
		if _, extra := run.Get("extra_minion_data_in_pillar"); p.apart && extra {
			p.given = p.merge(p.given, m)
			continue
		}
		pillar = p.merge(pillar, m)
	}
	return pillar, nil
}

// decrypts reports whether anything in a pillar is decrypted after merging.
func (p *compilation) decrypts() bool {
	return value.Truth(p.opts.DecryptPillar) || slices.ContainsFunc(p.runs, func(v any) bool {
		run, _ := v.(value.Map)
		_, gpg := run.Get("gpg")
		return gpg
	})
}

// extPillar runs one ext_pillar. The site's own comes first, then this package's, then those of
// p.functions.
func (p *compilation) extPillar(ctx context.Context, name string, pillar value.Map,
	args any) (v any, found bool, err error) {
	others, _ := p.functions.(ExtPillars)
	run := extPillarNamed(name)
	if run != nil && (others == nil || !others.OverridesExtPillar(name)) {
		v, err = run(ctx, p, pillar, argsOf(args))
		return v, true, err
	}
	if others == nil {
		return nil, true, fmt.Errorf("this master has no ext_pillar of that name; it has %s",
			extPillarNames)
	}
	// Salt's stack takes the lines that a template makes of an id for patterns of file names.
	if name == "stack" && !wire.PlainID(p.req.ID) && !others.OverridesExtPillar(name) {
		return nil, true, fmt.Errorf("the minion id %q could stand for other minions' files",
			p.req.ID)
	}
	return others.ExtPillar(ctx, p.minion("base"), name, pillar, args, p.req.ExtraMinionData)
}

// extRuns lists the configured ext_pillars, then the ext_pillar of an on-demand request, if it is
// allowed. ok is false if the option is not a list.
func (p *compilation) extRuns() (runs []any, ok bool) {
	switch v := p.opts.ExtPillar.(type) {
	case nil:
	case []any:
		runs = v
	default:
		return nil, false
	}
	if p.req.Ext == nil || !value.Truth(p.req.Ext) {
		return runs, true
	}
	ext, isMap := p.req.Ext.(value.Map)
	if !isMap {
		p.log.Warn("on-demand pillar is not a dictionary; it is left out", "minion", p.req.ID)
		return runs, true
	}
	for _, pair := range ext {
		if name, _ := pair.Key.(string); !slices.Contains(p.opts.OnDemandExtPillar, name) {
			p.log.Warn("on-demand pillar is not allowed; see on_demand_ext_pillar", "minion",
				p.req.ID, "fun", fmt.Sprint(pair.Key))
			return runs, true
		}
	}
	return append(slices.Clone(runs), ext), true
}

func (p *compilation) call(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	return host{p: p, env: "base"}.Call(ctx, fun, args, kwargs)
}

// commandsAtOnce bounds the commands of ext_pillars that run at a time. Salt's master runs one for
// each of its worker_threads, of which there are 5. Calls of a site's own function don't count:
// they wait for a child of Python code, and pillars that have one may wait for their turn here.
const commandsAtOnce = 32

// command runs the command of cmd_yaml and cmd_json. It replaces %s by the minion's id, quoted
// unless it is plain.
func (p *compilation) command(ctx context.Context, a extArgs, fun, pipe string,
	kwargs value.Map) (any, error) {
	given, err := a.bind(function.Need("command"))
	if err != nil {
		return nil, err
	}
	command, ok := given["command"].(string)
	if !ok {
		return nil, fmt.Errorf("ext_pillar() needs a command")
	}
	line, err := wire.CommandFor(command, p.req.ID)
	if err != nil {
		return nil, err
	}
	own := host{p: p}.Overrides(fun)
	if !own {
		if err := p.commands.Acquire(ctx, 1); err != nil {
			return nil, fmt.Errorf("wait for the commands of other pillars: %w", err)
		}
	}
	out, err := p.call(ctx, fun, []any{line}, kwargs)
	if !own {
		p.commands.Release(1)
	}
	if err == nil {
		text, _ := out.(string)
		var v any
		if v, err = p.parse(ctx, text, pipe); err == nil {
			return v, nil
		}
	}
	p.log.Error("output of an ext_pillar's command cannot be used; it is left out", "minion",
		p.req.ID, "fun", command, "err", err)
	return nil, nil
}

// parse reads text with one renderer.
func (p *compilation) parse(ctx context.Context, text, pipe string) (any, error) {
	if strings.HasPrefix(text, "#!") {
		text = "\n" + text // a comment, not a choice of renderers
	}
	return p.deps.Renderer.Render(ctx, render.Source{SaltEnv: "base", Data: []byte(text)}, pipe,
		p.context(nil), host{p: p, env: "base"})
}

func cmdYAML(ctx context.Context, p *compilation, _ value.Map, a extArgs) (any, error) {
	return p.command(ctx, a, "cmd.run_stdout", "yaml",
		value.Map{{Key: "python_shell", Value: true}})
}

func cmdJSON(ctx context.Context, p *compilation, _ value.Map, a extArgs) (any, error) {
	return p.command(ctx, a, "cmd.run", "json", nil)
}

// nodegroups lists the nodegroups that the minion is in.
func nodegroups(ctx context.Context, p *compilation, _ value.Map, a extArgs) (any, error) {
	given, err := a.bind(function.Opt("pillar_name", nil))
	if err != nil {
		return nil, err
	}
	name, _ := given["pillar_name"].(string)
	if name == "" {
		name = "nodegroups"
	}
	in := []any{}
	for _, group := range p.nodegroups() {
		hit, err := p.inCompound(ctx, group.Value)
		if err != nil {
			return nil, err
		}
		if hit {
			in = append(in, group.Key)
		}
	}
	return value.Map{{Key: name, Value: in}}, nil
}

// inCompound reports whether a compound expression means this minion, judged by its kept grains.
func (p *compilation) inCompound(ctx context.Context, expr any) (bool, error) {
	if p.deps.Matches == nil {
		return false, nil
	}
	ids, err := p.deps.Matches(ctx, expr)
	if err != nil {
		return false, fmt.Errorf("match nodegroup: %w", err)
	}
	return slices.Contains(ids, p.req.ID), nil
}

// extraMinionData copies the extra data that the minion sent.
func extraMinionData(_ context.Context, p *compilation, _ value.Map, a extArgs) (any, error) {
	given, err := a.bind(function.Need("include"), function.Opt("extra_minion_data", nil))
	if err != nil {
		return nil, err
	}
	data := p.req.ExtraMinionData
	if len(data) == 0 {
		return nil, nil
	}
	if all, _ := given["include"].(string); all == "*" || all == "<all>" {
		return data, nil
	}
	list, _ := given["include"].([]any)
	out := value.Map{}
	for _, v := range list {
		key, _ := v.(string)
		if sub, ok := subtree(data, strings.Split(key, ":")); ok {
			out = value.Update(out, sub)
		}
	}
	return out, nil
}

// subtree returns a copy of the value at a path, nested under that path.
func subtree(m value.Map, path []string) (value.Map, bool) {
	v, ok := m.Get(path[0])
	if !ok {
		return nil, false
	}
	if len(path) == 1 {
		return value.Map{{Key: path[0], Value: v}}, true
	}
	inner, _ := v.(value.Map)
	sub, ok := subtree(inner, path[1:])
	return value.Map{{Key: path[0], Value: sub}}, ok
}

// gpgPillar decrypts the whole pillar.
func gpgPillar(ctx context.Context, p *compilation, pillar value.Map, _ extArgs) (any, error) {
	return p.decrypted(ctx, pillar, "gpg")
}
