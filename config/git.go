package config

import (
	"slices"
	"strings"

	"clustermaster/value"
)

// gitOptions are the options of gitfs and git_pillar, which other packages get by name (Option).
var gitOptions = []string{
	"gitfs_base", "gitfs_disable_saltenv_mapping", "gitfs_fallback", "gitfs_insecure_auth",
	"gitfs_mountpoint",
	"gitfs_passphrase", "gitfs_password", "gitfs_privkey", "gitfs_proxy", "gitfs_pubkey",
	"gitfs_ref_types",
	"gitfs_refspecs", "gitfs_remotes", "gitfs_root", "gitfs_saltenv", "gitfs_saltenv_blacklist",
	"gitfs_saltenv_whitelist", "gitfs_ssl_verify", "gitfs_update_interval", "gitfs_user",
	"git_pillar_base", "git_pillar_branch", "git_pillar_disable_saltenv_mapping", "git_pillar_env",
	"git_pillar_fallback", "git_pillar_includes", "git_pillar_insecure_auth",
	"git_pillar_passphrase",
	"git_pillar_password", "git_pillar_privkey", "git_pillar_proxy", "git_pillar_pubkey",
	"git_pillar_ref_types",
	"git_pillar_refspecs", "git_pillar_root", "git_pillar_ssl_verify", "git_pillar_update_interval",
	"git_pillar_user",
}

// gitProviders are the values of gitfs_provider and git_pillar_provider. All of them use the
// installed git.
var gitProviders = []string{"", "pygit2", "gitpython", "gitcli"}

// Option returns one of Salt's options by name: its value as read, else its default, else nil.
func (o *Options) Option(name string) any {
	if v, ok := o.Extra[name]; ok && v != nil {
		return v
	}
	return table()[name].fallback
}

// hideGit turns the passwords and passphrases of remotes, in gitfs_remotes and below git in
// ext_pillar, into Secrets.
func (l *loader) hideGit() {
	if v, ok := l.o.Extra["gitfs_remotes"].([]any); ok {
		l.o.Extra["gitfs_remotes"] = hidden(v)
	}
	list, ok := l.o.Extra["ext_pillar"].([]any)
	if !ok {
		return
	}
	list = slices.Clone(list)
	for i, e := range list {
		m, _ := e.(value.Map)
		if len(m) == 1 && m[0].Key == "git" {
			list[i] = value.Map{{Key: "git", Value: hidden(m[0].Value)}}
		}
	}
	l.o.Extra["ext_pillar"], l.o.ExtPillar = list, list
}

func hidden(v any) any {
	switch v := v.(type) {
	case value.Map:
		out := make(value.Map, len(v))
		for i, e := range v {
			out[i] = value.Pair{Key: e.Key, Value: hidden(e.Value)}
			if name, _ := e.Key.(string); (name == "password" || name == "passphrase") &&
				e.Value != nil {
				out[i].Value = Secret(value.Str(e.Value))
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = hidden(e)
		}
		return out
	}
	return v
}

// checkGit checks what concerns all remotes. A fault of one remote does not prevent the start: the
// file server reports it, and serves the others.
func (l *loader) checkGit() {
	o := l.o
	for name, v := range map[string]string{"gitfs_provider": o.GitfsProvider,
		"git_pillar_provider": o.GitPillarProvider} {
		if !slices.Contains(gitProviders, strings.ToLower(v)) {
			l.refuse(name,
				"is %q; pygit2, gitpython and gitcli are accepted, and all mean the installed git", v)
		}
	}
	for _, name := range o.FileserverBackend {
		switch name {
		case "roots", "gitfs":
		case "minionfs":
			if !o.FileRecv {
				l.warn("fileserver_backend",
					"names minionfs, which serves nothing without file_recv: True")
			}
		default:
			l.refuse("fileserver_backend",
				"the back end %q is not built in; roots, gitfs and minionfs are", name)
		}
	}
	if !isEmpty(o.Extra["gitfs_remotes"]) && !slices.Contains(o.FileserverBackend, "gitfs") {
		l.warn("gitfs_remotes", "is not used without gitfs in fileserver_backend; add it there")
	}
}
