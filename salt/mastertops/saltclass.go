package mastertops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"clustermaster/salt/render"
	"clustermaster/store/smallfile"
	"clustermaster/value"
)

// defaultClasses is saltclass's folder if the option gives no path.
const defaultClasses = "/srv/saltclass"

// Bounds of what is read for one minion.
const (
	maxClassFile = 8 << 20 // bytes
	maxClasses   = 4096
	maxEntries   = 1 << 20 // in folders, as links lead through them
)

// classes is the module saltclass. A file nodes/**/ID.yml names classes in classes/, which may name
// further classes; each may have states. The files are templates, which see the pillars of the
// files read before them (Salt's utils/saltclass.py).
type classes struct {
	path     string
	renderer renderer
	log      *slog.Logger
}

// reading is the work for one minion.
type reading struct {
	classes
	req    Request
	pillar value.Map // of the files read so far; templates see it
	seen   map[string]bool
	order  []value.Map // nested classes before those that name them; last the node
}

// states maps the environment to the states of all classes and the node, each state once. The
// environment is the last one given.
func (c classes) states(ctx context.Context, req Request) (value.Map, error) {
	r := &reading{classes: c, req: req, pillar: value.Map{}, seen: make(map[string]bool)}
	node, err := r.node(ctx)
	if err != nil {
		return nil, err
	}
	r.pillar = overlay(r.pillar, mapOf(node, "pillars"))
	if err := r.expand(ctx, listOf(node, "classes")); err != nil {
		return nil, err
	}
	r.order = append(r.order, node)
	env, states := "", []any{}
	for _, m := range r.order {
		if v, has := m.Get("environment"); has {
			env, _ = v.(string)
		}
		for _, state := range listOf(m, "states") {
			if !value.Contains(states, state) {
				states = append(states, state)
			}
		}
	}
	return value.Map{{Key: env, Value: states}}, nil
}

// node reads the definition of the minion: a file named after it in any folder below nodes.
func (r *reading) node(ctx context.Context) (value.Map, error) {
	found, left := "", maxEntries
	err := walk(filepath.Join(r.path, "nodes"), &left, func(path string) {
		if filepath.Base(path) == r.req.ID+".yml" {
			found = path
		}
	})
	if err != nil {
		return nil, err
	}
	if found == "" {
		r.log.Warn("saltclass has no node definition", "minion", r.req.ID, "path", r.path)
		return value.Map{}, nil
	}
	m, err := r.file(ctx, found)
	if err == nil && len(m) == 0 {
		err = fmt.Errorf("read %s: it is empty", found)
	}
	return m, err
}

// expand reads the named classes and those that they name, in the order of their states.
func (r *reading) expand(ctx context.Context, names []any) error {
	for _, name := range r.matching(names) {
		if r.seen[name] {
			continue
		}
		if len(r.seen) == maxClasses {
			return fmt.Errorf("more than %d classes", maxClasses)
		}
		r.seen[name] = true
		class, err := r.class(ctx, name)
		if err != nil {
			return err
		}
		r.pillar = overlay(r.pillar, mapOf(class, "pillars"))
		if err := r.expand(ctx, listOf(class, "classes")); err != nil {
			return err
		}
		r.order = append(r.order, class)
	}
	return nil
}

// places are the possible files of a class a.b: classes/a.b.yml, classes/a/b.yml,
// classes/a/b/init.yml.
func (r *reading) places(name string) []string {
	dir, nested := filepath.Join(r.path, "classes"), strings.ReplaceAll(name, ".",
		string(filepath.Separator))
	return []string{filepath.Join(dir, name+".yml"), filepath.Join(dir, nested+".yml"),
		filepath.Join(dir, nested, "init.yml")}
}

// matching returns the classes that names stand for, each once. A name may be a glob.
func (r *reading) matching(names []any) []string {
	var out []string
	dir := filepath.Join(r.path, "classes") + string(filepath.Separator)
	for _, v := range names {
		name, ok := v.(string)
		if !ok {
			continue
		}
		before := len(out)
		for _, pattern := range r.places(name) {
			files, _ := filepath.Glob(pattern)
			slices.Sort(files)
			for _, file := range files {
				rest, inside := strings.CutPrefix(file, dir)
				if !inside {
					continue
				}
				class := strings.TrimSuffix(strings.ReplaceAll(strings.TrimSuffix(rest, ".yml"),
					string(filepath.Separator), "."), ".init")
				if !slices.Contains(out, class) {
					out = append(out, class)
				}
			}
		}
		if len(out) == before {
			r.log.Warn("saltclass has no such class", "class", name, "minion", r.req.ID)
		}
	}
	return out
}

// class reads a class.
func (r *reading) class(ctx context.Context, name string) (value.Map, error) {
	for _, path := range r.places(name) {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return r.file(ctx, path)
		}
	}
	r.log.Warn("saltclass has no such class", "class", name, "minion", r.req.ID)
	return value.Map{}, nil
}

// prelude gives templates the names that saltclass gives them. It adds no line, so that line
// numbers stay right.
const prelude = "{%- set __salt__ = {} -%}"

// file renders a file and reads its YAML.
func (r *reading) file(ctx context.Context, path string) (value.Map, error) {
	text, err := smallfile.Read(path, maxClassFile)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(text, []byte("{{")) || bytes.Contains(text, []byte("{%")) ||
		bytes.Contains(text, []byte("{#")) {
		v, err := r.renderer.Render(ctx,
			render.Source{Path: path, Data: append([]byte(prelude),
				text...)}, "jinja", render.Context{
				ID: r.req.ID, Grains: r.req.Grains,
				Opts: value.Map{{Key: "allow_undefined", Value: true}},
				Vars: value.Map{
					{Key: "__opts__", Value: r.req.Opts}, {Key: "__grains__", Value: r.req.Grains},
					{Key: "__pillar__", Value: r.pillar},
					{Key: "minion_id", Value: r.req.ID},
				},
			}, folder(filepath.Dir(path)))
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", path, err)
		}
		rendered, _ := v.(string)
		text = []byte(rendered)
	}
	v, err := yaml(ctx, r.renderer, path, string(text))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	switch v := v.(type) {
	case nil:
		return value.Map{}, nil
	case value.Map:
		return v, nil
	}
	return nil, fmt.Errorf("read %s: not a map", path)
}

// folder is where a template's imports are found.
type folder string

// Call implements render.Host: templates of saltclass have no functions.
func (folder) Call(context.Context, string, []any, value.Map) (any, error) {
	return nil, render.ErrUnknownFunction
}

// File implements render.Host.
func (f folder) File(_ context.Context, _, path string) ([]byte, bool, error) {
	if !filepath.IsLocal(path) {
		return nil, false, nil
	}
	text, err := smallfile.Read(filepath.Join(string(f), path), maxClassFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return text, err == nil, err
}

// walk calls fn for the files below a folder, also through links to folders. It visits at most
// *left entries. A missing folder counts as empty.
func walk(dir string, left *int, fn func(path string)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // as with os.walk
	}
	for _, e := range entries {
		if *left--; *left < 0 {
			return fmt.Errorf("more than %d files and folders; does a link lead back to a folder above it?", maxEntries)
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil: // gone, or a dangling link
		case !info.IsDir():
			fn(path)
		default:
			if err := walk(path, left, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// overlay lays b over a: it merges maps and appends lists; a list that begins with "^" replaces the
// other. It changes neither argument.
func overlay(a, b value.Map) value.Map {
	out := slices.Clone(a)
	for _, p := range b {
		i := value.Find(out, p.Key)
		if i < 0 {
			out = append(out, p)
			continue
		}
		val := p.Value
		switch v := val.(type) {
		case []any:
			if old, ok := out[i].Value.([]any); ok {
				if len(v) > 0 && v[0] == "^" {
					val = v[1:]
				} else {
					val = slices.Concat(old, v)
				}
			}
		case value.Map:
			if old, ok := out[i].Value.(value.Map); ok {
				val = overlay(old, v)
			}
		}
		out[i].Value = val
	}
	return out
}

func mapOf(m value.Map, key string) value.Map {
	v, _ := m.Get(key)
	out, _ := v.(value.Map)
	return out
}

func listOf(m value.Map, key string) []any {
	v, _ := m.Get(key)
	out, _ := v.([]any)
	return out
}
