package operator

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// Bounds of open connections. Users other than root and the master's can't take all of them, and
// one user can't take those of the others.
const (
	maxConnections = 512
	maxOfUsers     = 256
	maxOfOneUser   = 32
)

// callerConn is an accepted connection with the caller at its other end.
type callerConn struct {
	*net.UnixConn
	caller Caller
	once   sync.Once
	free   func()
}

// Close frees the slot once, however often gRPC calls it.
func (c *callerConn) Close() error {
	c.once.Do(c.free)
	return c.UnixConn.Close()
}

// Read bounds the frames of users.
func (c *callerConn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	if a := c.caller.arriving; err == nil && a != nil {
		err = a.read(p[:n])
	}
	return n, err
}

// listener identifies callers and bounds the open connections: it waits when all are in use, and
// closes those beyond a user's bound. It accepts those of root and the master's user, and leaves
// those of other users to the listener users.
type listener struct {
	net.Listener
	m     *metrics
	slots chan struct{}
	done  chan struct{}
	open  perUser
	users handover
}

func listen(ln net.Listener, m *metrics) *listener {
	done := make(chan struct{})
	return &listener{Listener: ln, m: m, slots: make(chan struct{}, maxConnections),
		done: done, open: perUser{each: maxOfOneUser, all: maxOfUsers},
		users: handover{addr: ln.Addr(), conns: make(chan net.Conn), done: done}}
}

// handover is a listener of the connections that another listener hands over. It ends with that
// one.
type handover struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
}

func (h handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h handover) Addr() net.Addr { return h.addr }
func (h handover) Close() error   { return nil }

func (l *listener) Accept() (net.Conn, error) {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.done:
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		conn, err := l.admit(c)
		switch {
		case err != nil:
			c.Close()
			<-l.slots
		case conn.caller.owns():
			return conn, nil
		default:
			select {
			case l.users.conns <- conn:
			case <-l.done:
				conn.Close()
			}
		}
	}
}

var errTooMany = errors.New("too many connections of this user")

func (l *listener) admit(c net.Conn) (*callerConn, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("accept operator: %T is not a unix socket", c)
	}
	caller, err := callerAt(uc, l.m)
	if err != nil {
		return nil, err
	}
	if !caller.owns() && !l.open.enter(caller.UID) {
		l.m.refuse(whyConnections)
		return nil, errTooMany
	}
	l.m.connections.Inc()
	return &callerConn{UnixConn: uc, caller: caller, free: func() { l.leave(caller) }}, nil
}

func (l *listener) leave(c Caller) {
	<-l.slots
	l.m.connections.Dec()
	if !c.owns() {
		l.open.leave(c.UID)
	}
}

func (l *listener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return l.Listener.Close()
}
