package fileview

import (
	"context"
	"errors"
	"strings"

	"clustermaster/salt/pillar"
	"clustermaster/salt/runner"
	"clustermaster/serve/gitfs"
	"clustermaster/value"
)

// Git are the remotes of gitfs and git_pillar.
type Git struct {
	Store *gitfs.Store // nil without remotes
	ID    string       // of this master
}

var _ runner.GitRemotes = Git{}

var errNoGit = errors.New("this master has no git remotes in force; set gitfs_remotes, or a git ext_pillar")

// GitStatus implements runner.GitRemotes, as do the next ones.
func (g Git) GitStatus(ctx context.Context, remote string) ([]runner.GitRemote, error) {
	if g.Store == nil {
		return nil, errNoGit
	}
	all, err := g.Store.Status(ctx, remote)
	if err != nil {
		return nil, err
	}
	out := make([]runner.GitRemote, len(all))
	for i, r := range all {
		out[i] = runner.GitRemote{
			Remote: r.Remote, Role: r.Role, URL: r.URL, Locked: r.Locked, Fetched: r.Good,
			Tried: r.Tried, Error: r.Error, Refused: r.Refused,
			Holders: g.ids(r.Holders), Behind: g.ids(r.Behind),
		}
		for _, e := range r.Envs {
			out[i].Envs = append(out[i].Envs, runner.GitEnv(e))
		}
	}
	return out, nil
}

// ids are the masters of nodes; "" is this one, where it stands alone.
func (g Git) ids(nodes []string) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		if out[i], _, _ = strings.Cut(n, "/"); n == "" {
			out[i] = g.ID
		}
	}
	return out
}

func (g Git) GitPin(ctx context.Context, remote, env, commit, by string,
	dry bool) (runner.GitChange, error) {
	if g.Store == nil {
		return runner.GitChange{}, errNoGit
	}
	c, err := g.Store.Pin(ctx, remote, env, commit, by, dry)
	return runner.GitChange(c), err
}

func (g Git) GitUnpin(ctx context.Context, remote, env, by string,
	dry bool) (runner.GitChange, error) {
	if g.Store == nil {
		return runner.GitChange{}, errNoGit
	}
	c, err := g.Store.Unpin(ctx, remote, env, by, dry)
	return runner.GitChange(c), err
}

func (g Git) GitRollback(ctx context.Context, remote, env, by string,
	dry bool) (runner.GitChange, error) {
	if g.Store == nil {
		return runner.GitChange{}, errNoGit
	}
	c, err := g.Store.Rollback(ctx, remote, env, by, dry)
	return runner.GitChange(c), err
}

func (g Git) UpdatePillars(ctx context.Context, branch, repo string) (value.Map, error) {
	if g.Store == nil {
		return nil, nil
	}
	done, err := g.Store.UpdateRemotes(ctx, gitfs.RolePillar, func(r *gitfs.Remote) bool {
		return (branch == "" || branch == r.Branch) &&
			(repo == "" || repo == r.URL || repo == r.Name)
	})
	if err != nil {
		return nil, err
	}
	out := value.Map{}
	for _, d := range done {
		var v any
		switch {
		case d.Err != nil:
			v = false
		case d.Changed:
			v = true
		}
		out = append(out, value.Pair{Key: d.ID, Value: v})
	}
	return out, nil
}

// Folders lists the folders of one entry of git_pillar for package pillar.
func (g Git) Folders(ctx context.Context, remotes []any, saltenv,
	pillarenv string) ([]pillar.GitFolder, error) {
	if g.Store == nil {
		return nil, errors.New("no remote of git_pillar is in force; the log says why")
	}
	trees, err := g.Store.Pillars(ctx, remotes, saltenv, pillarenv)
	out := make([]pillar.GitFolder, len(trees))
	for i, t := range trees {
		out[i] = pillar.GitFolder{Dir: t.Dir, Env: t.Env, Mounted: t.Mounted, Files: &trees[i]}
	}
	return out, err
}
