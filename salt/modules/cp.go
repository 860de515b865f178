package modules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"clustermaster/value"
)

func cpFunctions() []function {
	lists := func(name string, pick func(Files, string) []string) function {
		return function{name: name, params: []param{opt("saltenv", nil), opt("prefix", "")},
			run: func(_ context.Context, c *call) (any, error) {
				out := []any{}
				if c.deps.Files == nil {
					return out, nil
				}
				prefix := strings.Trim(c.text("prefix"), "/")
				for _, name := range pick(c.deps.Files, c.env()) {
					if strings.HasPrefix(name, prefix) {
						out = append(out, name)
					}
				}
				return out, nil
			}}
	}
	path := func(run func(c *call, abs string, data []byte, found bool) (any,
		error)) func(context.Context, *call) (any, error) {
		return func(_ context.Context, c *call) (any, error) {
			abs, data, found, err := c.find(c.text("path"), c.env())
			if err != nil {
				return nil, err
			}
			return run(c, abs, data, found)
		}
	}
	cached := func(_ *call, abs string, _ []byte, found bool) (any, error) {
		if !found {
			return false, nil
		}
		return abs, nil
	}
	return []function{
		{name: "cp.get_file_str", params: []param{need("path"), opt("saltenv", nil)},
			run: path(func(_ *call, _ string, data []byte, found bool) (any, error) {
				if !found {
					return false, nil
				}
				return string(data), nil
			})},
		{name: "cp.cache_file", params: []param{need("path"), opt("saltenv", nil),
			opt("source_hash", nil), opt("verify_ssl", true), opt("use_etag", false)},
			run: path(cached)},
		{name: "cp.is_cached", params: []param{need("path"), opt("saltenv", nil)},
			run: path(func(_ *call, abs string, _ []byte, found bool) (any, error) {
				if !found {
					return "", nil
				}
				return abs, nil
			})},
		{name: "cp.hash_file", params: []param{need("path"), opt("saltenv", nil)},
			run: path(func(c *call, _ string, data []byte, found bool) (any, error) {
				if !found {
					return "", nil
				}
				sum, err := digest(c.deps.HashType, data)
				return value.Map{{Key: "hash_type", Value: c.deps.HashType},
					{Key: "hsum", Value: sum}}, err
			})},
		{name: "cp.stat_file", params: []param{need("path"), opt("saltenv", nil),
			opt("octal", true)}, run: statFile},
		lists("cp.list_master", Files.List), lists("cp.list_master_dirs", Files.Dirs),
		{name: "cp.list_states", params: []param{opt("saltenv", nil)},
			run: func(_ context.Context, c *call) (any, error) {
				var names []string
				if c.deps.Files != nil {
					for _, p := range c.deps.Files.List(c.env()) {
						if base, ok := strings.CutSuffix(p, "/init.sls"); ok {
							names = append(names, strings.ReplaceAll(base, "/", "."))
						} else if base, ok := strings.CutSuffix(p, ".sls"); ok {
							names = append(names, strings.ReplaceAll(base, "/", "."))
						}
					}
				}
				slices.Sort(names)
				return value.Texts(slices.Compact(names)), nil
			}},
		{name: "cp.envs", run: func(_ context.Context, c *call) (any, error) {
			if c.deps.Files == nil {
				return []any{}, nil
			}
			return value.Texts(c.deps.Files.Envs()), nil
		}},
	}
}

// statFile returns the mode and type of a file from file_roots or on the master: four octal digits,
// or the number if octal is not true.
func statFile(_ context.Context, c *call) (any, error) {
	p, ok := c.any("path").(string)
	if !ok {
		return nil, fmt.Errorf("path must be text, not %s", value.Repr(c.any("path")))
	}
	if !strings.HasPrefix(p, "salt://") && !filepath.IsAbs(p) {
		return nil, nil
	}
	var st syscall.Stat_t
	if filepath.IsAbs(p) {
		if err := syscall.Stat(p, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
			return nil, nil // Salt's answer
		}
	} else {
		abs, _, found, err := c.find(p, c.env())
		if err != nil || !found {
			return nil, err
		}
		if err := syscall.Stat(abs, &st); err != nil {
			return nil, err
		}
	}
	if c.any("octal") == true {
		return permissions(st.Mode), nil
	}
	return int64(st.Mode), nil
}

// env returns the environment of a call: its argument, the minion's, or base.
func (c *call) env() string {
	if env := c.text("saltenv"); env != "" {
		return env
	}
	if env, _ := c.who.Opts.Get("saltenv"); value.Truth(env) {
		return text(env)
	}
	return "base"
}

// find reads a path on the master, or a salt:// address from file_roots, whose query may
// name another environment.
func (c *call) find(address, env string) (abs string, data []byte, found bool, err error) {
	path, isSalt := strings.CutPrefix(address, "salt://")
	if !isSalt && filepath.IsAbs(path) {
		data, err = readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil, false, nil
		}
		return path, data, err == nil, err
	}
	if c.deps.Files == nil {
		return "", nil, false, nil
	}
	if !isSalt && strings.Contains(address, "://") {
		return "", nil, false, outside(address + ": only salt:// addresses are built in")
	}
	if escaped, ok := strings.CutPrefix(path, "|"); ok {
		path = escaped
	} else if bare, query, ok := strings.Cut(path, "?"); ok {
		values, err := url.ParseQuery(query)
		if err != nil {
			return "", nil, false, fmt.Errorf("%s: %w", address, err)
		}
		if path = bare; values.Get("saltenv") != "" {
			env = values.Get("saltenv")
		}
	}
	return c.deps.Files.Open(env, path)
}

func (c *call) open(address, env string) ([]byte, bool, error) {
	_, data, found, err := c.find(address, env)
	return data, found, err
}
