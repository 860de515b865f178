package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"clustermaster/salt/runner"
	"clustermaster/store/uploads"
	"clustermaster/wire"
)

// pushedFiles are the files that minions pushed, for the runner family.
type pushedFiles struct{ r *rooms }

func (p pushedFiles) List(ctx context.Context) ([]runner.PushedFile, string, error) {
	var out []runner.PushedFile
	cover, err := p.r.pushed.List(ctx, func(f uploads.File) {
		out = append(out, runner.PushedFile{ID: f.ID, Path: f.Path, Size: f.Size, At: f.At.Format(time.RFC3339)})
	})
	incomplete := ""
	if !cover.Complete() {
		incomplete = cover.String()
	}
	return out, incomplete, err
}

func (p pushedFiles) Read(ctx context.Context, id, path string, to *bytes.Buffer) error {
	return p.r.pushed.WriteTo(ctx, id, path, to)
}

func (p pushedFiles) Delete(ctx context.Context, id, path string) error {
	return p.r.pushed.Delete(ctx, id, path)
}

// Export writes beside the place and renames, so that nobody reads half a file.
func (p pushedFiles) Export(ctx context.Context, id, path string) (string, error) {
	if !wire.ValidID(id) || !filepath.IsLocal(path) {
		return "", fmt.Errorf("%s of %s is no path below a minion's folder", path, id)
	}
	full := filepath.Join(p.r.opts.CacheDir, "minions", id, "files", path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(full), ".pushed-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	if err := p.r.pushed.WriteTo(ctx, id, path, f); err != nil {
		f.Close()
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return full, os.Rename(f.Name(), full)
}
