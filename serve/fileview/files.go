package fileview

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

// Files are file_roots and gitfs.
type Files struct {
	Server  *fileserver.Server
	Git     *gitfs.Store // nil without remotes
	Changed func(fileserver.Changes)
}

var _ runner.FileServer = Files{}

// Backends implements runner.FileServer, as do the next ones.
func (f Files) Backends() []string          { return f.Server.Backends() }
func (f Files) Narrow(choice any) []string  { return f.Server.Narrow(choice) }
func (f Files) Envs(only []string) []string { return f.Server.EnvsOf(only) }
func (f Files) List(env string, only []string) []string {
	return f.Server.ListsOf(context.Background(), env, only).Files
}
func (f Files) Dirs(env string, only []string) []string {
	return f.Server.ListsOf(context.Background(), env, only).Dirs
}
func (f Files) EmptyDirs(env string, only []string) []string {
	return f.Server.ListsOf(context.Background(), env, only).EmptyDirs
}
func (f Files) Links(env string, only []string) value.Map {
	return f.Server.ListsOf(context.Background(), env, only).Links
}
func (f Files) Forget(env string, only []string) map[string][]string {
	return f.Server.Forget(env, only)
}

// asks reports whether a choice of back ends has one.
func asks(only []string, name string) bool { return only == nil || slices.Contains(only, name) }

// Update fails for a remote that the operator named; the log has the errors of the others.
func (f Files) Update(ctx context.Context, only, remotes []string) error {
	if asks(only, fileserver.Roots) && slices.Contains(f.Backends(), fileserver.Roots) {
		changes, err := f.Server.Look(ctx)
		if err != nil {
			return err
		}
		f.Changed(changes)
	}
	if f.Git == nil || !asks(only, gitfs.RoleFiles) {
		return nil
	}
	done, err := f.Git.UpdateRemotes(ctx, gitfs.RoleFiles, func(r *gitfs.Remote) bool {
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
		if d.Err != nil && len(remotes) > 0 {
			failed = append(failed, fmt.Errorf("gitfs remote %s: %w", d.ID, d.Err))
		}
	}
	return errors.Join(failed...)
}

func (f Files) ClearCache(only []string) []string {
	if f.Git == nil || !asks(only, gitfs.RoleFiles) {
		return nil
	}
	f.Git.ClearCaches()
	return []string{gitfs.RoleFiles}
}

func (f Files) Lock(ctx context.Context, only []string, remote string, on bool) ([]string, error) {
	if f.Git == nil || !asks(only, gitfs.RoleFiles) {
		return nil, nil
	}
	return f.Git.SetLock(ctx, gitfs.RoleFiles, remote, on)
}
