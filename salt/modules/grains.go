package modules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"clustermaster/internal/dictupdate"
	"clustermaster/internal/fnmatch"
	"clustermaster/internal/pytext"
	"clustermaster/wire"
)

func grainsFunctions() []function {
	return []function{
		{name: "grains.get", params: []param{need("key"), opt("default", ""), opt("delimiter", ":"), opt("ordered", true)}, run: func(_ context.Context, c *call) (any, error) {
			return c.from(c.who.Grains), nil
		}},
		{name: "grains.fetch", params: []param{need("key"), opt("default", ""), opt("delimiter", ":"), opt("ordered", true)}, run: func(_ context.Context, c *call) (any, error) {
			return c.from(c.who.Grains), nil
		}},
		{name: "grains.has_value", params: []param{need("key")}, run: func(_ context.Context, c *call) (any, error) {
			_, ok := traverse(c.who.Grains, c.any("key"), "")
			return ok, nil
		}},
		{name: "grains.item", rest: true, run: func(_ context.Context, c *call) (any, error) {
			if hide, _ := c.kwargs.Get("sanitize"); pytext.Truth(hide) {
				return sanitized(c.items(c.who.Grains)), nil
			}
			return c.items(c.who.Grains), nil
		}},
		{name: "grains.items", params: []param{opt("sanitize", false)}, run: func(_ context.Context, c *call) (any, error) {
			if c.is("sanitize") {
				return sanitized(c.who.Grains), nil
			}
			return c.who.Grains, nil
		}},
		{name: "grains.ls", run: func(_ context.Context, c *call) (any, error) {
			names := make([]string, len(c.who.Grains))
			for i, p := range c.who.Grains {
				names[i] = text(p.Key)
			}
			slices.Sort(names)
			return texts(names), nil
		}},
		{name: "grains.equals", params: []param{need("key"), need("value")}, run: func(_ context.Context, c *call) (any, error) {
			v, ok := traverse(c.who.Grains, c.any("key"), "")
			if !ok {
				v = ""
			}
			return pyStr(v) == pyStr(c.any("value")), nil
		}},
		{name: "grains.filter_by", params: []param{need("lookup_dict"), opt("grain", "os_family"), opt("merge", nil), opt("default", "default"), opt("base", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				return filterBy(c.any("lookup_dict"), c.text("grain"), c.who.Grains, c.any("merge"), c.any("default"), c.any("base"))
			}},
	}
}

func pyStr(v any) string {
	if v == nil {
		return "None"
	}
	return text(v)
}

// from looks key up, else gives default.
func (c *call) from(data wire.Map) any {
	if v, ok := traverse(data, c.any("key"), c.text("delimiter")); ok {
		return v
	}
	return c.any("default")
}

// sanitized hides names of the minion and its serial number, as Salt's grains.items does.
func sanitized(grains wire.Map) wire.Map {
	out := slices.Clone(grains)
	for i, p := range out {
		switch p.Key {
		case "serialnumber":
			letters := []rune(text(p.Value))
			shown := len(letters) * 3 / 4
			out[i].Value = string(letters[:shown]) + strings.Repeat("X", len(letters)-shown)
		case "domain":
			out[i].Value = "DOMAINNAME"
		case "fqdn", "id":
			out[i].Value = "MINION.DOMAINNAME"
		case "host", "localhost", "nodename":
			out[i].Value = "MINION"
		}
	}
	return out
}

// items looks all further arguments up.
func (c *call) items(data wire.Map) wire.Map {
	var fallback any = ""
	if v, ok := c.kwargs.Get("default"); ok {
		fallback = v
	}
	out := wire.Map{}
	for _, key := range c.more {
		v, ok := traverse(data, key, c.kwargs.String("delimiter"))
		if !ok {
			v = fallback
		}
		out = append(out, wire.Pair{Key: key, Value: v})
	}
	return out
}

// filterBy is salt.utils.data.filter_by: the entry of lookup whose key matches the value at a path, on top of base, below merge.
func filterBy(given any, path string, data wire.Map, merge, fallback, base any) (any, error) {
	lookup, ok := given.(wire.Map)
	if !ok {
		return nil, fmt.Errorf("filter_by needs a dictionary to look up in, not %s", pytext.Repr(given))
	}
	var ret any
	value, ok := traverse(data, path, "")
	list, isList := value.([]any)
	if ok && !isList {
		list = []any{value}
	}
	for _, each := range list {
		for _, p := range lookup {
			if fnmatch.Match(pyStr(p.Key), pyStr(each)) {
				ret = p.Value
				break
			}
		}
		if ret != nil {
			break
		}
	}
	if i := dictupdate.Find(lookup, fallback); ret == nil && i >= 0 {
		ret = lookup[i].Value
	}
	if i := dictupdate.Find(lookup, base); pytext.Truth(base) && i >= 0 {
		values := lookup[i].Value
		if ret == nil {
			ret = values
		} else if m, ok := values.(wire.Map); ok {
			over, ok := ret.(wire.Map)
			if !ok {
				return nil, errors.New("filter_by default and look-up values must both be dictionaries.")
			}
			ret = dictupdate.Recurse(m, over, false)
		}
	}
	if merge != nil && pytext.Truth(merge) {
		m, ok := merge.(wire.Map)
		if !ok {
			return nil, errors.New("filter_by merge argument must be a dictionary.")
		}
		if ret == nil {
			return m, nil
		}
		have, ok := ret.(wire.Map)
		if !ok {
			return nil, errors.New("Cannot update using non-dict types in dictupdate.update()")
		}
		ret = dictupdate.Recurse(have, m, false)
	}
	return ret, nil
}

func pillarFunctions() []function {
	get := []param{need("key"), opt("default", ""), opt("merge", false), opt("merge_nested_lists", nil), opt("delimiter", ":"), opt("pillarenv", nil), opt("saltenv", nil), opt("unmask", nil)}
	return []function{
		{name: "pillar.get", params: get, run: pillarGet},
		{name: "pillar.fetch", params: get, run: pillarGet},
		{name: "pillar.items", rest: true, run: func(_ context.Context, c *call) (any, error) {
			if len(c.more) > 0 {
				return c.items(c.who.Pillar), nil
			}
			return c.who.Pillar, nil
		}},
		{name: "pillar.file_exists", params: []param{need("path"), opt("saltenv", nil)}, run: pillarFileExists},
		{name: "pillar.raw", params: []param{opt("key", nil)}, run: func(_ context.Context, c *call) (any, error) {
			if c.any("key") == nil {
				return c.who.Pillar, nil
			}
			v, ok := c.who.Pillar.Get(c.text("key"))
			if !ok {
				return wire.Map{}, nil
			}
			return v, nil
		}},
		{name: "pillar.item", rest: true, run: func(_ context.Context, c *call) (any, error) { return c.items(c.who.Pillar), nil }},
		{name: "pillar.ls", rest: true, run: func(_ context.Context, c *call) (any, error) { return keys(c.who.Pillar), nil }},
		{name: "pillar.keys", params: []param{need("key"), opt("delimiter", ":"), opt("unmask", nil)}, run: func(_ context.Context, c *call) (any, error) {
			v, ok := traverse(c.who.Pillar, c.any("key"), c.text("delimiter"))
			if !ok {
				return nil, fmt.Errorf("Pillar key not found: %s", c.text("key"))
			}
			m, ok := v.(wire.Map)
			if !ok {
				return nil, fmt.Errorf("Pillar value in key %s is not a dict", c.text("key"))
			}
			return keys(m), nil
		}},
		{name: "pillar.filter_by", params: []param{need("lookup_dict"), need("pillar"), opt("merge", nil), opt("default", "default"), opt("base", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				return filterBy(c.any("lookup_dict"), c.text("pillar"), c.who.Pillar, c.any("merge"), c.any("default"), c.any("base"))
			}},
	}
}

// pillarFileExists reports whether a file is in pillar_roots, in those of any environment if none is named.
func pillarFileExists(_ context.Context, c *call) (any, error) {
	v, _ := c.who.Opts.Get("pillar_roots")
	roots, _ := v.(wire.Map)
	if len(roots) == 0 {
		return nil, errors.New("No pillar_roots found. Are you running this on the master?")
	}
	name, ok := c.any("path").(string)
	if !ok {
		return nil, fmt.Errorf("path must be text, not %s", pytext.Repr(c.any("path")))
	}
	for _, env := range roots {
		if c.is("saltenv") && env.Key != c.any("saltenv") {
			continue
		}
		dirs, _ := env.Value.([]any)
		for _, dir := range dirs {
			full := name
			if !strings.HasPrefix(name, "/") {
				full = joined(text(dir), name)
			}
			if info, err := os.Stat(expand(full)); err == nil && info.Mode().IsRegular() {
				return true, nil
			}
		}
	}
	return false, nil
}

// pillarGet looks a key up in the pillar as far as it is made; with merge it is laid over the default.
func pillarGet(_ context.Context, c *call) (any, error) {
	v, ok := traverse(c.who.Pillar, c.any("key"), c.text("delimiter"))
	fallback := c.any("default")
	if c.is("merge") {
		lists := c.is("merge_nested_lists")
		if c.any("merge_nested_lists") == nil {
			o, _ := c.who.Opts.Get("pillar_merge_lists")
			lists = pytext.Truth(o)
		}
		switch d := fallback.(type) {
		case wire.Map:
			if m, isMap := v.(wire.Map); isMap || !ok {
				return dictupdate.Recurse(d, m, lists), nil
			}
		case []any:
			if l, isList := v.([]any); isList || !ok {
				merged := dictupdate.Recurse(wire.Map{{Key: "l", Value: d}}, wire.Map{{Key: "l", Value: l}}, true)
				return merged[0].Value, nil
			}
		}
	}
	if !ok {
		return fallback, nil
	}
	return v, nil
}

func configFunctions() []function {
	where := []string{"opts", "grains", "pillar", "master"}
	return []function{
		{name: "config.get", params: []param{need("key"), opt("default", ""), opt("delimiter", ":"), opt("merge", nil), opt("omit_opts", false), opt("omit_pillar", false), opt("omit_master", false), opt("omit_grains", false)},
			run: func(ctx context.Context, c *call) (any, error) {
				if c.any("merge") == nil {
					for _, w := range where {
						if c.is("omit_" + w) {
							continue
						}
						if v, ok := traverse(c.data(w), c.any("key"), c.text("delimiter")); ok {
							return c.sdb(ctx, v)
						}
					}
					return c.any("default"), nil
				}
				all := wire.Map{}
				for _, w := range []string{"master", "pillar", "grains", "opts"} {
					if c.text("merge") == "overwrite" {
						all = dictupdate.Update(all, c.data(w))
					} else {
						all = dictupdate.Recurse(all, c.data(w), false)
					}
				}
				if v, ok := traverse(all, c.any("key"), c.text("delimiter")); ok {
					return c.sdb(ctx, v)
				}
				return c.any("default"), nil
			}},
		{name: "config.option", params: []param{need("value"), opt("default", nil), opt("omit_opts", false), opt("omit_master", false), opt("omit_pillar", false), opt("omit_grains", false), opt("wildcard", false)},
			run: func(ctx context.Context, c *call) (any, error) { return c.option(ctx, "value") }},
		{name: "config.dot_vals", params: []param{need("value")}, run: func(_ context.Context, c *call) (any, error) {
			v, _ := c.who.Pillar.Get("master")
			master, _ := v.(wire.Map)
			out := wire.Map{}
			for _, p := range append(slices.Clip(master), c.who.Opts...) {
				if name, ok := p.Key.(string); ok && strings.HasPrefix(name, c.text("value")+".") {
					out = out.Set(name, p.Value)
				}
			}
			return out, nil
		}},
		{name: "config.merge", params: []param{need("value"), opt("default", ""), opt("omit_opts", false), opt("omit_master", false), opt("omit_pillar", false)},
			run: func(ctx context.Context, c *call) (any, error) { return c.option(ctx, "value") }},
	}
}

func (c *call) data(where string) wire.Map {
	switch where {
	case "opts":
		return c.who.Opts
	case "grains":
		return c.who.Grains
	case "pillar":
		return c.who.Pillar
	}
	v, _ := c.who.Pillar.Get("master")
	m, _ := v.(wire.Map)
	return m
}

// option looks a top-level name up in options, grains and pillar.
func (c *call) option(ctx context.Context, param string) (any, error) {
	for _, w := range []string{"opts", "grains", "master", "pillar"} {
		if c.is("omit_" + w) {
			continue
		}
		if v, ok := c.data(w).Get(c.text(param)); ok {
			return c.sdb(ctx, v)
		}
	}
	if d := c.any("default"); d != nil {
		return d, nil
	}
	return "", nil
}

// sdb looks a value up that is an sdb:// address.
func (c *call) sdb(ctx context.Context, v any) (any, error) {
	if s, ok := v.(string); ok && strings.HasPrefix(s, "sdb://") {
		return c.sdbGet(ctx, s)
	}
	return v, nil
}
