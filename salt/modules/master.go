package modules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"clustermaster/store/smallfile"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

func environFunctions() []function {
	return []function{
		{name: "environ.get", params: []param{need("key"), opt("default", "")},
			run: func(_ context.Context, c *call) (any, error) {
				name, ok := c.any("key").(string)
				if !ok {
					return false, nil
				}
				if v, ok := os.LookupEnv(name); ok {
					return v, nil
				}
				return c.any("default"), nil
			}},
		{name: "environ.has_value", params: []param{need("key"), opt("value", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				v, ok := os.LookupEnv(c.text("key"))
				return ok && (c.any("value") == nil || v == c.text("value")), nil
			}},
		{name: "environ.item", params: []param{need("keys"), opt("default", "")},
			run: func(_ context.Context, c *call) (any, error) {
				out := value.Map{}
				for _, k := range c.list("keys") {
					if _, ok := k.(string); !ok {
						continue
					}
					var v any = c.any("default")
					if s, ok := os.LookupEnv(text(k)); ok {
						v = s
					}
					out = append(out, value.Pair{Key: k, Value: v})
				}
				return out, nil
			}},
		{name: "environ.items", run: func(context.Context, *call) (any, error) {
			out := value.Map{}
			for _, e := range os.Environ() {
				name, val, _ := strings.Cut(e, "=")
				out = append(out, value.Pair{Key: name, Value: val})
			}
			return out, nil
		}},
	}
}

// masterFunctions call other parts of the master.
func masterFunctions() []function {
	return []function{
		{name: "mine.get", params: []param{need("tgt"), need("fun"), opt("tgt_type", "glob"),
			opt("exclude_minion", false)}, run: func(ctx context.Context, c *call) (any, error) {
			if c.deps.Mine == nil {
				return value.Map{}, nil
			}
			got, err := c.deps.Mine(ctx, c.who.ID, c.any("tgt"), c.any("fun"), c.text("tgt_type"))
			if err != nil {
				return nil, err
			}
			if c.is("exclude_minion") {
				got = got.Without(c.who.ID)
			}
			return orEmpty(got), nil
		}},
		{name: "saltutil.runner", params: []param{need("name"), opt("arg", nil), opt("kwarg", nil),
			opt("full_return", false), opt("saltenv", "base"), opt("jid", nil),
			opt("asynchronous", false)}, varArgs: true, varKwargs: true,
			run: func(ctx context.Context, c *call) (any, error) {
				if c.deps.Runner == nil || c.is("asynchronous") {
					return nil, errors.New("runners are not available here, and never with asynchronous")
				}
				kwargs := append(append(value.Map{}, c.dict("kwarg")...), c.kwargs...)
				v, success, err := c.deps.Runner(apart(ctx), c.text("name"), c.list("arg"), kwargs)
				if err != nil {
					return nil, err
				}
				if c.is("full_return") {
					return value.Map{{Key: "return", Value: v}, {Key: "success", Value: success},
						{Key: "fun", Value: "runner." + c.text("name")}}, nil
				}
				return v, nil
			}},
		{name: "sdb.get", params: []param{need("uri"), opt("strict", false)},
			run: func(ctx context.Context, c *call) (any, error) {
				uri, ok := c.any("uri").(string)
				if !ok && !c.is("strict") {
					return c.any("uri"), nil
				}
				v, err := c.sdbGet(ctx, uri)
				if err == nil && v == uri && c.is("strict") {
					err = fmt.Errorf("%s is not sdb://profile/key with a profile of the configuration",
						uri)
				}
				return v, err
			}},
		{name: "sdb.get_or_set_hash", params: []param{need("uri")}, varArgs: true, varKwargs: true,
			run: func(ctx context.Context, c *call) (any, error) {
				v, err := c.sdbGet(ctx, c.text("uri"))
				if err == nil && v == nil {
					err = outside("nothing is stored there, and drivers that store are not built in")
				}
				return v, err
			}},
	}
}

// sdbGet looks up sdb://profile/key. Drivers are env, file (the content of a file below the
// profile's dir) and yaml.
func (c *call) sdbGet(_ context.Context, uri string) (any, error) {
	rest, ok := strings.CutPrefix(uri, "sdb://")
	name, key, hasKey := strings.Cut(rest, "/")
	if !ok || !hasKey || key == "" {
		return uri, nil // Salt returns a text that is not an address
	}
	key, _, _ = strings.Cut(key, "?")
	profile := value.Map{}
	if c.deps.SDB != nil {
		profile, ok = c.deps.SDB(name)
	}
	if !ok || profile.String("driver") == "" {
		return uri, nil
	}
	driver := profile.String("driver")
	if c.deps.ForeignSDB != nil && c.deps.ForeignSDB(driver) {
		return nil, outside("sdb profile " + name + " has a driver of the site's")
	}
	switch driver {
	case "env":
		if v, ok := os.LookupEnv(key); ok {
			return v, nil
		}
		return nil, nil
	case "yaml":
		for _, option := range []string{"gpg", "merge"} {
			if v, _ := profile.Get(option); value.Truth(v) {
				return nil, outside("sdb profile " + name + " has " + option + ", which is not built in")
			}
		}
		return c.sdbYAML(profile, key)
	case "file":
		return sdbFile(profile, key)
	default:
		return nil, outside(fmt.Sprintf(
			"sdb profile %s has the driver %s, which is not built in; env, file and yaml are", name,
			driver))
	}
}

// sdbYAML looks up a key in the profile's files, merged.
func (c *call) sdbYAML(profile value.Map, key string) (any, error) {
	files, _ := profile.Get("files")
	list, _ := files.([]any)
	all := value.Map{}
	for _, f := range list {
		b, err := readFile(text(f))
		if err != nil {
			c.deps.Log.Error("file of an sdb profile cannot be read", "path", text(f), "err", err)
			continue
		}
		v, err := yaml11.Load(b)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", text(f), err)
		}
		m, _ := v.(value.Map)
		all = value.Recurse(all, m, false)
	}
	v, _ := value.Traverse(all, key, "")
	return v, nil
}

// sdbFile reads one file below the profile's folder.
func sdbFile(profile value.Map, key string) (any, error) {
	dir := profile.String("dir")
	if dir == "" {
		return nil, errors.New("an sdb profile with the driver file needs dir")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(key, smallfile.Flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := smallfile.Of(f, maxFile)
	return strings.TrimRight(string(b), "\n"), err
}
