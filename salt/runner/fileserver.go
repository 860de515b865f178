package runner

import (
	"context"
	"fmt"
	"sort"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// FileServer is file_roots as operators see them.
type FileServer interface {
	Envs() []string
	List(env string) []string
	Dirs(env string) []string
	EmptyDirs(env string) []string
	Links(env string) value.Map
	// ClearListCache forgets lists and names the environments that had some.
	ClearListCache(env string) []string
	// Update looks for changes now and fires the event of it.
	Update(ctx context.Context) error
}

// Fileserver is the family fileserver, for the back end roots.
func Fileserver(files FileServer) []Function {
	names := func(list []string) any {
		out := make([]any, len(list))
		for i, n := range list {
			out[i] = n
		}
		return out
	}
	list := func(name, what string, pick func(env string) any) Function {
		return Function{
			Name: "fileserver." + name, Params: []function.Param{function.Opt("saltenv", "base"), function.Opt("backend", nil)},
			Doc: "List the " + what + " of an environment.\n\nExample:\n\n    salt-run fileserver." + name + " saltenv=dev",
			Run: func(_ context.Context, c *Call) (any, error) {
				if err := rootsOnly(c); err != nil {
					return nil, err
				}
				return pick(c.Text("saltenv")), nil
			},
		}
	}
	locks := func(name, answer string) Function {
		return Function{
			Name: "fileserver." + name, Params: []function.Param{function.Opt("backend", nil), function.Opt("remote", nil)},
			Doc: "Only back ends with remotes have locks; roots has none.\n\nExample:\n\n    salt-run fileserver." + name,
			Run: func(_ context.Context, c *Call) (any, error) { return answer, rootsOnly(c) },
		}
	}
	return []Function{
		{Name: "fileserver.envs", Params: []function.Param{function.Opt("backend", nil), function.Opt("sources", false)}, Doc: "List the environments of file_roots.\n\nExample:\n\n    salt-run fileserver.envs",
			Run: func(_ context.Context, c *Call) (any, error) {
				if err := rootsOnly(c); err != nil {
					return nil, err
				}
				if c.True("sources") {
					return []any{"roots"}, nil
				}
				envs := append([]string(nil), files.Envs()...)
				sort.Strings(envs)
				return names(envs), nil
			}},
		list("file_list", "files", func(env string) any { return names(files.List(env)) }),
		list("dir_list", "folders", func(env string) any { return names(files.Dirs(env)) }),
		list("empty_dir_list", "empty folders", func(env string) any { return names(files.EmptyDirs(env)) }),
		list("symlink_list", "links", func(env string) any { return files.Links(env) }),
		{Name: "fileserver.update", Params: []function.Param{function.Opt("backend", nil)}, VarKwargs: true, Doc: "Look for changed files now.\n\nExample:\n\n    salt-run fileserver.update",
			Run: func(ctx context.Context, c *Call) (any, error) {
				if err := rootsOnly(c); err != nil {
					return nil, err
				}
				return true, files.Update(ctx)
			}},
		{Name: "fileserver.clear_file_list_cache", Params: []function.Param{function.Opt("saltenv", nil), function.Opt("backend", nil)},
			Doc: "Forget the lists of files; the next question makes them anew.\n\nExample:\n\n    salt-run fileserver.clear_file_list_cache saltenv=base",
			Run: func(_ context.Context, c *Call) (any, error) {
				if err := rootsOnly(c); err != nil {
					return nil, err
				}
				cleared := files.ClearListCache(c.Text("saltenv"))
				if len(cleared) == 0 {
					return value.Map{}, nil
				}
				return value.Map{{Key: "roots", Value: names(cleared)}}, nil
			}},
		{Name: "fileserver.clear_cache", Params: []function.Param{function.Opt("backend", nil)}, Doc: "Only back ends with remotes have caches; roots has none.\n\nExample:\n\n    salt-run fileserver.clear_cache",
			Run: func(_ context.Context, c *Call) (any, error) { return "No cache was cleared", rootsOnly(c) }},
		locks("clear_lock", "No locks were removed"), locks("lock", "No locks were set"),
	}
}

// rootsOnly refuses other back ends by name.
func rootsOnly(c *Call) error {
	var asked []any
	switch v := c.Arg("backend").(type) {
	case nil:
		return nil
	case []any:
		asked = v
	default:
		asked = []any{v}
	}
	for _, b := range asked {
		if b != "roots" {
			return fmt.Errorf("the file server back end %v is not here; only roots is", b)
		}
	}
	return nil
}
