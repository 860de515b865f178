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

// listener identifies callers and bounds the open connections: it waits when all are in use, and
// closes those beyond a user's bound.
type listener struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	users perUser
}

func listen(ln net.Listener) *listener {
	return &listener{Listener: ln, slots: make(chan struct{}, maxConnections),
		done: make(chan struct{}), users: perUser{each: maxOfOneUser, all: maxOfUsers}}
}

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
		if conn, err := l.admit(c); err == nil {
			return conn, nil
		}
		c.Close()
		<-l.slots
	}
}

var errTooMany = errors.New("too many connections of this user")

func (l *listener) admit(c net.Conn) (*callerConn, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("accept operator: %T is not a unix socket", c)
	}
	caller, err := callerAt(uc)
	if err != nil {
		return nil, err
	}
	if caller.owns() {
		return &callerConn{UnixConn: uc, caller: caller, free: func() { <-l.slots }}, nil
	}
	if !l.users.enter(caller.UID) {
		return nil, errTooMany
	}
	return &callerConn{UnixConn: uc, caller: caller, free: func() { l.leave(caller.UID) }}, nil
}

func (l *listener) leave(uid uint32) {
	<-l.slots
	l.users.leave(uid)
}

func (l *listener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return l.Listener.Close()
}
