package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clustermaster/salt/runner"
	"clustermaster/serve/fileserver"
	"clustermaster/serve/gitfs"
	"clustermaster/value"
)

// servedFiles is the file server as the runner fileserver sees it.
type servedFiles struct{ r *process }

func (f servedFiles) Backends() []string          { return f.r.files.Backends() }
func (f servedFiles) Narrow(choice any) []string  { return f.r.files.Narrow(choice) }
func (f servedFiles) Envs(only []string) []string { return f.r.files.EnvsOf(only) }
func (f servedFiles) List(env string, only []string) []string {
	return f.r.files.ListsOf(context.Background(), env, only).Files
}
func (f servedFiles) Dirs(env string, only []string) []string {
	return f.r.files.ListsOf(context.Background(), env, only).Dirs
}
func (f servedFiles) EmptyDirs(env string, only []string) []string {
	return f.r.files.ListsOf(context.Background(), env, only).EmptyDirs
}
func (f servedFiles) Links(env string, only []string) value.Map {
	return f.r.files.ListsOf(context.Background(), env, only).Links
}
func (f servedFiles) Forget(env string, only []string) map[string][]string {
	return f.r.files.Forget(env, only)
}

// asks reports whether a choice of back ends has one.
func asks(only []string, name string) bool { return only == nil || slices.Contains(only, name) }

func (f servedFiles) Update(ctx context.Context, only, remotes []string) error {
	if asks(only, fileserver.Roots) && slices.Contains(f.Backends(), fileserver.Roots) {
		changes, err := f.r.files.Look(ctx)
		if err != nil {
			return err
		}
		f.r.fileChanges(changes)
	}
	if f.r.git == nil || !asks(only, gitfs.RoleFiles) {
		return nil
	}
	done, err := f.r.git.UpdateRemotes(ctx, gitfs.RoleFiles, func(r *gitfs.Remote) bool {
		return len(remotes) == 0 || slices.Contains(remotes, r.Name) && r.Name != "" ||
			slices.Contains(remotes, r.ID) || slices.Contains(remotes, r.URL)
	})
	if err != nil {
		return err
	}
	if len(done) == 0 && len(remotes) > 0 {
		return fmt.Errorf("no remote of gitfs_remotes has the name or id %s",
			strings.Join(remotes, ", "))
	}
	var failed []error
	for _, d := range done {
		if d.Err != nil && len(remotes) > 0 { // of those that nobody named the log tells
			failed = append(failed, fmt.Errorf("gitfs remote %s: %w", d.ID, d.Err))
		}
	}
	return errors.Join(failed...)
}

func (f servedFiles) ClearCache(only []string) []string {
	if f.r.git == nil || !asks(only, gitfs.RoleFiles) {
		return nil
	}
	f.r.git.ClearCaches()
	return []string{gitfs.RoleFiles}
}

func (f servedFiles) Lock(ctx context.Context, only []string, remote string, on bool) ([]string,
	error) {
	if f.r.git == nil || !asks(only, gitfs.RoleFiles) {
		return nil, nil
	}
	return f.r.git.SetLock(ctx, gitfs.RoleFiles, remote, on)
}

// gitRemotes are the git remotes as operators see them.
type gitRemotes struct{ r *process }

var _ runner.GitRemotes = gitRemotes{}

var errNoGit = errors.New("this master has no git remotes in force; set gitfs_remotes, or a git ext_pillar")

func (g gitRemotes) GitStatus(ctx context.Context, remote string) ([]runner.GitRemote, error) {
	if g.r.git == nil {
		return nil, errNoGit
	}
	all, err := g.r.git.Status(ctx, remote)
	if err != nil {
		return nil, err
	}
	ids := func(nodes []string) []string {
		out := make([]string, len(nodes))
		for i, n := range nodes {
			if out[i], _, _ = strings.Cut(n, "/"); n == "" {
				out[i] = g.r.opts.ID
			}
		}
		return out
	}
	out := make([]runner.GitRemote, len(all))
	for i, r := range all {
		out[i] = runner.GitRemote{
			Remote: r.Remote, Role: r.Role, URL: r.URL, Locked: r.Locked, Fetched: r.Good,
			Tried: r.Tried, Error: r.Error, Refused: r.Refused,
			Holders: ids(r.Holders), Behind: ids(r.Behind),
		}
		for _, e := range r.Envs {
			out[i].Envs = append(out[i].Envs, runner.GitEnv(e))
		}
	}
	return out, nil
}

func (g gitRemotes) GitPin(ctx context.Context, remote, env, commit, by string,
	dry bool) (runner.GitChange, error) {
	if g.r.git == nil {
		return runner.GitChange{}, errNoGit
	}
	c, err := g.r.git.Pin(ctx, remote, env, commit, by, dry)
	return runner.GitChange(c), err
}

func (g gitRemotes) GitUnpin(ctx context.Context, remote, env, by string,
	dry bool) (runner.GitChange, error) {
	if g.r.git == nil {
		return runner.GitChange{}, errNoGit
	}
	c, err := g.r.git.Unpin(ctx, remote, env, by, dry)
	return runner.GitChange(c), err
}

func (g gitRemotes) GitRollback(ctx context.Context, remote, env, by string,
	dry bool) (runner.GitChange, error) {
	if g.r.git == nil {
		return runner.GitChange{}, errNoGit
	}
	c, err := g.r.git.Rollback(ctx, remote, env, by, dry)
	return runner.GitChange(c), err
}

func (g gitRemotes) UpdatePillars(ctx context.Context, branch, repo string) (value.Map, error) {
	if g.r.git == nil {
		return nil, nil
	}
	done, err := g.r.git.UpdateRemotes(ctx, gitfs.RolePillar, func(r *gitfs.Remote) bool {
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
