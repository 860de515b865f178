package modules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"clustermaster/store/smallfile"
	"clustermaster/value"
)

// maxInodes bounds the files that file.diskusage sums up.
const maxInodes = 1_000_000

// inodeFunctions are seek_read and the functions of file that read a path's
// data in the file system.
func inodeFunctions() []function {
	ofKind := func(name string, kind uint32) function {
		return function{name: "file." + name, params: []param{need("name")},
			run: func(_ context.Context, c *call) (any, error) {
				var st syscall.Stat_t
				err := syscall.Stat(expand(c.text("name")), &st)
				if errors.Is(err, syscall.ENOENT) {
					return false, nil
				}
				return st.Mode&syscall.S_IFMT == kind, err
			}}
	}
	return []function{
		ofKind("is_blkdev", syscall.S_IFBLK), ofKind("is_chrdev", syscall.S_IFCHR),
		ofKind("is_fifo", syscall.S_IFIFO),
		{name: "file.lstat", params: []param{need("path")},
			run: func(_ context.Context, c *call) (any,
				error) {
				return lstat(expand(c.text("path")))
			}},
		{name: "file.is_hardlink", params: []param{need("path")},
			run: func(_ context.Context, c *call) (any, error) {
				st, err := lstat(expand(c.text("path")))
				if err != nil || len(st) == 0 {
					return st, err
				}
				links, _ := st.Get("st_nlink")
				n, _ := number(links)
				return n > 1, nil
			}},
		{name: "file.statvfs", params: []param{need("path")}, run: statvfs},
		{name: "file.diskusage", params: []param{need("path")}, run: diskUsage},
		{name: "file.pardir", run: func(context.Context, *call) (any, error) { return "..", nil }},
		{name: "file.seek_read", params: []param{need("path"), need("size"), need("offset")},
			run: seekRead},
	}
}

// lstat returns the data of a path itself, or an empty map if it does not exist.
func lstat(p string) (value.Map, error) {
	if !filepath.IsAbs(p) {
		return nil, errors.New("Path to file must be absolute.")
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(p, &st); err != nil {
		return value.Map{}, nil // Salt's answer
	}
	return value.Map{
		{Key: "st_atime", Value: seconds(st.Atim)}, {Key: "st_ctime", Value: seconds(st.Ctim)},
		{Key: "st_gid", Value: int64(st.Gid)}, {Key: "st_mode", Value: int64(st.Mode)},
		{Key: "st_mtime", Value: seconds(st.Mtim)}, {Key: "st_nlink", Value: int64(st.Nlink)},
		{Key: "st_size", Value: st.Size},
		{Key: "st_uid", Value: int64(st.Uid)},
	}, nil
}

// validFlags is the bit of statfs that marks its flags as valid; statvfs of the C library removes
// it.
const validFlags = 0x20

func statvfs(_ context.Context, c *call) (any, error) {
	p := expand(c.text("path"))
	if !filepath.IsAbs(p) {
		return nil, errors.New("File path must be absolute.")
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(p, &st); err != nil {
		return nil, fmt.Errorf("Could not statvfs '%s'", p)
	}
	fragment := st.Frsize
	if fragment == 0 {
		fragment = st.Bsize
	}
	return value.Map{
		{Key: "f_bavail", Value: int64(st.Bavail)}, {Key: "f_bfree", Value: int64(st.Bfree)},
		{Key: "f_blocks", Value: int64(st.Blocks)}, {Key: "f_bsize", Value: st.Bsize},
		{Key: "f_favail", Value: int64(st.Ffree)}, {Key: "f_ffree", Value: int64(st.Ffree)},
		{Key: "f_files", Value: int64(st.Files)}, {Key: "f_flag", Value: st.Flags &^ validFlags},
		{Key: "f_frsize", Value: fragment}, {Key: "f_namemax", Value: st.Namelen},
	}, nil
}

// diskUsage sums up the sizes of the files below a folder. It counts a link to a file as the file,
// and each inode number once. For a file it returns the size.
func diskUsage(ctx context.Context, c *call) (any, error) {
	p := c.text("path")
	if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
		return info.Size(), nil
	}
	var total int64
	seen := make(map[uint64]bool)
	err := filepath.WalkDir(p+"/", func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || d.IsDir() {
			return nil // an unreadable file counts as nothing
		}
		var st syscall.Stat_t
		if err := syscall.Stat(p, &st); err != nil || st.Mode&syscall.S_IFMT == syscall.S_IFDIR ||
			seen[st.Ino] {
			return nil // as above
		}
		if len(seen) == maxInodes {
			return fmt.Errorf("more than %d files below %s", maxInodes, c.text("path"))
		}
		seen[st.Ino] = true
		total += st.Size
		return nil
	})
	return total, err
}

// seekRead reads part of a regular file.
func seekRead(_ context.Context, c *call) (any, error) {
	size, err := c.whole("size")
	if err != nil {
		return nil, err
	}
	offset, err := c.whole("offset")
	if err != nil {
		return nil, err
	}
	if size < 0 || offset < 0 || size > maxFile {
		return nil, fmt.Errorf("size %d and offset %d must be at least 0, size at most %d", size,
			offset, maxFile)
	}
	f, err := smallfile.Open(expand(c.text("path")))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, offset, size))
	return b, err
}
