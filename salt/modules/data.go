package modules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// dataFunctions are the families defaults and slsutil. If Python's function changes an argument in
// place, the render worker applies that change.
func dataFunctions() []function {
	merging := []param{opt("strategy", "smart"), opt("renderer", "yaml"), opt("merge_lists", false)}
	return []function{
		{name: "defaults.merge", params: []param{need("dest"), need("src"),
			opt("merge_lists", false), opt("in_place", true), opt("convert_none", true)},
			run: func(_ context.Context, c *call) (any, error) {
				if c.any("dest") == nil && c.is("convert_none") && c.is("in_place") {
					return nil, errors.New("Can't perform in-place merge into NoneType")
				}
				return lay(c.any("dest"), c.any("src"), c.is("merge_lists"), c.is("convert_none"))
			}},
		{name: "defaults.update", params: []param{need("dest"), need("defaults"),
			opt("merge_lists", true), opt("in_place", true), opt("convert_none", true)},
			run: func(_ context.Context, c *call) (any, error) {
				if c.any("dest") == nil && c.is("in_place") {
					return nil, errors.New("Can't perform in-place update into NoneType")
				}
				out := slices.Clone(c.dict("dest"))
				for i, p := range out {
					v, err := lay(c.any("defaults"), p.Value, c.is("merge_lists"), true)
					if err != nil {
						return nil, err
					}
					out[i].Value = v
				}
				return orEmpty(out), nil
			}},
		{name: "defaults.deepcopy", params: []param{need("source")},
			run: func(_ context.Context, c *call) (any, error) { return c.any("source"), nil }},
		{name: "slsutil.merge", params: append([]param{need("obj_a"), need("obj_b")}, merging...),
			run: func(_ context.Context, c *call) (any, error) {
				return c.merge(c.any("obj_a"), c.any("obj_b"))
			}},
		{name: "slsutil.merge_all", params: append([]param{need("lst")}, merging...),
			run: func(_ context.Context, c *call) (any, error) {
				var out any = value.Map{}
				for _, v := range c.list("lst") {
					var err error
					if out, err = c.merge(out, v); err != nil {
						return nil, err
					}
				}
				return out, nil
			}},
		{name: "slsutil.update", params: []param{need("dest"), need("upd"),
			opt("recursive_update", true), opt("merge_lists", false)},
			run: func(_ context.Context, c *call) (any, error) {
				if !c.is("recursive_update") {
					return value.Update(c.dict("dest"), c.dict("upd")), nil
				}
				return lay(c.any("dest"), c.any("upd"), c.is("merge_lists"), false)
			}},
		{name: "slsutil.boolstr", params: []param{need("value"), opt("true", "true"),
			opt("false", "false")}, run: func(_ context.Context, c *call) (any, error) {
			if c.is("value") {
				return c.any("true"), nil
			}
			return c.any("false"), nil
		}},
		{name: "slsutil.traverse", params: []param{need("data"), need("key"), opt("default", nil),
			opt("delimiter", ":")}, run: func(_ context.Context, c *call) (any, error) {
			if v, ok := value.Traverse(c.any("data"), c.any("key"), c.text("delimiter")); ok {
				return v, nil
			}
			return c.any("default"), nil
		}},
		{name: "slsutil.serialize", params: []param{need("serializer"), need("obj")}, varArgs: true,
			varKwargs: true, run: serialize},
		{name: "slsutil.deserialize", params: []param{need("serializer"), need("stream_or_string")},
			varArgs: true, varKwargs: true, run: deserialize},
		{name: "slsutil.file_exists", params: []param{need("path"), opt("saltenv", "base")},
			run: func(_ context.Context, c *call) (any, error) {
				return c.listed(c.text("path"), true, false), nil
			}},
		{name: "slsutil.dir_exists", params: []param{need("path"), opt("saltenv", "base")},
			run: func(_ context.Context, c *call) (any, error) {
				return c.listed(c.text("path"), false, true), nil
			}},
		{name: "slsutil.path_exists", params: []param{need("path"), opt("saltenv", "base")},
			run: func(_ context.Context, c *call) (any, error) {
				return c.listed(c.text("path"), true, true), nil
			}},
		{name: "slsutil.findup", params: []param{need("startpath"), need("filenames"),
			opt("saltenv", "base")}, run: findUp},
		{name: "slsutil.renderer", params: []param{opt("path", nil), opt("string", nil),
			opt("default_renderer", "jinja|yaml")}, varArgs: true, varKwargs: true,
			run: renderText},
	}
}

func orEmpty(m value.Map) value.Map {
	if m == nil {
		return value.Map{}
	}
	return m
}

// lay is dictupdate.update on values that must be maps.
func lay(a, b any, lists, convertNone bool) (any, error) {
	if convertNone {
		if a == nil {
			a = value.Map{}
		}
		if b == nil {
			b = value.Map{}
		}
	}
	x, ok := a.(value.Map)
	y, too := b.(value.Map)
	if !ok || !too {
		return nil, errors.New("Cannot update using non-dict types in dictupdate.update()")
	}
	return value.Recurse(x, y, lists), nil
}

// merge merges with the requested strategy.
func (c *call) merge(a, b any) (any, error) {
	strategy := c.text("strategy")
	if strategy == "smart" {
		strategy = "recurse"
		if r := c.text("renderer"); strings.HasSuffix("|"+r, "|yamlex") ||
			strings.HasPrefix(r, "yamlex_") {
			strategy = "aggregate"
		}
	}
	x, ok := a.(value.Map)
	y, too := b.(value.Map)
	if !ok || !too {
		return nil, errors.New("Cannot update using non-dict types in dictupdate.update()")
	}
	return value.Merge(x, y, strategy, c.is("merge_lists")), nil
}

// listed reports whether file_roots has p as a file or as a folder.
func (c *call) listed(p string, file, dir bool) bool {
	if c.deps.Files == nil {
		return false
	}
	env := c.text("saltenv")
	in := func(names []string) bool {
		_, ok := slices.BinarySearch(names, p)
		return ok
	}
	return file && in(c.deps.Files.List(env)) || dir && in(c.deps.Files.Dirs(env))
}

// findUp looks for one of several names in a folder of file_roots and in every folder above it.
func findUp(_ context.Context, c *call) (any, error) {
	at := c.text("startpath")
	if at != "" {
		at = path.Clean(at)
		if !c.listed(at, true, true) {
			return nil, fmt.Errorf("Starting path not found in the state tree: %s", at)
		}
	}
	for {
		for _, name := range c.list("filenames") {
			full := path.Join(at, text(name))
			if c.listed(full, true, true) {
				return full, nil
			}
		}
		if at == "" || at == "." {
			return nil, errors.New("File pattern(s) not found in path ancestry")
		}
		if at = path.Dir(at); at == "." {
			at = ""
		}
	}
}

// serialize and deserialize support YAML and JSON, with the options that change the layout.
func serialize(_ context.Context, c *call) (any, error) {
	options := map[string]any{}
	for _, kw := range c.kwargs {
		options[text(kw.Key)] = kw.Value
	}
	take := func(name string) any {
		v := options[name]
		delete(options, name)
		return v
	}
	var out func() (string, error)
	switch name := c.text("serializer"); name {
	case "json":
		style := value.JSONStyle{Indent: -1, SortKeys: value.Truth(take("sort_keys"))}
		if n, ok := number(take("indent")); ok {
			style.Indent = int(n)
		}
		out = func() (string, error) { return value.JSON(c.any("obj"), style) }
	case "yaml":
		flow, ordered := take("default_flow_style"), take("sort_keys")
		n, _ := number(take("indent"))
		style := yaml11.Style{
			Indent: int(n), Flow: value.Truth(flow), Leaves: flow == nil,
			ASCII: !value.Truth(take("allow_unicode")), Unsorted: ordered != nil &&
				!value.Truth(ordered),
		}
		out = func() (string, error) {
			return strings.TrimSuffix(strings.TrimSuffix(string(yaml11.DumpStyle(c.any("obj"),
				style)), "\n"), "\n..."), nil
		}
	default:
		return nil, outside("serializer " + name + " is not built in; yaml and json are")
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if !strings.HasPrefix(name, "__") {
			return nil, outside("option " + name +
				" of a serializer is not built in; indent, sort_keys, default_flow_style and allow_unicode are")
		}
	}
	return out()
}

func deserialize(ctx context.Context, c *call) (any, error) {
	name := c.text("serializer")
	if (name != "json" && name != "yaml") || c.deps.Render == nil {
		return nil, outside("serializer " + name + " is not built in; yaml and json are")
	}
	return c.deps.Render(ctx, c.who, "", "\n"+c.text("stream_or_string"), name, nil)
}

// renderText renders a file of file_roots, or text.
func renderText(ctx context.Context, c *call) (any, error) {
	file, given := c.text("path"), c.text("string")
	switch {
	case c.deps.Render == nil:
		return nil, errors.New("no renderer is available here")
	case file == "" && given == "":
		return nil, errors.New("Must pass path or string.")
	case file != "" && given != "":
		return nil, errors.New("Must not pass both path and string.")
	}
	if file != "" {
		env := "base"
		if e := c.kwargs.String("saltenv"); e != "" {
			env = e
		}
		data, found, err := c.open(file, env)
		if err != nil {
			return nil, err
		}
		if !found {
			return value.Map{}, nil
		}
		given = string(data)
	}
	return c.deps.Render(ctx, c.who, file, given, c.text("default_renderer"), c.kwargs)
}
