package pillar

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// renderMatches renders the matched SLS files and merges them in order.
func (p *compilation) renderMatches(ctx context.Context, matches []matched) (value.Map, error) {
	made := p.req.Override
	if p.apart {
		made = nil
	}
	for _, m := range p.inEnvOrder(matches) {
		var names []string
		for _, sls := range m.sls {
			avail, ok := p.available(m.env)
			if !ok {
				p.fault("No matching pillar environment for environment '%s' found", m.env)
			}
			if hits := fnmatch.Filter(avail, sls); len(hits) > 0 {
				names = append(names, hits...)
			} else {
				names = append(names, sls)
			}
		}
		mods := make(map[string]any)
		for _, sls := range names {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			state, faults := p.sls(ctx, sls, m.env, mods, nil, 0)
			for _, f := range faults {
				p.fault("%s", f)
			}
			if state, ok := state.(value.Map); ok {
				made = p.merge(made, state)
			}
		}
	}
	return made, nil
}

// inEnvOrder sorts matches by env_order; environments that it does not name come last.
func (p *compilation) inEnvOrder(matches []matched) []matched {
	if len(p.opts.EnvOrder) == 0 {
		return matches
	}
	var out, rest []matched
	for _, env := range p.opts.EnvOrder {
		for _, m := range matches {
			if m.env == env && !slices.ContainsFunc(out,
				func(o matched) bool { return o.env == env }) {
				out = append(out, m)
			}
		}
	}
	for _, m := range matches {
		if !slices.Contains(p.opts.EnvOrder, m.env) {
			rest = append(rest, m)
		}
	}
	return append(out, rest...)
}

// sls renders one SLS file with its includes. It returns a nil state if the file is missing or
// fails. mods collects what was rendered in this environment, without includes. The faults come in
// Salt's order and number: within a list of includes, Salt repeats the faults of the last rendered
// file for each entry that is already rendered.
func (p *compilation) sls(ctx context.Context, sls, env string, mods map[string]any,
	defaults value.Map, depth int) (state any, faults []string) {
	f, found, err := p.state(env, sls)
	if err == nil && !found {
		if faults = p.absent(sls, env); faults != nil {
			mods[sls] = nil // Salt reports it once: it counts as rendered
		}
		return nil, faults
	}
	if depth > maxIncludeDepth {
		return nil, []string{fmt.Sprintf("Including SLS '%s' goes deeper than %d levels", sls,
			maxIncludeDepth)}
	}
	if err == nil {
		state, err = p.render(ctx, f, env, sls, defaults)
	}
	if err != nil {
		state = nil
		text := fmt.Sprintf("Rendering SLS '%s' failed, render error:\n%s", sls, err)
		p.log.Error("pillar SLS does not render", "minion", p.req.ID, "sls", sls, "env", env,
			"err", err)
		if p.opts.SafeRenderError {
			text = fmt.Sprintf("Rendering SLS '%s' failed. Please see master log for details.", sls)
		}
		faults = append(faults, text)
	}
	mods[sls] = state
	if !value.Truth(state) {
		return state, faults
	}
	m, ok := state.(value.Map)
	if !ok {
		return state, append(faults, fmt.Sprintf("SLS '%s' does not render to a dictionary", sls))
	}
	list, ok := m.Get("include")
	if !ok {
		return m, faults
	}
	includes, ok := list.([]any)
	if !ok {
		return m,
			append(faults,
				fmt.Sprintf("Include Declaration in SLS '%s' is not formed as a list", sls))
	}
	m = m.Without("include")
	mods[sls] = m
	in := inclusion{p: p, sls: sls, env: env, package_: strings.HasSuffix(f.source, "/init.sls"),
		mods: mods, defaults: defaults, depth: depth}
	merged, more := in.run(ctx, includes, m)
	return merged, append(faults, more...)
}

// absent returns the error for a missing SLS file, or none if the file may be missing.
func (p *compilation) absent(sls, env string) []string {
	if slices.Contains(p.ignored[env], sls) {
		return nil
	}
	if e, ok := p.env(env); ok && len(e.Roots) > 0 {
		return []string{fmt.Sprintf("Specified SLS '%s' in environment '%s' is not available on the salt master", sls, env)}
	}
	p.log.Debug("SLS of an environment without pillar_roots", "minion", p.req.ID, "sls", sls,
		"env", env)
	return nil
}

// inclusion processes one list of includes.
type inclusion struct {
	p        *compilation
	sls, env string
	package_ bool // the file is the init.sls of its folder
	mods     map[string]any
	defaults value.Map // of the including file, then of the last include that had some
	depth    int
}

// run renders the includes and merges them with the including file's own data, which wins unless
// pillar_includes_override_sls is set.
func (in *inclusion) run(ctx context.Context, includes []any, own value.Map) (any, []string) {
	var faults, last []string
	merged, first := value.Map(nil), true
	lay := func(m value.Map) {
		if first {
			merged, first = m, false
			return
		}
		merged = in.p.merge(merged, m)
	}
	if in.p.opts.IncludesOverrideSLS {
		lay(own)
	}
	for _, item := range includes {
		name, key, err := in.item(item)
		if err != "" {
			faults = append(faults, err)
			continue
		}
		names, ok := in.names(name)
		if !ok {
			faults = append(faults,
				fmt.Sprintf("No matching pillar environment for environment '%s' found", in.env))
		}
		for _, sub := range names {
			state, done := in.mods[sub]
			if !done {
				state, last = in.p.sls(ctx, sub, in.env, in.mods, in.defaults, in.depth+1)
			}
			if value.Truth(state) {
				state = under(key, state)
				if m, ok := state.(value.Map); ok {
					lay(m)
				} else {
					faults = append(faults,
						fmt.Sprintf("SLS '%s' cannot include '%s', which does not render to a dictionary", in.sls, sub))
				}
			}
			// Repeated faults grow fast.
			faults = append(faults, last[:min(len(last), maxErrors-min(len(faults), maxErrors))]...)
		}
	}
	if !in.p.opts.IncludesOverrideSLS {
		lay(own)
	}
	return merged, faults
}

// item reads one entry of an include list: a name, or a map from a name to defaults and key.
func (in *inclusion) item(v any) (name, key, err string) {
	switch v := v.(type) {
	case string:
		return v, "", ""
	case value.Map:
		if len(v) == 0 {
			break
		}
		name, isText := v[0].Key.(string)
		settings, isMap := v[0].Value.(value.Map)
		if !isText || !isMap {
			break
		}
		in.defaults = nil
		if d, ok := settings.Get("defaults"); ok && d != nil {
			m, ok := d.(value.Map)
			if !ok {
				return "", "",
					fmt.Sprintf("Include of '%s' in SLS '%s' has defaults that are no dictionary",
						name, in.sls)
			}
			in.defaults = m
		}
		nest, _ := settings.Get("key")
		under, isText := nest.(string)
		if !isText && value.Truth(nest) {
			return "", "", fmt.Sprintf("Include of '%s' in SLS '%s' has a key that is no text",
				name, in.sls)
		}
		return name, under, ""
	}
	return "", "",
		fmt.Sprintf("Include Declaration in SLS '%s' holds an entry that is neither a name nor a name with defaults and key", in.sls)
}

// names lists the SLS files that an include means. As in Salt, a plain name that exists comes
// twice, and a name with a leading dot also means the file of that name at the root.
func (in *inclusion) names(sub string) ([]string, bool) {
	avail, ok := in.p.available(in.env)
	if !ok {
		return []string{sub}, false
	}
	out := fnmatch.Filter(avail, strings.ReplaceAll(strings.TrimLeft(sub, "."), "/", "."))
	if strings.HasPrefix(sub, ".") {
		parts := strings.Split(in.sls, ".")
		if !in.package_ {
			parts = parts[:len(parts)-1]
		}
		sub = strings.Join(append(slices.Clip(parts), sub[1:]), ".")
	}
	if out = append(out, fnmatch.Filter(avail, sub)...); len(out) == 0 {
		out = []string{sub}
	}
	return out, true
}

// under nests a value below a key path such as "a:b".
func under(key string, v any) any {
	if key == "" {
		return v
	}
	parts := strings.Split(key, ":")
	for _, part := range slices.Backward(parts) {
		v = value.Map{{Key: part, Value: v}}
	}
	return v
}
