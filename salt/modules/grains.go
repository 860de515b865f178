package modules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

func grainsFunctions() []function {
	return []function{
		{name: "grains.get", params: []param{need("key"), opt("default", ""), opt("delimiter", ":"),
			opt("ordered", true)}, run: func(_ context.Context, c *call) (any, error) {
			return c.from(c.who.Grains), nil
		}},
		{name: "grains.fetch", params: []param{need("key"), opt("default", ""),
			opt("delimiter", ":"), opt("ordered", true)},
			run: func(_ context.Context, c *call) (any, error) {
				return c.from(c.who.Grains), nil
			}},
		{name: "grains.has_value", params: []param{need("key")},
			run: func(_ context.Context, c *call) (any, error) {
				_, ok := value.Traverse(c.who.Grains, c.any("key"), "")
				return ok, nil
			}},
		{name: "grains.item", varArgs: true, varKwargs: true,
			run: func(_ context.Context, c *call) (any, error) {
				if hide, _ := c.kwargs.Get("sanitize"); value.Truth(hide) {
					return sanitized(c.items(c.who.Grains)), nil
				}
				return c.items(c.who.Grains), nil
			}},
		{name: "grains.items", params: []param{opt("sanitize", false)},
			run: func(_ context.Context, c *call) (any, error) {
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
			return value.Texts(names), nil
		}},
		{name: "grains.equals", params: []param{need("key"), need("value")},
			run: func(_ context.Context, c *call) (any, error) {
				v, ok := value.Traverse(c.who.Grains, c.any("key"), "")
				if !ok {
					v = ""
				}
				return value.Str(v) == value.Str(c.any("value")), nil
			}},
		{name: "grains.filter_by", params: []param{need("lookup_dict"), opt("grain", "os_family"),
			opt("merge", nil), opt("default", "default"), opt("base", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				return filterBy(c.any("lookup_dict"), c.text("grain"), c.who.Grains, c.any("merge"),
					c.any("default"), c.any("base"))
			}},
	}
}

// from looks up key in data, and returns default if it is missing.
func (c *call) from(data value.Map) any {
	if v, ok := value.Traverse(data, c.any("key"), c.text("delimiter")); ok {
		return v
	}
	return c.any("default")
}

// sanitized hides names of the minion and its serial number, as Salt's grains.items does.
func sanitized(grains value.Map) value.Map {
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

// items looks up each further argument.
func (c *call) items(data value.Map) value.Map {
	var fallback any = ""
	if v, ok := c.kwargs.Get("default"); ok {
		fallback = v
	}
	out := value.Map{}
	for _, key := range c.more {
		v, ok := value.Traverse(data, key, c.kwargs.String("delimiter"))
		if !ok {
			v = fallback
		}
		out = append(out, value.Pair{Key: key, Value: v})
	}
	return out
}

// filterBy is salt.utils.data.filter_by. It takes the entry of given whose key matches the value at
// path in data, merges it into base, and then merges merge into the result.
func filterBy(given any, path string, data value.Map, merge, fallback, base any) (any, error) {
	lookup, ok := given.(value.Map)
	if !ok {
		return nil, fmt.Errorf("filter_by needs a dictionary to look up in, not %s",
			value.Repr(given))
	}
	var ret any
	val, ok := value.Traverse(data, path, "")
	list, isList := val.([]any)
	if ok && !isList {
		list = []any{val}
	}
	for _, each := range list {
		for _, p := range lookup {
			if fnmatch.Match(value.Str(p.Key), value.Str(each)) {
				ret = p.Value
				break
			}
		}
		if ret != nil {
			break
		}
	}
	if i := value.Find(lookup, fallback); ret == nil && i >= 0 {
		ret = lookup[i].Value
	}
	if i := value.Find(lookup, base); value.Truth(base) && i >= 0 {
		values := lookup[i].Value
		if ret == nil {
			ret = values
		} else if m, ok := values.(value.Map); ok {
			over, ok := ret.(value.Map)
			if !ok {
				return nil,
					errors.New("filter_by default and look-up values must both be dictionaries.")
			}
			ret = value.Recurse(m, over, false)
		}
	}
	if merge != nil && value.Truth(merge) {
		m, ok := merge.(value.Map)
		if !ok {
			return nil, errors.New("filter_by merge argument must be a dictionary.")
		}
		if ret == nil {
			return m, nil
		}
		have, ok := ret.(value.Map)
		if !ok {
			return nil, errors.New("Cannot update using non-dict types in dictupdate.update()")
		}
		ret = value.Recurse(have, m, false)
	}
	return ret, nil
}

func pillarFunctions() []function {
	get := []param{need("key"), opt("default", notGiven{}), opt("merge", false),
		opt("merge_nested_lists", nil), opt("delimiter", ":"), opt("pillarenv", nil), opt("saltenv",
			nil), opt("unmask", nil)}
	whole := []string{"pillar", "pillar_enc", "pillarenv", "saltenv", "unmask"}
	items := func(_ context.Context, c *call) (any, error) {
		if err := c.present(c.kwargs); err != nil {
			return nil, err
		}
		return c.items(c.who.Pillar), nil
	}
	return []function{
		{name: "pillar.get", params: get, run: pillarGet},
		{name: "pillar.fetch", params: get, run: pillarGet},
		{name: "pillar.items", varArgs: true, keywords: whole,
			run: func(ctx context.Context, c *call) (any, error) {
				if len(c.more) > 0 {
					c.kwargs = c.kwargs.Without("pillar")
					return items(ctx, c)
				}
				return c.who.Pillar, c.present(c.kwargs)
			}},
		{name: "pillar.file_exists", params: []param{need("path"), opt("saltenv", nil)},
			run: pillarFileExists},
		{name: "pillar.raw", params: []param{opt("key", nil), opt("unmask", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				if c.any("key") == nil {
					return c.who.Pillar, nil
				}
				v, ok := c.who.Pillar.Get(c.text("key"))
				if !ok {
					return value.Map{}, nil
				}
				return v, nil
			}},
		{name: "pillar.item", varArgs: true, keywords: []string{"default", "delimiter", "pillarenv",
			"saltenv", "unmask"}, run: items},
		{name: "pillar.ls", varArgs: true, keywords: whole,
			run: func(_ context.Context, c *call) (any, error) {
				if len(c.more) > 0 {
					return c.more, c.present(c.kwargs.Without("pillar"))
				}
				return keys(c.who.Pillar), c.present(c.kwargs)
			}},
		{name: "pillar.keys", params: []param{need("key"), opt("delimiter", ":"),
			opt("unmask", nil)}, run: func(_ context.Context, c *call) (any, error) {
			v, ok := value.Traverse(c.who.Pillar, c.any("key"), c.text("delimiter"))
			if !ok {
				return nil, fmt.Errorf("Pillar key not found: %s", c.text("key"))
			}
			m, ok := v.(value.Map)
			if !ok {
				return nil, fmt.Errorf("Pillar value in key %s is not a dict", c.text("key"))
			}
			return keys(m), nil
		}},
		{name: "pillar.filter_by", params: []param{need("lookup_dict"), need("pillar"),
			opt("merge", nil), opt("default", "default"), opt("base", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				return filterBy(c.any("lookup_dict"), c.text("pillar"), c.who.Pillar,
					c.any("merge"), c.any("default"), c.any("base"))
			}},
	}
}

// pillarFileExists reports whether a file is in pillar_roots: in the named environment, or in any
// if none is named.
func pillarFileExists(_ context.Context, c *call) (any, error) {
	v, _ := c.who.Opts.Get("pillar_roots")
	roots, _ := v.(value.Map)
	if len(roots) == 0 {
		return nil, errors.New("No pillar_roots found. Are you running this on the master?")
	}
	name, ok := c.any("path").(string)
	if !ok {
		return nil, fmt.Errorf("path must be text, not %s", value.Repr(c.any("path")))
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

// notGiven is the default of a parameter whose absence matters.
type notGiven struct{}

// present returns an ErrOutside if keywords ask for another pillar than the present one.
func (c *call) present(kwargs value.Map) error {
	asked, _ := kwargs.Get("pillarenv")
	saltenv, _ := kwargs.Get("saltenv")
	if override, _ := kwargs.Get("pillar"); value.Truth(override) {
		return outside("a pillar with overrides is not built in")
	}
	if from, _ := c.who.Opts.Get("pillarenv_from_saltenv"); asked == nil && value.Truth(from) {
		asked = saltenv
	}
	if now, _ := c.who.Opts.Get("pillarenv"); value.Truth(asked) && asked != now {
		return outside(fmt.Sprintf("the pillar of another pillarenv (%s) is not built in", text(asked)))
	}
	return nil
}

// pillarGet looks up a key in the pillar compiled so far. With merge it merges
// the value into the default.
func pillarGet(_ context.Context, c *call) (any, error) {
	err := c.present(value.Map{{Key: "pillarenv", Value: c.any("pillarenv")},
		{Key: "saltenv", Value: c.any("saltenv")}})
	if err != nil {
		return nil, err
	}
	v, ok := value.Traverse(c.who.Pillar, c.any("key"), c.text("delimiter"))
	fallback := c.any("default")
	if fallback == (notGiven{}) {
		if raises, _ := c.who.Opts.Get("pillar_raise_on_missing"); !ok && value.Truth(raises) {
			return nil, fmt.Errorf("'Pillar key not found: %s'", text(c.any("key")))
		}
		fallback = ""
	}
	if c.is("merge") {
		lists := c.is("merge_nested_lists")
		if c.any("merge_nested_lists") == nil {
			o, _ := c.who.Opts.Get("pillar_merge_lists")
			lists = value.Truth(o)
		}
		switch d := fallback.(type) {
		case value.Map:
			if m, isMap := v.(value.Map); isMap || !ok {
				return value.Recurse(d, m, lists), nil
			}
		case []any:
			if l, isList := v.([]any); isList || !ok {
				merged := value.Recurse(value.Map{{Key: "l", Value: d}},
					value.Map{{Key: "l", Value: l}}, true)
				return merged[0].Value, nil
			}
		}
	}
	if !ok {
		return fallback, nil
	}
	return v, nil
}
