// Package unixsock binds the sockets below sock_dir and asks the kernel who is at their other ends.
//
// Lives here: what is replaced at a socket's path and what is refused, the mode with which it is
// born, SO_PEERCRED. Does not: decide who may come in, or serve anybody.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxPath is what fits a socket's address with its ending zero.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// Listen binds a socket that only root and the user of this process reach. One that nobody listens
// on any more is replaced; a live one, a file that is none, and a path that is too long for a
// socket are errors.
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
	ln, err := (&net.ListenConfig{Control: private}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for local processes: %w", err)
	}
	return ln.(*net.UnixListener), nil
}

// Closed reports whether this process lacks the rights to connect to a socket.
func Closed(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, fs.ErrPermission)
}

// private lets nobody else connect, from the bind on: bind gives the path the mode of the socket
// (unix_bind of Linux). The process's umask would also hold for files of other goroutines.
func private(_, _ string, c syscall.RawConn) error {
	var modeErr error
	if err := c.Control(func(fd uintptr) { modeErr = unix.Fchmod(int(fd), 0o600) }); err != nil {
		return err
	}
	return modeErr
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
