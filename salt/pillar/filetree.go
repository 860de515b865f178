package pillar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"clustermaster/salt/function"
	"clustermaster/salt/render"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/wire"
)

// Bounds of one tree.
const (
	maxTreeDepth   = 64
	maxTreeEntries = 100_000
)

// tree reads the folders of file_tree.
type tree struct {
	p           *compilation
	followLinks bool
	keepNewline any // a truth value, or a list of globs
	template    bool
	pipe        string
	entries     int
	bytes       int
}

// fileTree makes maps of the folders hosts/<id> and nodegroups/<name> below root_dir: a folder is a
// map, a file a value.
func fileTree(ctx context.Context, p *compilation, _ value.Map, a extArgs) (any, error) {
	given, err := a.bind(
		function.Opt("root_dir", nil), function.Opt("follow_dir_links", false),
		function.Opt("debug", false), function.Opt("keep_newline", false),
		function.Opt("render_default", nil), function.Opt("renderer_blacklist",
			nil), function.Opt("renderer_whitelist", nil), function.Opt("template", false))
	if err != nil {
		return nil, err
	}
	t := &tree{p: p, followLinks: value.Truth(given["follow_dir_links"]),
		keepNewline: given["keep_newline"], template: given["template"] == true,
		pipe: p.opts.Renderer}
	if pipe, ok := given["render_default"].(string); ok {
		t.pipe = pipe
	}
	root, _ := given["root_dir"].(string)
	if root == "" {
		p.log.Error("file_tree has no root_dir; it is left out")
		return nil, nil
	}
	switch t.keepNewline.(type) {
	case nil, bool, []any:
	default:
		p.log.Error("file_tree has a keep_newline that is neither true, false nor a list of globs; it is left out")
		return nil, nil
	}
	roots := []string{root}
	if !filepath.IsAbs(root) {
		env, ok := p.env(p.pillarenv)
		if !ok {
			p.log.Error("file_tree has a relative root_dir, which needs a pillarenv with pillar_roots; it is left out", "env", p.pillarenv)
			return nil, nil
		}
		roots = nil
		for _, r := range env.Roots {
			roots = append(roots, filepath.Join(r, root))
		}
	}
	out := value.Map{}
	for _, r := range roots {
		made, err := t.root(ctx, r)
		if err != nil {
			return nil, err
		}
		out = value.Recurse(out, made, false)
	}
	return out, nil
}

// root reads one root_dir: first the nodegroups of the minion, then the minion's own folder, which
// wins.
func (t *tree) root(ctx context.Context, root string) (value.Map, error) {
	if !isDir(root) {
		t.p.log.Error("file_tree's root_dir is not a folder; it is left out", "path", root)
		return nil, nil
	}
	out := value.Map{}
	if groups, err := os.ReadDir(filepath.Join(root, "nodegroups")); err == nil {
		for _, g := range groups {
			definition, ok := t.p.nodegroups().Get(g.Name())
			if !ok {
				continue
			}
			hit, err := t.p.inCompound(ctx, definition)
			if err != nil {
				return nil, err
			}
			if !hit {
				continue
			}
			made, err := t.dir(ctx, filepath.Join(root, "nodegroups", g.Name()), ".", nil)
			if err != nil {
				return nil, err
			}
			out = value.Recurse(out, made, false)
		}
	}
	own := filepath.Join(root, "hosts", t.p.req.ID)
	if !wire.ValidID(t.p.req.ID) || !isDir(own) {
		return out, nil
	}
	made, err := t.dir(ctx, own, ".", nil)
	if err != nil {
		return nil, err
	}
	return value.Recurse(out, made, false), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// dir reads one folder: first its folders, then its files. prefix is its path below the top, "."
// for the top itself.
func (t *tree) dir(ctx context.Context, dir, prefix string, above []os.FileInfo) (value.Map,
	error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	self, err := os.Stat(dir)
	if err != nil || len(above) > maxTreeDepth ||
		slices.ContainsFunc(above, func(a os.FileInfo) bool { return os.SameFile(a, self) }) {
		return value.Map{}, nil // a folder that can't be read, or contains itself, is empty
	}
	above = append(slices.Clip(above), self)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.p.log.Error("file_tree cannot read a folder", "path", dir, "err", err)
	}
	var folders, files []string
	for _, e := range entries {
		if t.entries++; t.entries > maxTreeEntries {
			return nil, fmt.Errorf("more than %d files and folders", maxTreeEntries)
		}
		if isDir(filepath.Join(dir, e.Name())) {
			folders = append(folders, e.Name())
		} else {
			files = append(files, e.Name())
		}
	}
	out := value.Map{}
	for _, name := range folders {
		inner := value.Map{}
		full := filepath.Join(dir, name)
		if info, err := os.Lstat(full); err == nil && (info.IsDir() || t.followLinks) {
			if inner, err = t.dir(ctx, full, filepath.Join(prefix, name), above); err != nil {
				return nil, err
			}
		}
		out = append(out, value.Pair{Key: name, Value: inner})
	}
	for _, name := range files {
		v, ok, err := t.file(ctx, filepath.Join(dir, name), prefix, name)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, value.Pair{Key: name, Value: v})
		}
	}
	return out, nil
}

// file reads one file. Its value is bytes, as in Salt, or the output of its template.
func (t *tree) file(ctx context.Context, path, prefix, name string) (any, bool, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		t.p.log.Error("file_tree has an entry that is not a regular file; it is left out",
			"path", path)
		return nil, false, nil
	}
	f, err := os.Open(path)
	if err != nil {
		t.p.log.Error("file_tree cannot read a file; it is left out", "path", path, "err", err)
		return nil, false, nil
	}
	defer f.Close()
	limit := t.p.opts.MaxSize - t.bytes
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", path, err)
	}
	if t.bytes += len(data); len(data) > limit {
		return nil, false, errors.New("more bytes than max_pillar_size allows")
	}
	if len(data) > 0 && data[len(data)-1] == '\n' && !t.keeps(prefix, name) {
		data = data[:len(data)-1]
	}
	if !t.template {
		return data, true, nil
	}
	v, err := t.p.deps.Renderer.Render(ctx, render.Source{Path: path, SaltEnv: "base", Data: data},
		t.pipe, t.p.context(nil), host{p: t.p, env: "base"})
	if err != nil {
		return nil, false, fmt.Errorf("render %s: %w", path, err)
	}
	return v, true, nil
}

// keeps reports whether to keep a file's last newline.
func (t *tree) keeps(prefix, name string) bool {
	switch v := t.keepNewline.(type) {
	case bool:
		return v
	case []any:
		full := prefix + "/" + name
		return slices.ContainsFunc(v, func(g any) bool {
			glob, _ := g.(string)
			return fnmatch.Match(glob, full)
		})
	}
	return false
}
