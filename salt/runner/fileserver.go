package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// FileServer is the file server as operators see it. only names back ends; nil is all.
type FileServer interface {
	Backends() []string
	// Narrow reads a choice of back ends as Salt does; nil is all.
	Narrow(choice any) []string
	Envs(only []string) []string
	List(env string, only []string) []string
	Dirs(env string, only []string) []string
	EmptyDirs(env string, only []string) []string
	Links(env string, only []string) value.Map
	// Forget drops cached lists. It returns, for each back end, the environments that had any.
	Forget(env string, only []string) map[string][]string
	// Update looks for changes now; remotes are git remotes, none means all.
	Update(ctx context.Context, only, remotes []string) error
	// ClearCache drops caches and returns the back ends that had any.
	ClearCache(only []string) []string
	// Lock locks remotes against fetches, or unlocks them, and returns those that changed.
	Lock(ctx context.Context, only []string, remote string, on bool) ([]string, error)
}

// Fileserver is the family fileserver.
func Fileserver(files FileServer) []Function {
	list := func(name, what string, pick func(env string, only []string) any) Function {
		return Function{
			Name: "fileserver." + name, Params: []function.Param{function.Opt("saltenv", "base"),
				function.Opt("backend", nil)},
			Doc: "List the " + what + ` of an environment.

Example:

    salt-run fileserver.` + name + " saltenv=dev",
			Run: func(_ context.Context, c *Call) (any, error) {
				only, err := backendsOf(files, c)
				if err != nil {
					return nil, err
				}
				return pick(c.Text("saltenv"), only), nil
			},
		}
	}
	locks := func(name, doc, key, each, none string, on bool) Function {
		return Function{
			Name: "fileserver." + name, Params: []function.Param{function.Opt("backend", nil),
				function.Opt("remote", nil)},
			Doc: doc + ` roots has none.

Example:

    salt-run fileserver.` + name + " backend=git remote='*example.org*'",
			Run: func(ctx context.Context, c *Call) (any, error) {
				only, err := backendsOf(files, c)
				if err != nil {
					return nil, err
				}
				ids, err := files.Lock(ctx, only, c.Text("remote"), on)
				if err != nil || len(ids) == 0 {
					return none, err
				}
				return locked(key, each, ids), nil
			},
		}
	}
	return []Function{
		{Name: "fileserver.envs", Params: []function.Param{function.Opt("backend", nil),
			function.Opt("sources", false)},
			Doc: `List the environments of the file server.

Example:

    salt-run fileserver.envs`,
			Run: func(_ context.Context, c *Call) (any, error) {
				only, err := backendsOf(files, c)
				if err != nil {
					return nil, err
				}
				if c.True("sources") {
					if only == nil {
						only = files.Backends()
					}
					return value.Texts(slices.Sorted(slices.Values(only))), nil
				}
				envs := slices.Clone(files.Envs(only))
				sort.Strings(envs)
				return value.Texts(envs), nil
			}},
		list("file_list", "files", func(env string,
			only []string) any {
			return value.Texts(files.List(env, only))
		}),
		list("dir_list", "folders", func(env string,
			only []string) any {
			return value.Texts(files.Dirs(env, only))
		}),
		list("empty_dir_list", "empty folders",
			func(env string, only []string) any { return value.Texts(files.EmptyDirs(env, only)) }),
		list("symlink_list", "links", func(env string, only []string) any {
			if l := files.Links(env, only); l != nil {
				return l
			}
			return value.Map{}
		}),
		{Name: "fileserver.update", Params: []function.Param{function.Opt("backend", nil)},
			VarKwargs: true,
			Doc: `Look for changed files now; remotes of git are fetched.

remotes
    Names or ids of git remotes; without it all.

Example:

    salt-run fileserver.update backend=git remotes=states`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				only, err := backendsOf(files, c)
				if err != nil {
					return nil, err
				}
				var remotes []string
				for _, name := range []string{"remotes", "remote"} {
					if v, ok := c.Kwargs().Get(name); ok {
						remotes = append(remotes, textList(v)...)
					}
				}
				return true, files.Update(ctx, only, remotes)
			}},
		{Name: "fileserver.clear_file_list_cache",
			Params: []function.Param{function.Opt("saltenv", nil), function.Opt("backend", nil)},
			Doc: `Drop the lists of files; the next request makes them again.

Example:

    salt-run fileserver.clear_file_list_cache saltenv=base`,
			Run: func(_ context.Context, c *Call) (any, error) {
				only, err := backendsOf(files, c)
				if err != nil {
					return nil, err
				}
				cleared, out := files.Forget(c.Text("saltenv"), only), value.Map{}
				for _, name := range slices.Sorted(maps.Keys(cleared)) {
					out = append(out, value.Pair{Key: name, Value: value.Texts(cleared[name])})
				}
				return out, nil
			}},
		{Name: "fileserver.clear_cache", Params: []function.Param{function.Opt("backend", nil)},
			Doc: `Drop the caches of back ends with remotes; roots has none. Fetched commits stay and are still
served.

Example:

    salt-run fileserver.clear_cache`,
			Run: func(_ context.Context, c *Call) (any, error) {
				only, err := backendsOf(files, c)
				if err != nil {
					return nil, err
				}
				done := files.ClearCache(only)
				if len(done) == 0 {
					return "No cache was cleared", nil
				}
				out := make([]any, len(done))
				for i, name := range done {
					out[i] = "The " + name + " fileserver cache was successfully cleared"
				}
				return value.Map{{Key: "cleared", Value: out}}, nil
			}},
		locks("clear_lock", "Allow fetches of remotes again that fileserver.lock locked.", "cleared",
			unlocked, "No locks were removed", false),
		locks("lock",
			"Lock remotes against fetches, on all masters; their present commits are still served.",
			"locked", "Set update lock for gitfs remote '%s'", "No locks were set", true),
	}
}

const unlocked = "Removed update lock for gitfs remote '%s'"

// locked is Salt's result, in its words, for remotes whose lock changed.
func locked(key, each string, remotes []string) value.Map {
	out := make([]any, len(remotes))
	for i, id := range remotes {
		out[i] = fmt.Sprintf(each, id)
	}
	return value.Map{{Key: key, Value: out}}
}

// GitLocks is the function of the family cache that removes the locks of fileserver.lock
// (salt/runners/cache.py).
func GitLocks(files FileServer) []Function {
	return []Function{{Name: "cache.clear_git_lock", Params: []function.Param{function.Need("role"),
		function.Opt("remote", nil), function.Opt("type", nil)},
		Doc: `Remove update locks of gitfs, as fileserver.clear_lock does. git_pillar and winrepo have none
here, and there are no locks of other types than update.

Example:

    salt-run cache.clear_git_lock gitfs
    salt-run cache.clear_git_lock gitfs remote='*example.org*'`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			role := c.Text("role")
			if !slices.Contains([]string{"gitfs", "git_pillar", "winrepo"}, role) {
				return nil, &function.ArgumentError{Text: "Invalid role '" + role + "'"}
			}
			types := textList(c.Arg("type"))
			if role == "gitfs" && (len(types) == 0 || slices.Contains(types, "update")) &&
				slices.Contains(files.Backends(), role) {
				ids, err := files.Lock(ctx, []string{role}, c.Text("remote"), false)
				if err != nil {
					return nil, err
				}
				if len(ids) > 0 {
					return locked("cleared", unlocked, ids), nil
				}
			}
			return "No locks were removed", nil
		}}}
}

// backendsOf reads the parameter backend. It refuses a back end that is not in force, by name.
func backendsOf(files FileServer, c *Call) ([]string, error) {
	v := c.Arg("backend")
	full := map[string]string{"git": "gitfs", "minion": "minionfs"}
	for _, name := range textList(v) {
		bare := strings.TrimPrefix(name, "-")
		if f, ok := full[bare]; ok {
			bare = f
		}
		if have := files.Backends(); !slices.Contains(have, bare) {
			if slices.Equal(have, []string{"roots"}) {
				return nil,
					fmt.Errorf("the file server back end %v is not enabled; only roots is", name)
			}
			return nil, fmt.Errorf("the file server back end %v is not enabled; %s are", name,
				strings.Join(have, " and "))
		}
	}
	return files.Narrow(v), nil
}
