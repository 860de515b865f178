package fileserver

import (
	"io/fs"
	"syscall"
)

// stat is Python's os.stat as a list of ten integers: mode, ino, dev, nlink, uid, gid, size, atime,
// mtime, ctime.
func stat(info fs.FileInfo) []any {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return []any{int64(0o100000 | uint32(info.Mode().Perm())), int64(0), int64(0), int64(1),
			int64(0), int64(0),
			info.Size(), info.ModTime().Unix(), info.ModTime().Unix(), info.ModTime().Unix()}
	}
	return []any{
		int64(st.Mode), uint64(st.Ino), uint64(st.Dev), uint64(st.Nlink), //nolint:unconvert // by CPU
		int64(st.Uid),
		int64(st.Gid), st.Size,
		st.Atim.Sec, st.Mtim.Sec, st.Ctim.Sec,
	}
}
