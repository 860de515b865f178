package diskfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Private is a file system whose new files are their owner's alone: Pebble asks for 0666, and
// returns, grains and pillars are nobody else's, also where the folder is copied.
type Private struct{ vfs.FS }

// Create implements vfs.FS.
func (p Private) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return private(name)(p.FS.Create(name, category))
}

// OpenReadWrite implements vfs.FS; it makes the file where there is none.
func (p Private) OpenReadWrite(name string, category vfs.DiskWriteCategory,
	opts ...vfs.OpenOption) (vfs.File, error) {
	return private(name)(p.FS.OpenReadWrite(name, category, opts...))
}

// Lock implements vfs.FS; it makes the file where there is none.
func (p Private) Lock(name string) (io.Closer, error) {
	c, err := p.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// private takes the result of what made a file.
func private(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(name, 0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

// MakePrivate takes the files of a store that was written before Private. There may be no store
// yet.
func MakePrivate(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep others out of ring store %s: %w", dir, err)
	}
	return nil
}
