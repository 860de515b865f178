package statesync

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// rootDir works below one folder and never follows a link: it opens every folder on the way from
// its parent and refuses links. Use it from one goroutine.
type rootDir struct {
	path string
	fd   int
	dev  uint64 // of the file system that the folder is on

	last   string // the folder of lastFD
	lastFD int    // -1: none
}

// openDir opens the folder at an absolute path. The configuration names that path, so openDir
// follows links in it.
func openDir(path string) (*rootDir, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd) // only opened
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return &rootDir{path: path, fd: fd, dev: uint64(st.Dev), lastFD: -1}, //nolint:unconvert // by CPU
		nil
}

// sub opens a folder below r as a rootDir.
func (r *rootDir) sub(path string) (*rootDir, error) {
	fd, err := r.openAt(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &rootDir{path: r.path + "/" + path, fd: fd, dev: r.dev, lastFD: -1}, nil
}

func (r *rootDir) Close() {
	r.forget()
	_ = unix.Close(r.fd) // only read from
}

// forget closes the cached folder: once a folder was made, moved or removed, the path may mean
// another one.
func (r *rootDir) forget() {
	if r.lastFD >= 0 {
		_ = unix.Close(r.lastFD) // only read from
	}
	r.last, r.lastFD = "", -1
}

func (r *rootDir) wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: r.path + "/" + path, Err: err}
}

// parent opens the folder that contains path. The descriptor is valid until the next call.
func (r *rootDir) parent(path string) (fd int, name string, err error) {
	dir := parentOf(path)
	name = path[strings.LastIndexByte(path, '/')+1:]
	if err := checkName(name); err != nil {
		return -1, "", err
	}
	if dir == "" {
		return r.fd, name, nil
	}
	if r.lastFD >= 0 && r.last == dir {
		return r.lastFD, name, nil
	}
	at := r.fd
	for part := range strings.SplitSeq(dir, "/") {
		next := -1
		err := checkName(part)
		if err == nil {
			next, err = unix.Openat(at, part,
				unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
		if at != r.fd {
			_ = unix.Close(at) // only read from
		}
		if err != nil {
			return -1, "", err
		}
		at = next
	}
	r.forget()
	r.last, r.lastFD = dir, at
	return at, name, nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." {
		return unix.EINVAL
	}
	return nil
}

func (r *rootDir) openAt(path string, flags int, mode uint32) (int, error) {
	at, name, err := r.parent(path)
	if err == nil {
		at, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	}
	return at, r.wrap("open", path, err)
}

// open opens a regular file for reading. It refuses anything else, because a pipe would block.
func (r *rootDir) open(path string) (*os.File, error) {
	fd, err := r.openAt(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, r.wrap("open", path, errors.Join(err, unix.EINVAL))
	}
	return os.NewFile(uintptr(fd), r.path+"/"+path), nil
}

func (r *rootDir) create(path string) (*os.File, error) {
	fd, err := r.openAt(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), r.path+"/"+path), nil
}

// stat holds an entry's metadata.
type stat struct {
	kind         Kind
	mode         uint32
	size         int64
	dev, ino     uint64
	mtime, ctime int64 // nanoseconds since 1970
}

func statusOf(st *unix.Stat_t) stat {
	s := stat{
		mode: st.Mode & modeBits, size: st.Size, dev: uint64(st.Dev), //nolint:unconvert // by CPU
		ino:   st.Ino,
		mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), kind: other,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.kind = File
	case unix.S_IFDIR:
		s.kind = Dir
	case unix.S_IFLNK:
		s.kind = Link
	}
	return s
}

func statFile(f *os.File) (stat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stat{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return statusOf(&st), nil
}

func (r *rootDir) lstat(path string) (stat, error) {
	var st unix.Stat_t
	at, name, err := r.parent(path)
	if err == nil {
		err = unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return stat{}, r.wrap("stat", path, err)
	}
	return statusOf(&st), nil
}

// names lists a folder, sorted; the empty path means r itself.
func (r *rootDir) names(path string) ([]string, error) {
	var fd int
	var err error
	if path == "" {
		fd, err = unix.Openat(r.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		err = r.wrap("open", path, err)
	} else {
		fd, err = r.openAt(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), r.path+"/"+path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (r *rootDir) readlink(path string) (string, error) {
	at, name, err := r.parent(path)
	if err != nil {
		return "", r.wrap("readlink", path, err)
	}
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(at, name, buf)
	if err != nil {
		return "", r.wrap("readlink", path, err)
	}
	return string(buf[:n]), nil
}

func (r *rootDir) mkdir(path string, mode uint32) error {
	at, name, err := r.parent(path)
	if err == nil {
		err = unix.Mkdirat(at, name, mode)
	}
	return r.wrap("mkdir", path, err)
}

// mkdirAll makes a folder and its parents. Existing folders are no error.
func (r *rootDir) mkdirAll(path string, mode uint32) error {
	for i := range len(path) + 1 {
		if i < len(path) && path[i] != '/' || i == 0 {
			continue
		}
		if err := r.mkdir(path[:i], mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (r *rootDir) symlink(target, path string) error {
	at, name, err := r.parent(path)
	if err == nil {
		err = unix.Symlinkat(target, at, name)
	}
	return r.wrap("symlink", path, err)
}

func (r *rootDir) chmod(path string, mode uint32) error {
	fd, err := r.openAt(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	err = unix.Fchmod(fd, mode)
	_ = unix.Close(fd)
	return r.wrap("chmod", path, err)
}

func (r *rootDir) unlink(path string) error {
	at, name, err := r.parent(path)
	if err == nil {
		err = unix.Unlinkat(at, name, 0)
	}
	return r.wrap("remove", path, err)
}

func (r *rootDir) rmdir(path string) error {
	at, name, err := r.parent(path)
	if err == nil {
		err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}
	r.forget()
	return r.wrap("remove", path, err)
}

// moveTo renames an entry of r to one of o. It replaces a file.
func (r *rootDir) moveTo(path string, o *rootDir, to string) error {
	return r.pair("rename", path, o, to, func(from int, name string, at int, as string) error {
		return unix.Renameat(from, name, at, as)
	})
}

// linkTo gives a file of r a second name in o.
func (r *rootDir) linkTo(path string, o *rootDir, to string) error {
	return r.pair("link", path, o, to, func(from int, name string, at int, as string) error {
		return unix.Linkat(from, name, at, as, 0)
	})
}

func (r *rootDir) pair(op, path string, o *rootDir, to string,
	f func(from int, name string, at int, as string) error) error {
	if o == r {
		return fmt.Errorf("%s %s: both ends in one rootDir", op, path)
	}
	from, name, err := r.parent(path)
	if err != nil {
		return r.wrap(op, path, err)
	}
	at, as, err := o.parent(to)
	if err != nil {
		return o.wrap(op, to, err)
	}
	return r.wrap(op, path, f(from, name, at, as))
}

// removeAll removes a file, or a folder and everything in it.
func (r *rootDir) removeAll(path string) error {
	st, err := r.lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.kind != Dir {
		return r.unlink(path)
	}
	names, err := r.names(path)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := r.removeAll(path + "/" + n); err != nil {
			return err
		}
	}
	return r.rmdir(path)
}

// flush puts everything written to r's file system on stable storage.
func (r *rootDir) flush() error { return r.wrap("sync", "", unix.Syncfs(r.fd)) }

// room returns how many bytes this process may still write to a folder's file system.
func room(path string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return st.Bavail * uint64(st.Bsize), nil
}
