package runner

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// PushedFile is a file that a minion pushed with cp.push.
type PushedFile struct {
	ID, Path string
	Size     int64
	At       string // when it arrived
}

// PushedFiles are the files that minions pushed.
type PushedFiles interface {
	List(ctx context.Context) (files []PushedFile, incomplete string, err error)
	Read(ctx context.Context, id, path string, to *bytes.Buffer) error
	// Export writes a file below cachedir/minions of this master, where Salt keeps pushed files,
	// and returns its path.
	Export(ctx context.Context, id, path string) (string, error)
	Delete(ctx context.Context, id, path string) error
}

// Pushed is the family pushed.
func Pushed(files PushedFiles, targets Resolver) []Function {
	of := func(ctx context.Context, c *Call) ([]PushedFile, error) {
		wanted := map[string]bool{}
		if err := eachTarget(ctx, c, targets, c.Arg("tgt"), c.Text("tgt_type"),
			func(id string) error { wanted[id] = true; return nil }); err != nil {
			return nil, err
		}
		all, incomplete, err := files.List(ctx)
		if incomplete != "" {
			c.Warn(incomplete + ": files may be missing here")
		}
		all = slices.DeleteFunc(all, func(f PushedFile) bool { return !wanted[f.ID] })
		slices.SortFunc(all, func(a, b PushedFile) int {
			return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Path, b.Path))
		})
		return all, err
	}
	params := []function.Param{function.Opt("tgt", "*"), function.Opt("tgt_type", "glob")}
	one := []function.Param{function.Need("id"), function.Need("path")}
	clean := func(c *Call) string { return strings.TrimPrefix(c.Text("path"), "/") }
	return []Function{
		{Name: "pushed.list", Params: params,
			Doc: `List the files that minions pushed with cp.push.

Example:

    salt-run pushed.list 'web*'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				list, err := of(ctx, c)
				out := value.Map{}
				var its value.Map // the files of one minion: the list is sorted
				for i, f := range list {
					its = append(its, value.Pair{Key: f.Path, Value: value.Map{
						{Key: "size", Value: f.Size}, {Key: "pushed", Value: f.At}}})
					if i+1 == len(list) || list[i+1].ID != f.ID {
						out, its = append(out, value.Pair{Key: f.ID, Value: its}), nil
					}
				}
				return out, err
			}},
		{Name: "pushed.read", Params: one,
			Doc: `Show a pushed file.

Example:

    salt-run pushed.read web1 etc/hosts`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				var b bytes.Buffer
				if err := files.Read(ctx, c.Text("id"), clean(c), &b); err != nil {
					return nil, err
				}
				if utf8.Valid(b.Bytes()) {
					return b.String(), nil
				}
				return b.Bytes(), nil
			}},
		{Name: "pushed.export", Params: params,
			Doc: `Write pushed files below cachedir/minions of this master, where Salt keeps them, and list them.

Example:

    salt-run pushed.export 'web*'`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				list, err := of(ctx, c)
				if err != nil {
					return nil, err
				}
				out := []any{}
				for _, f := range list {
					path, err := files.Export(ctx, f.ID, f.Path)
					if err != nil {
						return nil, fmt.Errorf("export %s of %s: %w", f.Path, f.ID, err)
					}
					out = append(out, path)
				}
				return out, nil
			}},
		{Name: "pushed.delete", Params: one,
			Doc: `Remove a pushed file from all masters.

Example:

    salt-run pushed.delete web1 etc/hosts`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				return true, files.Delete(ctx, c.Text("id"), clean(c))
			}},
	}
}
