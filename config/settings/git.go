package settings

import (
	"path/filepath"
	"slices"

	"clustermaster/config"
	"clustermaster/serve/gitfs"
	"clustermaster/value"
)

// Git takes the options for serving from git; false: they name no remote.
func Git(o *config.Options) (gitfs.Options, bool) {
	global := func(prefix string) func(string) any {
		return func(name string) any { return Revealed(o.Option(prefix + name)) }
	}
	out := gitfs.Options{
		Dir: filepath.Join(o.DataDir(), "git"), CacheDir: o.CacheDir, HashType: o.HashType,
		Timeout: o.GitFetchTimeout, Rate: int64(o.ClusterTransferRate),
		Signers: o.GitAllowedSigners, KnownHosts: o.GitKnownHosts,
		JobFunctions: o.GitJobFunctions, JobLimit: o.GitJobLimit,
		Files: gitfs.Config{Role: gitfs.RoleFiles, Global: global("gitfs_")},
	}
	if slices.Contains(o.FileserverBackend, gitfs.RoleFiles) {
		out.Files.Remotes, _ = Revealed(o.Option("gitfs_remotes")).([]any)
	}
	for _, e := range o.ExtPillar {
		if remotes := gitRemotes(Revealed(e)); len(remotes) > 0 {
			out.Pillars = append(out.Pillars, gitfs.Config{
				Role: gitfs.RolePillar, Remotes: remotes, Shown: gitRemotes(Value(e)),
				Global: global("git_pillar_"),
			})
		}
	}
	return out, len(out.Files.Remotes)+len(out.Pillars) > 0
}

// gitRemotes returns the remotes of an entry git of ext_pillar; nil for other entries.
func gitRemotes(entry any) []any {
	m, _ := entry.(value.Map)
	v, _ := m.Get("git")
	switch v := v.(type) {
	case []any:
		return v
	case nil:
		return nil
	}
	return []any{v}
}
