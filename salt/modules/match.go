package modules

import (
	"context"
	"errors"
	"fmt"
	"slices"

	sig "clustermaster/salt/function"
	"clustermaster/salt/target"
	"clustermaster/value"
)

func matchFunctions() []function {
	var out []function
	for _, kind := range []string{"glob", "pcre", "list", "grain", "grain_pcre", "pillar",
		"pillar_pcre", "compound", "ipcidr", "nodegroup"} {
		out = append(out, function{name: "match." + kind,
			params: []param{need("tgt"), opt("delimiter", ":"),
				opt("minion_id", nil)}, run: func(ctx context.Context, c *call) (any, error) {
				if id := c.any("delimiter"); (kind == "glob" || kind == "pcre" || kind == "list" ||
					kind == "compound") && id != ":" && c.any("minion_id") == nil {
					// their second parameter is the id
					c.named["minion_id"], c.named["delimiter"] = id, ":"
				}
				return c.match(ctx, kind, c.any("tgt"))
			}})
	}
	return append(out,
		// Salt's function calls one that its module data no longer has, and treats
		// the failure as no match.
		function{name: "match.data", params: []param{need("tgt")},
			run: func(context.Context, *call) (any, error) { return false, nil }},
		function{name: "match.ifelse", varArgs: true, varKwargs: true, run: matchIfElse},
		function{name: "match.filter_by",
			params: []param{need("lookup"), opt("tgt_type", "compound"), opt("minion_id", nil),
				opt("merge", nil), opt("merge_lists", false), opt("default", "default")},
			run: matchFilterBy},
		function{name: "match.search_by",
			params: []param{need("lookup"), opt("tgt_type", "compound"),
				opt("minion_id", nil)}, run: func(ctx context.Context, c *call) (any, error) {
				var hits []any
				for _, p := range c.dict("lookup") {
					targets, ok := p.Value.([]any)
					if !ok {
						targets = []any{p.Value}
					}
					for _, t := range targets {
						hit, err := c.match(ctx, c.text("tgt_type"), t)
						if err != nil {
							return nil, err
						}
						if hit {
							hits = append(hits, p.Key)
						}
					}
				}
				if hits == nil {
					return nil, nil
				}
				return hits, nil
			}},
	)
}

// match reports whether a target matches the id from the argument minion_id, or else from the
// options, which in pillars is the master's. Grains and pillar are the minion's.
func (c *call) match(ctx context.Context, kind string, tgt any) (bool, error) {
	id := c.who.Opts.String("id")
	if other := c.text("minion_id"); other != "" {
		id = other
	}
	found, err := target.Match(ctx, kind, tgt, c.text("delimiter"), one{c, id}, true)
	return err == nil && slices.Contains(found.Minions, id), err
}

// noMatch and otherwise are Salt's names for the value if no target matches
// and for the last argument.
const (
	noMatch   = "SALT_IFELSE_MATCH_NOTHING"
	otherwise = "SALT_IFELSE_FUNCTION_DEFAULT"
)

// matchIfElse returns the value after the first target that matches the minion. The arguments are
// target, value, target, value, ..., and a value in case none matches.
func matchIfElse(ctx context.Context, c *call) (any, error) {
	c.named = map[string]any{"tgt_type": "compound", "minion_id": nil, "merge": nil,
		"merge_lists": false}
	for _, p := range c.kwargs {
		if _, ok := c.named[text(p.Key)]; !ok {
			return nil, sig.Signature{Name: "ifelse"}.Unexpected(p.Key)
		}
		c.named[text(p.Key)] = p.Value
	}
	last := len(c.more) - 1
	if last%2 != 0 {
		return nil, errors.New("The ifelse function must have an odd number of arguments!")
	}
	if last == 0 {
		return c.more[0], nil
	}
	lookup := value.Map{}
	for i := 0; i < last; i += 2 {
		key := c.more[i]
		switch v := key.(type) {
		case bool:
			if key = noMatch; v {
				key = "*"
			}
		case []any, value.Map:
			return nil, fmt.Errorf("a target must be text, not %s", value.Repr(key))
		}
		if at := value.Find(lookup, key); at >= 0 {
			lookup[at].Value = c.more[i+1]
			continue
		}
		lookup = append(lookup, value.Pair{Key: key, Value: c.more[i+1]})
	}
	c.named["lookup"], c.named["default"] = append(lookup,
		value.Pair{Key: otherwise, Value: c.more[last]}), otherwise
	return matchFilterBy(ctx, c)
}

func matchFilterBy(ctx context.Context, c *call) (any, error) {
	lookup := c.dict("lookup")
	for _, p := range lookup {
		hit, err := c.match(ctx, c.text("tgt_type"), p.Key)
		if err != nil {
			return nil, err
		}
		if !hit {
			continue
		}
		if !c.is("merge") {
			return p.Value, nil
		}
		merge, ok := c.any("merge").(value.Map)
		if !ok {
			return nil, errors.New("filter_by merge argument must be a dictionary.")
		}
		if p.Value == nil {
			return merge, nil
		}
		have, ok := p.Value.(value.Map)
		if !ok {
			return nil, errors.New("Cannot update using non-dict types in dictupdate.update()")
		}
		return value.Recurse(have, merge, c.is("merge_lists")), nil
	}
	if i := value.Find(lookup, c.any("default")); i >= 0 {
		return lookup[i].Value, nil
	}
	return nil, nil
}

// one is a Source with one minion.
type one struct {
	c  *call
	id string
}

var _ target.Source = one{}

func (o one) AcceptedIDs() []string { return []string{o.id} }
func (o one) DataCache() bool       { return true }

func (o one) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string,
	error) {
	j := q.Judge()
	fn(o.id, j.Minion(false, o.c.who.Grains))
	fn(o.id, j.Minion(true, o.c.who.Pillar))
	return "", j.Err()
}

func (o one) Nodegroup(name string) (any, bool) {
	if o.c.deps.Nodegroup == nil {
		return nil, false
	}
	return o.c.deps.Nodegroup(name)
}
