// Package unixsock binds the sockets below sock_dir and asks the kernel who is at their other ends.
//
// Lives here: what is replaced at a socket's path and what is refused, the mode with which it is
// born, SO_PEERCRED. Does not: decide who may come in, or serve anybody.
package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxPath is what fits a socket's address with its ending zero.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Listen binds a socket that only root and the user of this process reach. One that nobody listens
// on any more is replaced; a live one, a file that is none, and a path that is too long for a
// socket are errors. It sets the umask of the process for a moment: call it at the start.
func Listen(path string) (*net.UnixListener, error) {
	if len(path) > maxPath {
		return nil,
			fmt.Errorf("listen on %s: a socket's path has at most %d bytes, this one %d; set a shorter sock_dir", path, maxPath, len(path))
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil,
			fmt.Errorf("listen on %s: another salt-master answers there; stop it or set another sock_dir", path)
	}
	switch old, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("replace stale socket: %w", err)
	case old.Mode().Type() != fs.ModeSocket:
		return nil,
			fmt.Errorf("listen on %s: a file that is not a socket is in the way; move it", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replace stale socket: %w", err)
		}
	}
	mask := unix.Umask(0o177) // nobody else may connect between bind and chmod
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("listen for local processes: %w", err)
	}
	return ln, nil
}

// Peer asks the kernel who connected: the process that did, and its user then.
func Peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("read peer credentials: %w", err)
	}
	if credErr != nil {
		return nil, fmt.Errorf("read peer credentials: %w", credErr)
	}
	return cred, nil
}
