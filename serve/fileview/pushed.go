package fileview

import (
	"bytes"
	"context"
	"time"

	"clustermaster/salt/runner"
	"clustermaster/store/uploads"
)

// Pushed are the files that minions pushed.
type Pushed struct {
	Files *uploads.Files
	Dir   string // where files are exported to
}

var _ runner.PushedFiles = Pushed{}

// List implements runner.PushedFiles, as do the next ones.
func (p Pushed) List(ctx context.Context) ([]runner.PushedFile, string, error) {
	var out []runner.PushedFile
	cover, err := p.Files.List(ctx, func(f uploads.File) {
		out = append(out, runner.PushedFile{ID: f.ID, Path: f.Path, Size: f.Size,
			At: f.At.Format(time.RFC3339)})
	})
	incomplete := ""
	if !cover.Complete() {
		incomplete = cover.String()
	}
	return out, incomplete, err
}

func (p Pushed) Read(ctx context.Context, id, path string, to *bytes.Buffer) error {
	return p.Files.WriteTo(ctx, id, path, to)
}

func (p Pushed) Delete(ctx context.Context, id, path string) error {
	return p.Files.Delete(ctx, id, path)
}

func (p Pushed) Export(ctx context.Context, id, path string) (string, error) {
	return p.Files.Export(ctx, p.Dir, id, path)
}
