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

// Private is a file system that lets only the owner read and write new files. Pebble asks for 0666,
// but other users must not read returns, grains and pillars, even in a copy of the folder.
type Private struct{ vfs.FS }

// Create implements vfs.FS.
func (p Private) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return private(name)(p.FS.Create(name, category))
}

// OpenReadWrite implements vfs.FS; it makes the file if it does not exist.
func (p Private) OpenReadWrite(name string, category vfs.DiskWriteCategory,
	opts ...vfs.OpenOption) (vfs.File, error) {
	return private(name)(p.FS.OpenReadWrite(name, category, opts...))
}

// Lock implements vfs.FS; it makes the file if it does not exist.
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

// private sets the mode of a file that was just made.
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

// MakePrivate sets the modes of the files of a store that was written before Private existed. The
// store may not exist yet.
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
