package pillar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"clustermaster/salt/render"
	"clustermaster/store/smallfile"
	"clustermaster/value"
	"clustermaster/value/yaml11"
	"clustermaster/wire"
)

// maxStackFile bounds one file of a stack, in bytes.
const maxStackFile = 8 << 20

// stackStrategies are the values that "__" may have.
var stackStrategies = []string{"overwrite", "merge-first", "merge-last", "remove"}

// stack is PillarStack: cfg files are templates that name YAML files, which are templates too;
// their data is merged in order.
func stack(ctx context.Context, p *compilation, pillar value.Map, a extArgs) (any, error) {
	env := p.pillarenv
	if env == "" {
		env = p.saltenv
	}
	if env == "" {
		env = "base"
	}
	var cfgs []string
	for _, v := range a.list {
		path, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("a cfg file is not text: %v", v)
		}
		cfgs = append(cfgs, path)
	}
	for _, kw := range a.kwargs {
		more, err := p.stackChoice(pillar, env, kw)
		if err != nil {
			return nil, err
		}
		cfgs = append(cfgs, more...)
	}
	made := value.Map{}
	for _, cfg := range cfgs {
		var err error
		if made, err = p.stackCfg(ctx, cfg, made, pillar); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// stackChoice picks cfg files by a value of pillar, grains or opts: "grains:os: {Debian: file}".
func (p *compilation) stackChoice(pillar value.Map, env string, kw value.Pair) ([]string, error) {
	name, _ := kw.Key.(string)
	where, path, ok := strings.Cut(name, ":")
	if !ok {
		return nil, fmt.Errorf("%q names no value of pillar, grains or opts", name)
	}
	var from value.Map
	switch where {
	case "pillar":
		from = pillar
	case "grains":
		from = p.grains
	case "opts":
		from = p.seen
	default:
		return nil,
			fmt.Errorf("unknown traverse option %q, should be one of pillar, grains, opts", where)
	}
	choices, ok := kw.Value.(value.Map)
	if !ok {
		return nil, fmt.Errorf("%q holds no map from values to cfg files", name)
	}
	have, _ := value.Traverse(from, path, value.Delimiter)
	var files []any
	for _, c := range choices {
		key := c.Key
		if key == anyEnv {
			key = env
		}
		if value.Equal(key, have) {
			if files, ok = c.Value.([]any); !ok {
				files = []any{c.Value}
			}
		}
	}
	out := make([]string, 0, len(files))
	for _, f := range files {
		file, _ := f.(string)
		out = append(out, strings.ReplaceAll(file, anyEnv, env))
	}
	return out, nil
}

// stackCfg merges the files that one cfg file names into the present stack.
func (p *compilation) stackCfg(ctx context.Context, cfg string, made, pillar value.Map) (value.Map,
	error) {
	text, err := smallfile.Read(cfg, maxStackFile)
	if errors.Is(err, os.ErrNotExist) {
		return made, nil
	}
	if err != nil {
		return nil, err
	}
	base := filepath.Dir(cfg)
	t := stackTemplates{p: p, base: base, cfg: cfg, pillar: pillar}
	listed, err := t.render(ctx, cfg, text, made)
	if err != nil {
		return nil, err
	}
	items, err := stackItems(listed, p.req.ID)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if strings.TrimSpace(item) == "" {
			continue
		}
		paths, err := stackFiles(filepath.Join(base, item), p.req.ID)
		if err != nil {
			return nil, fmt.Errorf("stack template %q: %w", item, err)
		}
		for _, path := range paths {
			text, err := smallfile.Read(path, maxStackFile)
			if err != nil {
				return nil, fmt.Errorf("Stack pillar template render error in %s:\n\"%w\"",
					path, err)
			}
			yaml, err := t.render(ctx, path, text, made)
			if err != nil {
				return nil, fmt.Errorf("Stack pillar template render error in %s:\n\"%w\"",
					path, err)
			}
			v, err := p.parse(ctx, yaml, "yaml")
			if err != nil {
				return nil, fmt.Errorf("Stack pillar yaml parsing error in %s:\n%w\n%s", path,
					err, yaml)
			}
			if m, ok := v.(value.Map); ok {
				if made, err = stackMerge(made, m); err != nil {
					return nil, err
				}
			}
		}
	}
	return made, nil
}

// stackItems reads a rendered cfg file: a YAML list, or lines. It returns an error if the minion's
// id could turn one item into several.
func stackItems(text, id string) ([]string, error) {
	if !wire.PlainID(id) && strings.ContainsFunc(id, unicode.IsControl) {
		return nil, fmt.Errorf("the minion id %q has control characters in it", id)
	}
	if v, err := yaml11.Load([]byte(text)); err == nil {
		if list, ok := v.([]any); ok {
			if !wire.PlainID(id) && strings.ContainsAny(id, "\"',[]{}") {
				return nil,
					fmt.Errorf("the minion id %q can't stand in a YAML list; write the cfg file in lines", id)
			}
			out := make([]string, 0, len(list))
			for _, e := range list {
				s, _ := e.(string)
				out = append(out, s)
			}
			return out, nil
		}
	}
	return strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), nil
}

// stackFiles returns the files of one item, sorted. An item is a glob, except for a minion whose id
// is not plain, since the template may have put parts of the id anywhere in it.
func stackFiles(item, id string) ([]string, error) {
	if wire.PlainID(id) {
		paths, err := filepath.Glob(item)
		slices.Sort(paths)
		return paths, err
	}
	if _, err := os.Lstat(item); err != nil {
		return nil, nil // like a glob that matches nothing
	}
	return []string{item}, nil
}

// stackTemplates renders the templates of one cfg file; imports come from its folder.
type stackTemplates struct {
	p         *compilation
	base, cfg string
	pillar    value.Map
}

// stackPrelude defines the names that PillarStack gives to templates. It stands on the template's
// first line.
const stackPrelude = "{%- set __salt__ = salt -%}{%- set __stack__ = {'traverse': salt['slsutil.traverse'], 'cfg_path': stack_cfg_path} -%}"

func (t stackTemplates) render(ctx context.Context, path string, text []byte,
	made value.Map) (string, error) {
	if !bytes.Contains(text, []byte("{{")) && !bytes.Contains(text, []byte("{%")) &&
		!bytes.Contains(text, []byte("{#")) {
		return string(text), nil
	}
	c := t.p.context(value.Map{
		{Key: "stack", Value: made}, {Key: "minion_id", Value: t.p.req.ID},
		{Key: "pillar", Value: t.pillar}, {Key: "pillarenv", Value: orNil(t.p.pillarenv)},
		{Key: "__grains__", Value: t.p.grains}, {Key: "__opts__", Value: t.p.told},
		{Key: "ymlpath", Value: path}, {Key: "stack_cfg_path", Value: t.cfg},
	})
	c.Pillar = t.pillar
	c.Opts = value.Update(c.Opts, value.Map{{Key: "allow_undefined", Value: true}})
	v, err := t.p.deps.Renderer.Render(ctx,
		render.Source{Path: path, SaltEnv: "base",
			Data: append([]byte(stackPrelude), text...)}, "jinja", c, t)
	if err != nil {
		return "", err
	}
	out, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("render %s: the result is not text", path)
	}
	return out, nil
}

// Call implements Host.
func (t stackTemplates) Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	return t.p.call(ctx, fun, args, kwargs)
}

// File implements Host: templates of the stack import from the cfg file's folder.
func (t stackTemplates) File(_ context.Context, _, path string) ([]byte, bool, error) {
	if !filepath.IsLocal(path) {
		return nil, false, nil
	}
	text, err := smallfile.Read(filepath.Join(t.base, path), maxStackFile)
	return text, err == nil, nil // an unreadable file counts as missing
}

// stackMerge merges b into a by the strategy in "__" of b. It changes neither.
func stackMerge(a, b value.Map) (value.Map, error) {
	strategy, err := strategyOf(b)
	if err != nil {
		return nil, err
	}
	b = b.Without("__")
	if strategy == "overwrite" {
		return stackCleanMap(b), nil
	}
	out := slices.Clone(a)
	for _, p := range b {
		i := value.Find(out, p.Key)
		switch {
		case strategy == "remove":
			if i >= 0 {
				out = slices.Delete(out, i, i+1)
			}
			continue
		case i < 0:
			out = append(out, value.Pair{Key: p.Key, Value: stackClean(p.Value)})
			continue
		}
		old, v := out[i].Value, p.Value
		if strategy == "merge-first" {
			old, v = stackClean(p.Value), old
		}
		if out[i].Value, err = stackBoth(old, v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stackBoth joins two values of one key.
func stackBoth(old, v any) (any, error) {
	switch v := v.(type) {
	case value.Map:
		if old, ok := old.(value.Map); ok {
			return stackMerge(old, v)
		}
	case []any:
		if old, ok := old.([]any); ok {
			return stackLists(old, v)
		}
	}
	return stackClean(v), nil
}

func stackLists(old, v []any) (any, error) {
	strategy := "merge-last"
	if len(v) > 0 {
		if m, ok := v[0].(value.Map); ok {
			if _, has := m.Get("__"); has {
				var err error
				if strategy, err = strategyOf(m); err != nil {
					return nil, err
				}
				v = v[1:]
			}
		}
	}
	switch strategy {
	case "overwrite":
		return v, nil
	case "remove":
		return slices.DeleteFunc(slices.Clone(old),
			func(e any) bool { return value.Contains(v, e) }), nil
	case "merge-first":
		return slices.Concat(v, old), nil
	}
	return slices.Concat(old, v), nil
}

func strategyOf(m value.Map) (string, error) {
	v, ok := m.Get("__")
	if !ok {
		return "merge-last", nil
	}
	s, _ := v.(string)
	if !slices.Contains(stackStrategies, s) {
		return "", fmt.Errorf("Unknown strategy \"%v\", should be one of ('%s')", v,
			strings.Join(stackStrategies, "', '"))
	}
	return s, nil
}

// stackClean removes the marks from a value.
func stackClean(v any) any {
	switch v := v.(type) {
	case value.Map:
		return stackCleanMap(v)
	case []any:
		if len(v) > 0 {
			if m, ok := v[0].(value.Map); ok {
				if _, has := m.Get("__"); has {
					return v[1:]
				}
			}
		}
	}
	return v
}

func stackCleanMap(m value.Map) value.Map {
	out := m.Without("__")
	for i := range out {
		out[i].Value = stackClean(out[i].Value)
	}
	return out
}
