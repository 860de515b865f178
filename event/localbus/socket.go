package localbus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxConnections bounds those of each socket.
const maxConnections = 256

// maxPath is what fits a socket's address with its ending zero.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// socket is a bound socket with its connections.
type socket struct {
	path  string
	ln    *net.UnixListener
	conns connections
}

// bind makes a socket that only root and the user of this process reach.
func bind(path string) (*socket, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: a socket's path has at most %d bytes, this one %d; set a shorter sock_dir", path, maxPath, len(path))
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: another salt-master answers there; stop it or set another sock_dir", path)
	}
	switch old, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("replace stale socket: %w", err)
	case old.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %s: there is something that is no socket; move it away", path)
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
	return &socket{path: path, ln: ln, conns: connections{open: make(map[*net.UnixConn]struct{})}}, nil
}

// close ends the socket and its connections; the file goes with it.
func (k *socket) close() {
	k.ln.Close()
	k.conns.end()
}

// serve hands each connection of root and the master's user to handle, in a goroutine of its own, until the socket is closed.
func (k *socket) serve(ctx context.Context, s *Server, handle func(conn *net.UnixConn, pid int32)) error {
	for {
		conn, err := k.ln.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			s.log.Warn("accept a local process", "path", k.path, "err", err)
			select {
			case <-time.After(100 * time.Millisecond): // out of files, most likely
				continue
			case <-ctx.Done():
				return nil
			}
		}
		cred, err := credentials(conn)
		why := ""
		switch {
		case err != nil || cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()):
			why = whyUser
		case !k.conns.enter(conn):
			why = whyMany
		}
		if why != "" {
			s.metrics.refused.WithLabelValues(why).Inc()
			s.log.Warn("a local process was not let onto the bus", "path", k.path, "why", why, "err", err)
			conn.Close()
			continue
		}
		go func() {
			defer k.conns.leave(conn)
			handle(conn, cred.Pid)
		}()
	}
}

// credentials asks the kernel who connected.
func credentials(conn *net.UnixConn) (*unix.Ucred, error) {
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

// connections are those of one socket, to be closed at the end.
type connections struct {
	mu    sync.Mutex // guards what follows
	open  map[*net.UnixConn]struct{}
	ended bool
	wg    sync.WaitGroup
}

// enter reports whether there is room for a connection.
func (c *connections) enter(conn *net.UnixConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || len(c.open) >= maxConnections {
		return false
	}
	c.open[conn] = struct{}{}
	c.wg.Add(1)
	return true
}

func (c *connections) leave(conn *net.UnixConn) {
	c.mu.Lock()
	delete(c.open, conn)
	c.mu.Unlock()
	conn.Close()
	c.wg.Done()
}

// end closes them all and waits for those who serve them.
func (c *connections) end() {
	c.mu.Lock()
	c.ended = true
	for conn := range c.open {
		conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}
