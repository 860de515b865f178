// Package durable replaces files so that a crash leaves the old or the new content.
//
// Lives here: one file as a whole, the entries of one folder.
// Does not: journals, stores of many files, who may read them (0600 always).
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// folder is what a file is replaced on: the machine's file system, or in tests one that loses what
// was not synced.
type folder interface {
	// create makes a new file in dir, of mode 0600, and returns its name.
	create(dir string) (f file, name string, err error)
	rename(from, to string) error
	link(from, to string) error
	remove(name string) error
	// sync puts the entries of dir on stable storage.
	sync(dir string) error
}

type file interface {
	io.WriteCloser
	Sync() error
}

// WriteFile replaces a file as a whole, with mode 0600, and puts it on stable
// storage: contents before the name, the folder's entry before it returns.
func WriteFile(path string, b []byte) error { return writeFile(machine{}, path, b) }

func writeFile(on folder, path string, b []byte) error {
	dir := filepath.Dir(path)
	name, err := writeBeside(on, dir, b)
	if err == nil {
		err = on.rename(name, path)
	}
	if err != nil {
		_ = on.remove(name) // "" does no harm; the error above says more
		return fmt.Errorf("write %s: %w", path, err)
	}
	return on.sync(dir)
}

// WriteNew makes a file, with mode 0600, and puts it on stable storage as WriteFile does. If there
// is one already, that one stays and the error is fs.ErrExist: of two that make it at the same time
// one has made it, whole.
func WriteNew(path string, b []byte) error { return writeNew(machine{}, path, b) }

func writeNew(on folder, path string, b []byte) error {
	dir := filepath.Dir(path)
	name, err := writeBeside(on, dir, b)
	if err == nil {
		err = on.link(name, path)
	}
	_ = on.remove(name) // it has its second name, or the error says more
	exists := errors.Is(err, fs.ErrExist)
	if err != nil && !exists {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := on.sync(dir); err != nil { // who made the other one may not have got that far
		return err
	}
	if exists {
		return fmt.Errorf("write %s: %w", path, fs.ErrExist)
	}
	return nil
}

// writeBeside writes b to a new file in dir and syncs its contents. It returns the file's name, ""
// if it made none. After an error the file may exist.
func writeBeside(on folder, dir string, b []byte) (name string, err error) {
	f, name, err := on.create(dir)
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	return name, errors.Join(err, f.Sync(), f.Close())
}

// TakesNothing reports whether a write failed because its disk takes no file: it is full, a quota
// is used up, or it is read-only.
func TakesNothing(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		errors.Is(err, syscall.EROFS)
}

// SyncDir puts the entries of a folder on stable storage.
func SyncDir(dir string) error { return machine{}.sync(dir) }

// machine is the file system of this machine.
type machine struct{}

func (machine) create(dir string) (file, string, error) {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return nil, "", err
	}
	return f, f.Name(), nil
}

func (machine) rename(from, to string) error { return os.Rename(from, to) }

func (machine) link(from, to string) error { return os.Link(from, to) }

func (machine) remove(name string) error { return os.Remove(name) }

func (machine) sync(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
