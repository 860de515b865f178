package pillar

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"clustermaster/value"
)

// errTop refuses a top file of the wrong form.
var errTop = errors.New("not the form of a top file")

// topTarget is one target of one environment, with its list.
type topTarget struct {
	target  any // the expression, nearly always text
	matcher string
	badType any // a match type that is not text
	order   int
	matches []any // the maps of the list that hold match, unchanged
	sls     []string
}

// topEnv holds what all top files say about one environment.
type topEnv struct {
	env     string
	targets []topTarget
}

// renderedTop is a top file and its environment.
type renderedTop struct {
	env  string
	data any
}

// top renders and merges the top files.
func (p *compilation) top(ctx context.Context) []topEnv {
	tops := p.includedTops(ctx, p.primaryTops(ctx))
	merged, err := p.mergeTops(tops)
	if err != nil {
		p.fault("Error encountered while rendering pillar top file.")
		return nil
	}
	return merged
}

// Top returns the merged top file for a request as a map from environment to target to list, and
// the errors found.
func (c *Compiler) Top(ctx context.Context, r Request) (value.Map, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	p := c.newCompilation(r)
	defer p.bind()()
	out := value.Map{}
	for _, e := range p.top(ctx) {
		targets := make(value.Map, len(e.targets))
		for i, t := range e.targets {
			targets[i] = value.Pair{Key: t.target,
				Value: append(slices.Clone(t.matches), anyTexts(t.sls)...)}
		}
		out = append(out, value.Pair{Key: e.env, Value: targets})
	}
	return out, p.errors, ctx.Err()
}

// topEnvs are the environments whose top file is used.
func (p *compilation) topEnvs() []string {
	if p.pillarenv != "" {
		if _, ok := p.env(p.pillarenv); !ok {
			p.log.Debug("pillarenv has no pillar_roots", "minion", p.req.ID, "env", p.pillarenv)
			return nil
		}
		return []string{p.pillarenv}
	}
	envs := p.envs()
	if p.opts.MergeStrategy != "none" {
		return envs
	}
	only := p.saltenv
	if only == "" {
		only = "base"
	}
	if slices.Contains(envs, only) {
		return []string{only}
	}
	return nil
}

// primaryTops renders state_top of each environment. It stops at the first that fails.
func (p *compilation) primaryTops(ctx context.Context) []renderedTop {
	var out []renderedTop
	for _, env := range p.topEnvs() {
		f, found, err := p.open(env, p.opts.StateTop)
		if err == nil && !found {
			continue
		}
		var data any
		if err == nil {
			data, err = p.render(ctx, f, env, "", nil)
		}
		if err != nil {
			p.fault("Rendering Primary Top file failed, render error:\n%s", err)
			return out
		}
		out = append(out, renderedTop{env, data})
	}
	return out
}

// includedTops adds the top files that the primary ones include. Their own includes are not
// followed, as in Salt.
func (p *compilation) includedTops(ctx context.Context, tops []renderedTop) []renderedTop {
	for _, t := range slices.Clone(tops) {
		m, _ := t.data.(value.Map)
		list, ok := m.Get("include")
		if !ok {
			continue
		}
		names, ok := list.([]any)
		if !ok {
			p.fault("Include of the top file of environment '%s' is not a list", t.env)
			continue
		}
		var done []string
		for _, v := range names {
			sls, ok := v.(string)
			if !ok || slices.Contains(done, sls) {
				continue
			}
			done = append(done, sls)
			f, found, err := p.state(t.env, sls)
			if err == nil && !found {
				p.log.Warn("top file includes a missing one", "env", t.env, "sls", sls)
				continue
			}
			var data any
			if err == nil {
				data, err = p.render(ctx, f, t.env, "", nil)
			}
			if err != nil {
				p.fault("Rendering Top file %s failed, render error:\n%s", sls, err)
				continue
			}
			tops = append(tops, renderedTop{t.env, data})
		}
	}
	// Salt gathers the tops per environment, in the order of the environments.
	order := make(map[string]int)
	for _, t := range tops {
		if _, ok := order[t.env]; !ok {
			order[t.env] = len(order)
		}
	}
	slices.SortStableFunc(tops, func(a, b renderedTop) int { return order[a.env] - order[b.env] })
	return tops
}

// mergeTops joins top files: a repeated target replaces the earlier one, in its place.
func (p *compilation) mergeTops(tops []renderedTop) ([]topEnv, error) {
	var out []topEnv
	for _, t := range tops {
		m, ok := t.data.(value.Map)
		if !ok {
			return nil, errTop
		}
		for _, pair := range m {
			if pair.Key == "include" {
				continue
			}
			env, isText := pair.Key.(string)
			if !isText {
				return nil, errTop
			}
			i := slices.IndexFunc(out, func(e topEnv) bool { return e.env == env })
			if i < 0 {
				i = len(out)
				out = append(out, topEnv{env: env})
			}
			targets, ok := pair.Value.(value.Map)
			if !ok && !isEmpty(pair.Value) {
				return nil, errTop
			}
			for _, target := range targets {
				made, err := p.target(env, target)
				if err != nil {
					return nil, err
				}
				j := slices.IndexFunc(out[i].targets,
					func(have topTarget) bool { return value.Equal(have.target, made.target) })
				if j < 0 {
					out[i].targets = append(out[i].targets, made)
				} else {
					out[i].targets[j] = made
				}
			}
		}
	}
	for i := range out {
		slices.SortStableFunc(out[i].targets, func(a, b topTarget) int { return a.order - b.order })
	}
	return out, nil
}

// isEmpty reports whether a value is one that Python iterates over without finding anything.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	}
	return false
}

// target reads one target and its list.
func (p *compilation) target(env string, pair value.Pair) (topTarget, error) {
	t := topTarget{target: pair.Key, matcher: "compound"}
	var comps []any
	switch v := pair.Value.(type) {
	case []any:
		comps = v
	case string: // Python iterates over the letters of a text, and so do we
		for _, r := range v {
			comps = append(comps, string(r))
		}
	case value.Map:
		for _, e := range v {
			comps = append(comps, e.Key)
		}
	default:
		return t, errTop
	}
	ignoreMissing := false
	for _, comp := range comps {
		switch c := comp.(type) {
		case string:
			if !slices.Contains(t.sls, c) {
				t.sls = append(t.sls, c)
			}
		case value.Map:
			if m, ok := c.Get("match"); ok {
				t.matches = append(t.matches, c)
				var isText bool
				if t.matcher, isText = m.(string); !isText {
					t.badType = m
				}
			}
			if o, ok := c.Get("order"); ok {
				n, err := order(o)
				if err != nil {
					return t, err
				}
				t.order = n
			}
			if v, ok := c.Get("ignore_missing"); ok && value.Truth(v) {
				ignoreMissing = true
			}
		}
	}
	if ignoreMissing {
		p.ignored[env] = append(p.ignored[env], t.sls...)
	}
	return t, nil
}

// order is Python's int() of the value under order; text that is not a number counts as 0.
func order(v any) (int, error) {
	switch v := v.(type) {
	case int64:
		return int(v), nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case float64:
		return int(v), nil
	case string:
		n, _ := strconv.Atoi(strings.TrimSpace(v))
		return n, nil
	}
	return 0, errTop
}
