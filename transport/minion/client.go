package minion

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-zeromq/zmq4"
)

// ErrClosed: the client was closed, or the server closed its connection.
var ErrClosed = errors.New("connection closed")

// ClientOptions are the settings of the client, which simulates minions.
type ClientOptions struct {
	Identity  string        // of the READY command; "" as 3007 and 3008 send
	LocalAddr net.Addr      // source address, nil for any
	Timeout   time.Duration // connect and hand-shake (default 10 s)
	MaxFrame  int64         // largest message taken (default 128 MiB)
	// Control, if not nil, sets the socket up before it connects; see net.Dialer.
	Control func(network, address string, c syscall.RawConn) error
}

func dial(ctx context.Context, addr string, own zmq4.SocketType, o *ClientOptions,
	peers ...zmq4.SocketType) (*link, error) {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxFrame = cmp.Or(o.MaxFrame, 128<<20)
	deadline := time.Now().Add(o.Timeout)
	dialer := net.Dialer{Deadline: deadline, LocalAddr: o.LocalAddr, Control: o.Control}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	l := &link{conn: conn, wait: o.Timeout, r: bufio.NewReaderSize(conn, 512)}
	if err = conn.SetDeadline(deadline); err == nil {
		l.minor, err = shake(conn, l.r, own, o.Identity, false, peers...)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet %s: %w", addr, err)
	}
	return l, nil
}

// message reads one message and answers PINGs that come before it.
func (l *link) message(maxFrame int64) (message [][]byte, err error) {
	room := maxFrame
	for {
		flags, err := l.r.ReadByte()
		if err != nil {
			return nil, err
		}
		h, err := readHeader(l.r, flags, room)
		if err != nil {
			return nil, err
		}
		body, err := readBody(l.r, h.size, func(int64) error { return nil })
		if err != nil {
			return nil, err
		}
		if h.command {
			name, data, err := splitCommand(body)
			if err == nil {
				err = l.command(name, data)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		room -= h.size
		if message = append(message, body); len(message) > maxFrames {
			return nil, ErrTooLarge
		}
		if !h.more {
			return message, nil
		}
	}
}

// RequestClient is a REQ socket with one connection. It answers PINGs also while no request is
// pending.
type RequestClient struct {
	l       *link
	turn    sync.Mutex // held from request to reply
	waiting atomic.Bool
	replies chan []byte
	ended   chan struct{}
	err     error // why it ended; read it only after ended is closed
}

// DialRequests connects to a request endpoint.
func DialRequests(ctx context.Context, addr string, o ClientOptions) (*RequestClient, error) {
	l, err := dial(ctx, addr, zmq4.Req, &o, zmq4.Router, zmq4.Rep)
	if err != nil {
		return nil, err
	}
	c := &RequestClient{l: l, replies: make(chan []byte, 1), ended: make(chan struct{})}
	go c.read(o.MaxFrame)
	return c, nil
}

func (c *RequestClient) read(maxFrame int64) {
	defer close(c.ended)
	defer c.l.conn.Close()
	for {
		message, err := c.l.message(maxFrame)
		if err != nil {
			c.err = err
			return
		}
		if len(message) != 2 || len(message[0]) != 0 || !c.waiting.CompareAndSwap(true, false) {
			c.err = fmt.Errorf("reply of %d frames: %w", len(message), ErrUnexpected)
			return
		}
		c.replies <- message[1]
	}
}

// Do sends a request and waits for its reply. If ctx ends first it closes the client, because the
// next request could mistake a late reply for its own.
func (c *RequestClient) Do(ctx context.Context, payload []byte) ([]byte, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.waiting.Store(true)
	head := appendHeader([]byte{flagMore, 0}, 0, len(payload))
	if err := c.l.send(head, payload); err != nil {
		c.Close()
		return nil, fmt.Errorf("send request: %w", err)
	}
	select {
	case reply := <-c.replies:
		return reply, nil
	case <-c.ended:
		select {
		case reply := <-c.replies: // it came just before the end
			return reply, nil
		default:
		}
		return nil, fmt.Errorf("await reply: %w: %w", ErrClosed, c.err)
	case <-ctx.Done():
		c.Close()
		return nil, fmt.Errorf("await reply: %w", ctx.Err())
	}
}

// Ended is closed when the connection has ended.
func (c *RequestClient) Ended() <-chan struct{} { return c.ended }

// Close ends the connection and waits for its reader.
func (c *RequestClient) Close() error {
	err := c.l.conn.Close()
	<-c.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// SubscribeClient is a SUB socket with one connection.
type SubscribeClient struct {
	l         *link
	maxFrame  int64
	confirmed chan struct{}
}

// DialSubscribe connects to a publish endpoint and subscribes to topics; "" means all. After the
// subscriptions it sends a PING, which a real minion doesn't send: see Confirmed.
func DialSubscribe(ctx context.Context, addr string, topics []string,
	o ClientOptions) (*SubscribeClient, error) {
	l, err := dial(ctx, addr, zmq4.Sub, &o, zmq4.Pub, zmq4.XPub)
	if err != nil {
		return nil, err
	}
	var subscriptions []byte
	for _, t := range topics {
		if l.minor >= 1 {
			subscriptions = appendCommand(subscriptions, cmdSubscribe, []byte(t)...)
		} else {
			subscriptions = appendHeader(subscriptions, 0, 1+len(t))
			subscriptions = append(append(subscriptions, 1), t...)
		}
	}
	c := &SubscribeClient{l: l, maxFrame: o.MaxFrame, confirmed: make(chan struct{})}
	if l.minor >= 1 {
		l.pong = sync.OnceFunc(func() { close(c.confirmed) })
		subscriptions = append(subscriptions, pingFrame...)
	} else {
		close(c.confirmed)
	}
	if err := l.send(subscriptions); err != nil {
		l.conn.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return c, nil
}

// Confirmed is closed, while Next is waiting, when the subscriptions are in force at a PubServer,
// which handles the messages of a connection in order. A peer without PING confirms nothing, and
// the channel is closed from the start.
func (c *SubscribeClient) Confirmed() <-chan struct{} { return c.confirmed }

// Next waits for a publication and returns its frames. Only Close ends the wait.
func (c *SubscribeClient) Next() ([][]byte, error) {
	message, err := c.l.message(c.maxFrame)
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("await publication: %w", ErrClosed)
	}
	return message, err
}

// LocalAddr is the source address of the connection.
func (c *SubscribeClient) LocalAddr() net.Addr { return c.l.conn.LocalAddr() }

// SyscallConn returns the socket for settings; see net.TCPConn.
func (c *SubscribeClient) SyscallConn() (syscall.RawConn, error) {
	s, ok := c.l.conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("socket of %T: %w", c.l.conn, errors.ErrUnsupported)
	}
	return s.SyscallConn()
}

// Close ends the connection; Next returns ErrClosed.
func (c *SubscribeClient) Close() error { return c.l.conn.Close() }
