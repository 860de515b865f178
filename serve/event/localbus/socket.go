package localbus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/serve/unixsock"
)

// maxConnections bounds the connections of each socket.
const maxConnections = 256

// socket is a bound socket with its connections.
type socket struct {
	s    *Server
	path string
	ln   *net.UnixListener
	file *os.File        // the same socket, to wait for connections without accepting them
	raw  syscall.RawConn // of file
	// enter takes a connection in, and returns what serves it. It does not block.
	enter func(conn *net.UnixConn, pid int32) (serve func())
	conns connections

	// held from when a connection is accepted until it has entered
	admitting sync.Mutex
}

// bind makes a socket that only root and the user of this process can reach.
func bind(s *Server, path string) (*socket, error) {
	ln, err := unixsock.Listen(path)
	if err != nil {
		return nil, err
	}
	file, err := ln.File()
	if err != nil {
		ln.Close()
		return nil, fmt.Errorf("listen for local processes: %w", err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		ln.Close()
		return nil, fmt.Errorf("listen for local processes: %w", err)
	}
	return &socket{s: s, path: path, ln: ln, file: file, raw: raw,
		conns: connections{open: make(map[*net.UnixConn]struct{})}}, nil
}

// close closes the socket and its connections and removes its file.
func (k *socket) close() {
	k.file.Close()
	k.ln.Close()
	k.conns.end()
}

// serve admits connections until the socket is closed.
func (k *socket) serve(ctx context.Context) error {
	for {
		var failed error
		err := k.raw.Read(func(fd uintptr) bool {
			failed = k.admit(int(fd))
			return failed != nil // else it waits for more
		})
		if err != nil || ctx.Err() != nil {
			return nil // closed
		}
		k.s.log.Warn("accept a local process", "path", k.path, "err", failed)
		select {
		case <-time.After(100 * time.Millisecond): // probably out of file descriptors
		case <-ctx.Done():
			return nil
		}
	}
}

// admitWaiting returns when each process that had connected before the call has entered.
func (k *socket) admitWaiting() {
	// errors are of a closed socket, or serve meets them too
	_ = k.raw.Control(func(fd uintptr) { _ = k.admit(int(fd)) })
}

// admit accepts all connections that wait and starts their goroutines.
func (k *socket) admit(fd int) error {
	k.admitting.Lock()
	defer k.admitting.Unlock()
	for {
		conn, err := accept(fd)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return err
		}
		go k.judge(conn)()
	}
}

// judge takes in a connection of root or of the master's user, and returns what to do with it.
func (k *socket) judge(conn *net.UnixConn) func() {
	cred, err := unixsock.Peer(conn)
	why := ""
	switch {
	case err != nil || cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()):
		why = whyUser
	case !k.conns.enter(conn):
		why = whyMany
	}
	if why != "" {
		return func() {
			k.s.metrics.refused.WithLabelValues(why).Inc()
			k.s.log.Warn("a local process was refused on the bus", "path", k.path, "why", why,
				"err", err)
			conn.Close()
		}
	}
	serve := k.enter(conn, cred.Pid)
	return func() {
		defer k.conns.leave(conn)
		serve()
	}
}

// accept takes one connection that waits at a socket; the error is EAGAIN if none does.
func accept(fd int) (*net.UnixConn, error) {
	got, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(got), "")
	defer f.Close()
	conn, err := net.FileConn(f) // with a descriptor of its own
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// connections are the open ones of one socket, for closing them at the end.
type connections struct {
	mu    sync.Mutex // guards the fields below
	open  map[*net.UnixConn]struct{}
	ended bool
	wg    sync.WaitGroup
}

// enter adds a connection, or reports false if there are too many.
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

// end closes them all and waits for their goroutines.
func (c *connections) end() {
	c.mu.Lock()
	c.ended = true
	for conn := range c.open {
		conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}
