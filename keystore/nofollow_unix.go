//go:build unix

package keystore

import (
	"io/fs"
	"os"
	"syscall"
)

// noFollow makes open refuse a symlink. It does not block, so that a pipe in place of a key can't
// hang the master.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// OwnAs gives a file the owner of another one, if this process is root: other users' files are
// their own anyway.
func OwnAs(path string, info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}
