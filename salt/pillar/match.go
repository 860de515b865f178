package pillar

import (
	"context"
	"slices"

	"clustermaster/salt/target"
	"clustermaster/value/pyregex"
)

// matched holds the SLS files of one environment, in the order in which the top file first names
// them.
type matched struct {
	env string
	sls []string
}

// matches finds the SLS files that the top file assigns to this minion.
func (p *compilation) matches(ctx context.Context, top []topEnv) []matched {
	var out []matched
	for _, e := range top {
		if p.pillarenv != "" && e.env != p.pillarenv {
			continue
		}
		m := matched{env: e.env}
		hit := false
		for _, t := range e.targets {
			if !p.meant(ctx, e.env, t) {
				continue
			}
			hit = true
			for _, sls := range t.sls {
				if !slices.Contains(m.sls, sls) {
					m.sls = append(m.sls, sls)
				}
			}
		}
		if hit {
			out = append(out, m)
		}
	}
	return out
}

// meant reports whether a target of the top file means this minion. Where Salt would fail with an
// exception, the pillar gets an error.
func (p *compilation) meant(ctx context.Context, env string, t topTarget) bool {
	if t.badType != nil {
		p.fault("Pillar top file has a match type that is no text for target '%v' in environment '%s'", t.target, env)
		return false
	}
	expr, isText := t.target.(string)
	switch t.matcher {
	case "compound", "glob", "grain", "grain_pcre", "list", "nodegroup", "pillar", "pillar_pcre",
		"pillar_exact", "ipcidr":
	case "pcre":
		if _, ok := pyregex.Start(expr); !ok {
			p.fault("Pillar top file has target '%s' in environment '%s', which is no regular expression", expr, env)
			return false
		}
	case "range", "data", "resource", "managing_minion": // a master has no data for these
		return false
	default:
		p.fault("Pillar top file has the unknown match type '%s' for target '%v' in environment '%s'", t.matcher, t.target, env)
		return false
	}
	if !isText {
		return false
	}
	found, err := target.Match(ctx, t.matcher, expr, "", oneMinion{p}, true)
	if err != nil {
		p.fault("Matching target '%s' of the pillar top file failed: %s", expr, err)
		return false
	}
	return slices.Contains(found.Minions, p.req.ID)
}

// oneMinion is a Source with this minion only, and the request's grains and pillar.
type oneMinion struct{ p *compilation }

var _ target.Source = oneMinion{}

func (o oneMinion) AcceptedIDs() []string { return []string{o.p.req.ID} }
func (o oneMinion) DataCache() bool       { return true }

func (o oneMinion) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string,
	error) {
	j := q.Judge()
	fn(o.p.req.ID, j.Minion(false, o.p.grains))
	fn(o.p.req.ID, j.Minion(true, o.p.pillar))
	return "", j.Err()
}

func (o oneMinion) Nodegroup(name string) (any, bool) { return o.p.nodegroups().Get(name) }
