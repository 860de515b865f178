package statesync

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// peculiarity describes an entry beyond path, kind, mode and contents.
type peculiarity struct {
	mount bool     // it is a mount point: it can be neither replaced nor removed
	notes []string // what the other masters don't get of it
}

// peculiar finds the properties of an entry that a manifest does not hold.
func (r *rootDir) peculiar(path string) (peculiarity, error) {
	var p peculiarity
	at, name, err := r.parent(path)
	if err != nil {
		return p, r.wrap("stat", path, err)
	}
	var st unix.Statx_t
	err = unix.Statx(at, name, unix.AT_SYMLINK_NOFOLLOW,
		unix.STATX_MODE|unix.STATX_TYPE|unix.STATX_NLINK, &st)
	if errors.Is(err, unix.ENOSYS) {
		return p, nil // before Linux 4.11
	}
	if err != nil {
		return p, r.wrap("stat", path, err)
	}
	p.mount = st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFDIR || p.mount {
		return p, nil
	}
	if special := st.Mode & (unix.S_ISUID | unix.S_ISGID | unix.S_ISVTX); special != 0 {
		p.notes = append(p.notes, fmt.Sprintf("its mode %04o is synced as %04o", st.Mode&0o7777,
			st.Mode&modeBits))
	}
	if kind == unix.S_IFREG && st.Nlink > 1 {
		p.notes = append(p.notes,
			fmt.Sprintf("one of %d hard links; other masters get a file of its own", st.Nlink))
	}
	if names := attributes(fmt.Sprintf("/proc/self/fd/%d/%s", at, name)); len(names) > 0 {
		p.notes = append(p.notes, "its extended attributes are not synced: "+
			strings.Join(names, ", "))
	}
	return p, nil
}

// attributes lists the extended attributes of an entry, except labels that the machine itself sets.
func attributes(path string) []string {
	var buf [4096]byte
	n, err := unix.Llistxattr(path, buf[:])
	if err != nil || n <= 0 {
		return nil // none, not supported, or too many to name
	}
	var out []string
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if name != "security.selinux" && name != "security.ima" && name != "security.evm" {
			out = append(out, name)
		}
	}
	return out
}
