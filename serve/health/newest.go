package health

import (
	"container/list"
	"net"
	"sync"
)

// newest is a listener that keeps at most so many connections open: one more closes the oldest. A
// probe takes milliseconds, so it gets through while strangers hold connections, and these can't
// take all files that the process may open.
type newest struct {
	net.Listener
	most int

	mu   sync.Mutex // guards open; no I/O under it
	open list.List  // of *newestConn, oldest first
}

// mostOpen is how many connections each port keeps.
const mostOpen = 128

func keepNewest(ln net.Listener) *newest { return &newest{Listener: ln, most: mostOpen} }

// Accept implements net.Listener.
func (l *newest) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &newestConn{Conn: raw, l: l}
	var oldest *newestConn
	l.mu.Lock()
	c.at = l.open.PushBack(c)
	if l.open.Len() > l.most {
		oldest = l.open.Front().Value.(*newestConn)
	}
	l.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return c, nil
}

type newestConn struct {
	net.Conn
	l  *newest
	at *list.Element
}

// Close implements net.Conn.
func (c *newestConn) Close() error {
	c.l.mu.Lock()
	c.l.open.Remove(c.at) // nothing the second time
	c.l.mu.Unlock()
	return c.Conn.Close()
}
