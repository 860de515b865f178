package pillar

import (
	"context"
	"errors"
	"slices"

	"clustermaster/value"
)

// GitFolder is a folder of SLS files that a git remote gives to an environment.
type GitFolder struct {
	Dir     string // the folder's name
	Env     string
	Mounted bool // only for the includes of others; its top file is ignored
	Files   GitFiles
}

// GitFiles are the files of one such folder.
type GitFiles interface {
	// List returns the sorted paths of its files.
	List(ctx context.Context) ([]string, error)
	// Open returns a file's content and its name for messages.
	Open(ctx context.Context, path string) (abs string, data []byte, found bool, err error)
}

// gitPillar compiles one pillar per folder, with that folder's top file, and merges them in the
// order of the remotes.
func gitPillar(ctx context.Context, p *compilation, _ value.Map, a extArgs) (any, error) {
	if p.deps.Git == nil {
		return nil, errors.New("git_pillar is not set up on this master")
	}
	folders, err := p.deps.Git(ctx, a.list, p.saltenv, p.pillarenv)
	if err != nil {
		return nil, err
	}
	made := value.Map(nil)
	for i, f := range folders {
		if f.Mounted || p.pillarenv != "" && f.Env != p.pillarenv {
			continue
		}
		in := gitFiles{ctx: ctx, env: f.Env, folders: []GitFolder{f}}
		roots := Env{Name: f.Env, Roots: []string{f.Dir}}
		if p.opts.GitIncludes {
			for j, other := range folders {
				if j != i && other.Env == f.Env {
					in.folders = append(in.folders, other)
					roots.Roots = append(roots.Roots, other.Dir)
				}
			}
		}
		one, err := p.alone(ctx, &in, roots)
		if err != nil {
			return nil, err
		}
		if in.err != nil {
			return nil, in.err
		}
		made = p.merge(made, one)
	}
	return made, nil
}

// alone compiles a pillar of one environment's files, without any ext_pillar.
func (p *compilation) alone(ctx context.Context, files Files, roots Env) (value.Map, error) {
	c := &Compiler{deps: p.deps, opts: p.opts, log: p.log, metrics: p.metrics}
	c.groups.Store(p.groups.Load())
	c.deps.Files = files
	c.opts.Roots, c.opts.ExtPillar, c.opts.OnDemandExtPillar, c.opts.ExtPillarFirst = []Env{roots},
		nil, nil, false
	r := p.req
	r.Saltenv, r.Pillarenv, r.Override, r.Ext = roots.Name, p.pillarenv, nil, nil
	inner := c.newCompilation(r)
	inner.rendered, inner.functions = p.rendered, p.functions // with the child that p holds
	made, err := inner.run(ctx)
	p.rendered = inner.rendered
	return made, err
}

// gitFiles are the folders of one environment: the first that has a file wins.
type gitFiles struct {
	ctx     context.Context // of one compilation
	env     string
	folders []GitFolder
	err     error
}

func (g *gitFiles) List(env string) []string {
	if env != g.env {
		return nil
	}
	var out []string
	for _, f := range g.folders {
		names, err := f.Files.List(g.ctx)
		if err != nil {
			g.err = err
		}
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (g *gitFiles) Open(env, path string) (string, []byte, bool, error) {
	if env != g.env {
		return "", nil, false, nil
	}
	for _, f := range g.folders {
		if abs, data, found, err := f.Files.Open(g.ctx, path); found || err != nil {
			return abs, data, found, err
		}
	}
	return "", nil, false, nil
}
