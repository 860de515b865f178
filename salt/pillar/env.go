package pillar

import (
	"slices"
	"strings"

	"clustermaster/value"
)

// resolveEnvs works out the environments in force: __env__ becomes the requested environment,
// unless that one has its own roots.
func (p *compilation) resolveEnvs() {
	asked := p.pillarenv
	if asked == "" {
		asked = p.saltenv
	}
	if asked == "" {
		asked = "base"
	}
	named := slices.ContainsFunc(p.opts.Roots, func(e Env) bool { return e.Name == asked })
	var last *Env
	for _, e := range p.opts.Roots {
		if e.Name != anyEnv {
			p.roots = append(p.roots, e)
		} else if !named {
			own := Env{Name: asked, Roots: make([]string, len(e.Roots))}
			for i, root := range e.Roots {
				own.Roots[i] = strings.ReplaceAll(root, anyEnv, asked)
			}
			last = &own
		}
	}
	if last != nil {
		p.roots = append(p.roots, *last)
	}
}

// env reports whether an environment has roots.
func (p *compilation) env(name string) (Env, bool) {
	i := slices.IndexFunc(p.roots, func(e Env) bool { return e.Name == name })
	if i < 0 {
		return Env{}, false
	}
	return p.roots[i], true
}

// envs lists base and then all others.
func (p *compilation) envs() []string {
	out := []string{"base"}
	for _, e := range p.roots {
		if !slices.Contains(out, e.Name) {
			out = append(out, e.Name)
		}
	}
	return out
}

// available lists the SLS names of an environment, sorted; ok is false for an unknown environment.
func (p *compilation) available(env string) (names []string, ok bool) {
	if names, ok := p.avail[env]; ok {
		return names, true
	}
	if !slices.Contains(p.envs(), env) {
		return nil, false
	}
	names = []string{}
	if _, ok := p.env(env); ok {
		for _, path := range p.deps.Files.List(env) {
			if base, ok := strings.CutSuffix(path, "/init.sls"); ok {
				names = append(names, strings.ReplaceAll(base, "/", "."))
			} else if base, ok := strings.CutSuffix(path, ".sls"); ok {
				names = append(names, strings.ReplaceAll(base, "/", "."))
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	p.avail[env] = names
	return names, true
}

// file is one file of pillar_roots.
type file struct {
	source string // relative to the root
	abs    string
	data   []byte
}

// open finds a file; an environment that is not in force has no files.
func (p *compilation) open(env, path string) (file, bool, error) {
	if _, ok := p.env(env); !ok {
		return file{}, false, nil
	}
	abs, data, found, err := p.deps.Files.Open(env, path)
	return file{path, abs, data}, found, err
}

// state finds the file of an SLS name.
func (p *compilation) state(env, sls string) (file, bool, error) {
	base := strings.TrimLeft(strings.ReplaceAll(sls, ".", "/"), "/")
	for _, path := range []string{base + ".sls", base + "/init.sls"} {
		if f, found, err := p.open(env, path); found || err != nil {
			return f, found, err
		}
	}
	return file{}, false, nil
}

// templateOpts returns the options that templates see as opts.
func (p *compilation) templateOpts() value.Map {
	opts := p.opts.MasterOpts.Without("id", "file_client", "saltenv", "pillarenv", "pillar_roots",
		"state_top", "minion_id", "__role")
	if groups := p.groups.Load(); groups != nil {
		opts = opts.Set("nodegroups", *groups)
	}
	roots := make(value.Map, len(p.roots))
	for i, e := range p.roots {
		roots[i] = value.Pair{Key: e.Name, Value: anyTexts(e.Roots)}
	}
	return append(opts, value.Map{
		{Key: "id", Value: p.req.ID},
		{Key: "minion_id", Value: p.req.ID},
		{Key: "__role", Value: "master"},
		{Key: "file_client", Value: "local"},
		{Key: "saltenv", Value: orNil(p.saltenv)},
		{Key: "pillarenv", Value: orNil(p.pillarenv)},
		{Key: "pillar_roots", Value: roots},
		{Key: "state_top", Value: "salt://" + p.opts.StateTop},
	}...)
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}
