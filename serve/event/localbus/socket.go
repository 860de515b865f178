package localbus

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"clustermaster/serve/unixsock"
)

// maxConnections bounds the connections of each socket.
const maxConnections = 256

// socket is a bound socket with its connections.
type socket struct {
	path  string
	ln    *net.UnixListener
	conns connections
}

// bind makes a socket that only root and the user of this process can reach.
func bind(path string) (*socket, error) {
	ln, err := unixsock.Listen(path)
	if err != nil {
		return nil, err
	}
	return &socket{path: path, ln: ln,
		conns: connections{open: make(map[*net.UnixConn]struct{})}}, nil
}

// close closes the socket and its connections and removes its file.
func (k *socket) close() {
	k.ln.Close()
	k.conns.end()
}

// serve passes each connection of root and of the master's user to handle, in its own goroutine,
// until the socket is closed.
func (k *socket) serve(ctx context.Context, s *Server,
	handle func(conn *net.UnixConn, pid int32)) error {
	for {
		conn, err := k.ln.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			s.log.Warn("accept a local process", "path", k.path, "err", err)
			select {
			case <-time.After(100 * time.Millisecond): // probably out of file descriptors
				continue
			case <-ctx.Done():
				return nil
			}
		}
		cred, err := unixsock.Peer(conn)
		why := ""
		switch {
		case err != nil || cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()):
			why = whyUser
		case !k.conns.enter(conn):
			why = whyMany
		}
		if why != "" {
			s.metrics.refused.WithLabelValues(why).Inc()
			s.log.Warn("a local process was refused on the bus", "path", k.path, "why", why,
				"err", err)
			conn.Close()
			continue
		}
		go func() {
			defer k.conns.leave(conn)
			handle(conn, cred.Pid)
		}()
	}
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
