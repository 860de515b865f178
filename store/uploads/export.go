package uploads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"clustermaster/wire"
)

// Export writes a file below dir and returns its path. It writes a temporary file and renames it,
// so that readers never see half a file.
func (f *Files) Export(ctx context.Context, dir, id, path string) (string, error) {
	if !wire.ValidID(id) || !filepath.IsLocal(path) {
		return "", fmt.Errorf("%s of %s is not a path below a minion's folder", path, id)
	}
	full := exported(dir, id, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(filepath.Dir(full), ".pushed-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	if err := f.WriteTo(ctx, id, path, tmp); err != nil {
		tmp.Close()
		return "", err
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Close()); err != nil {
		return "", err
	}
	return full, os.Rename(tmp.Name(), full)
}

// exported returns the path of a minion's file below dir, as Salt has it.
func exported(dir, id, path string) string { return filepath.Join(dir, id, "files", path) }
