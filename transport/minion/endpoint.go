package minion

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
)

var (
	errSlow     = errors.New("no complete hand-shake in time")
	errSilent   = errors.New("peer does not answer PING")
	errStopping = errors.New("endpoint stops")
)

// endpoint is what the request and the publish side have in common: the accept loop,
// the bound on connections, the hand-shake and the way down.
type endpoint struct {
	lim   Limits
	log   *slog.Logger
	quiet *quietLog
	met   *metrics

	own    zmq4.SocketType
	peers  []zmq4.SocketType
	buffer int // bytes of read buffer per connection
	// talk serves one connection after its hand-shake, until it ends.
	talk func(ctx context.Context, l *link) error

	mu       sync.Mutex // guards links
	links    map[*link]struct{}
	stopping atomic.Bool
}

func newEndpoint(name string, lim Limits, log *slog.Logger, met *metrics) *endpoint {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "transport/minion", "endpoint", name)
	return &endpoint{lim: lim.withDefaults(), log: log, met: met,
		quiet: &quietLog{log: log, interval: 10 * time.Second}, links: make(map[*link]struct{})}
}

// link is one connection. It is known by itself: whatever identity the peer claims
// plays no part.
type link struct {
	conn  net.Conn
	r     *bufio.Reader
	peer  netip.AddrPort // behind a trusted balancer: as its PROXY header says
	minor byte           // ZMTP 3.minor, known after the hand-shake
	wait  time.Duration  // Limits.WriteTimeout
	pong  func()         // called for each PONG, nil for nothing; set before reading

	readBy   time.Time    // the read deadline in force; the reader's
	head     [11]byte     // for the header of a reply; the reader's
	handling atomic.Int64 // since when a handler runs without a PING, UnixNano; 0: none runs

	write   sync.Mutex // held while a frame or a group of frames is written; guards the next three
	writeBy time.Time  // the write deadline in force
	parts   [2][]byte  // memory for part
	part    net.Buffers
	heard   atomic.Int64
}

// serve accepts on ln until ctx ends, then stops: it closes ln, wakes every
// connection, gives them DrainTimeout and closes what is left. nil after ctx ended.
func (e *endpoint) serve(ctx context.Context, ln net.Listener) error {
	e.stopping.Store(false)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	closed := context.AfterFunc(ctx, func() { ln.Close() })
	defer closed()
	defer ln.Close()

	var all sync.WaitGroup
	err := e.accept(ctx, ln, func(conn net.Conn) {
		all.Go(func() { e.serveConn(work, conn) })
	})

	e.stopping.Store(true)
	e.each(func(l *link) { l.conn.SetReadDeadline(time.Unix(1, 0)) })
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	drained := time.NewTimer(e.lim.DrainTimeout)
	defer drained.Stop()
	select {
	case <-done:
	case <-drained.C:
		cancel()
		e.each(func(l *link) { l.conn.Close() })
		<-done
	}
	return err
}

// accept hands each connection to start. Errors that pass (too many open files) are
// waited out, up to a second between attempts.
func (e *endpoint) accept(ctx context.Context, ln net.Listener, start func(net.Conn)) error {
	var pause time.Duration
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept minions on %s: %w", ln.Addr(), err)
		case err != nil:
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			e.quiet.warn("accept minion", "err", err, "addr", ln.Addr().String())
			wait := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			wait.Stop()
		default:
			pause = 0
			e.met.accepted.Inc()
			start(conn)
		}
	}
}

func (e *endpoint) serveConn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	l := &link{conn: conn, wait: e.lim.WriteTimeout}
	if addr, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		l.peer = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	}
	if !e.track(l) {
		e.met.closed.WithLabelValues("full").Inc()
		e.quiet.warn("close minion connection: too many", "n", e.lim.MaxConns)
		return
	}
	err := e.shakeAndTalk(ctx, l)
	e.untrack(l)
	if e.stopping.Load() {
		err = errStopping
	}
	label, loud := reason(err)
	e.met.closed.WithLabelValues(label).Inc()
	if loud {
		e.quiet.warn("close minion connection", "addr", l.peer.String(), "reason", label, "err", err)
	}
}

func (e *endpoint) shakeAndTalk(ctx context.Context, l *link) error {
	if err := l.conn.SetDeadline(time.Now().Add(e.lim.HandshakeTimeout)); err != nil {
		return err
	}
	if tcp, ok := l.conn.(*net.TCPConn); ok {
		err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: e.lim.KeepAliveIdle,
			Interval: e.lim.KeepAliveInterval, Count: e.lim.KeepAliveCount})
		if err != nil {
			return err
		}
	}
	if err := e.shakeHands(l); errors.Is(err, os.ErrDeadlineExceeded) {
		return errSlow
	} else if err != nil {
		return err
	}
	l.heard.Store(time.Now().UnixNano())
	if err := l.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return e.talk(ctx, l)
}

// shakeHands learns who the peer is: its address, from a trusted balancer, and its side of the ZMTP hand-shake.
func (e *endpoint) shakeHands(l *link) error {
	l.r = bufio.NewReaderSize(l.conn, e.buffer)
	if len(e.lim.ProxyFrom) > 0 {
		peer, err := readProxy(l.r, l.peer, e.lim.ProxyFrom)
		if err != nil {
			return err
		}
		l.peer = peer
	}
	minor, err := shake(l.conn, l.r, e.own, "", true, e.peers...)
	l.minor = minor
	return err
}

func (e *endpoint) track(l *link) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.links) >= e.lim.MaxConns {
		return false
	}
	e.links[l] = struct{}{}
	e.met.connections.Inc()
	return true
}

func (e *endpoint) untrack(l *link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.links, l)
	e.met.connections.Dec()
}

func (e *endpoint) each(f func(*link)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.links {
		f(l)
	}
}

// send writes whole frames. No other frame gets in between; the deadline moves on
// with every maxWriteBytes that the peer takes. It consumes bufs.
func (l *link) send(bufs ...[]byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	for len(bufs) > 0 {
		l.part = l.parts[:0]
		for room := maxWriteBytes; room > 0 && len(bufs) > 0; {
			b := bufs[0]
			if len(b) <= room {
				bufs = bufs[1:]
			} else {
				b, bufs[0] = b[:room], b[room:]
			}
			room -= len(b)
			l.part = append(l.part, b)
		}
		if now := time.Now(); l.writeBy.Sub(now) < l.wait { // moved on by a quarter at a time: setting it is not free
			l.writeBy = now.Add(l.wait + l.wait/4)
			if err := l.conn.SetWriteDeadline(l.writeBy); err != nil {
				return err
			}
		}
		if _, err := l.part.WriteTo(l.conn); err != nil {
			return err
		}
	}
	return nil
}

// command takes a command that both endpoints know. Others are ErrUnexpected.
func (l *link) command(name string, data []byte) error {
	switch name {
	case cmdPing:
		answer, err := pong(data)
		if err != nil {
			return err
		}
		return l.send(answer)
	case cmdPong:
		if l.pong != nil {
			l.pong()
		}
		return nil
	case cmdError:
		return fmt.Errorf("peer sent ERROR %q: %w", data, ErrUnexpected)
	}
	return fmt.Errorf("command %q: %w", name, ErrUnexpected)
}
