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

	"clustermaster/serve/seldom"
)

var (
	errSlow     = errors.New("no complete hand-shake in time")
	errSilent   = errors.New("peer does not answer PING")
	errStopping = errors.New("endpoint stops")
	errShare    = errors.New("too many connections from one address")
	errTrickle  = errors.New("request arrives too slowly")
)

// endpoint is the common part of the request and the publish side: the accept loop, the bound on
// connections, the hand-shake and the shutdown.
type endpoint struct {
	lim    Limits
	log    *slog.Logger
	met    *metrics
	seldom seldom.Lines[string] // by message

	own   zmq4.SocketType
	peers []zmq4.SocketType
	// how long a silent connection keeps its buffer and its grown stack
	linger time.Duration
	begin  func(l *link) session

	readers sync.Pool      // *bufio.Reader, of connections that are sending
	open    sync.WaitGroup // connections

	mu       sync.Mutex // guards links, sources
	links    map[*link]struct{}
	sources  map[source]int // number of connections per source
	stopping atomic.Bool
	stopped  chan struct{} // closed when stopping becomes true; serve makes it
}

func newEndpoint(name string, lim Limits, log *slog.Logger, met *metrics) *endpoint {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "transport/minion", "endpoint", name)
	e := &endpoint{lim: lim.withDefaults(), log: log, met: met,
		links: make(map[*link]struct{}), sources: make(map[source]int)}
	e.readers.New = func() any { return bufio.NewReaderSize(nil, readBuffer) }
	return e
}

// warn logs one line per message and interval: strangers cause them.
func (e *endpoint) warn(msg string, args ...any) {
	if n := e.seldom.Due(msg); n > 0 {
		e.log.Warn(msg, append(args, "n", n)...)
	}
}

// session is one connection after its hand-shake.
type session interface {
	// next reads and serves one message or command, of which at least a byte has arrived.
	next(ctx context.Context) error
	// writing reports whether a frame is being written, which makes a PING useless.
	writing() bool
	// end is called once with the error that ended the connection; it returns the reason to log.
	end(err error) error
}

// link is one connection. It is its own identity: an identity that the peer claims has no effect.
type link struct {
	conn  net.Conn
	r     *bufio.Reader  // from the endpoint's pool while data comes; reads from the link
	peer  netip.AddrPort // behind a trusted balancer: as its PROXY header says
	from  source         // that the connection counts for; zero before it counts
	minor byte           // ZMTP 3.minor, known after the hand-shake
	wait  time.Duration  // Limits.WriteTimeout
	pong  func()         // called for each PONG if not nil; set before reading
	session

	first    [1]byte      // the byte that ended the wait; the reader's, as are the next three
	woken    bool         // first has not been read
	pinged   time.Time    // the first unanswered PING
	readBy   time.Time    // the read deadline in force
	head     [11]byte     // for the header of a reply; the reader's
	handling atomic.Int64 // UnixNano since when a handler runs without a PING; 0: none

	write   sync.Mutex // held while writing a frame or a group of frames; guards the next three
	writeBy time.Time  // the write deadline in force
	parts   [2][]byte  // memory for part
	part    net.Buffers
}

// Read reads the byte that wait has read, then from the connection.
func (l *link) Read(b []byte) (int, error) {
	if l.woken && len(b) > 0 {
		l.woken = false
		return copy(b, l.first[:]), nil
	}
	return l.conn.Read(b)
}

// serve accepts on ln until ctx ends. Then it closes ln, wakes every connection, gives them
// DrainTimeout and closes the remaining ones. It returns nil after ctx ended.
func (e *endpoint) serve(ctx context.Context, ln net.Listener) error {
	e.stopping.Store(false)
	e.stopped = make(chan struct{})
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	closed := context.AfterFunc(ctx, func() { ln.Close() })
	defer closed()
	defer ln.Close()

	err := e.accept(ctx, ln, func(conn net.Conn) {
		if l := e.enter(conn); l != nil { // here, so that no more are open than may be
			e.open.Add(1)
			go e.serveConn(work, l)
		}
	})

	e.stopping.Store(true)
	close(e.stopped)
	e.each(func(l *link) { l.conn.SetReadDeadline(time.Unix(1, 0)) })
	done := make(chan struct{})
	go func() { e.open.Wait(); close(done) }()
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

// accept passes each connection to start. It retries after temporary errors (too many open files),
// with up to a second between attempts.
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
			e.warn("accept minion", "err", err, "addr", ln.Addr().String())
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

// enter makes a link of a connection; nil: there are too many, and it is closed.
func (e *endpoint) enter(conn net.Conn) *link {
	l := &link{conn: conn, wait: e.lim.WriteTimeout}
	if addr, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		l.peer = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	}
	if err := e.track(l); err != nil {
		e.met.closed.WithLabelValues("full").Inc()
		e.warn("close minion connection: too many", "err", err)
		conn.Close()
		return nil
	}
	if !contains(e.lim.ProxyFrom, l.peer.Addr()) {
		// Before the next one is accepted: else a crowd from one address has all places until the
		// goroutines of its connections have run.
		if err := e.admit(l); err != nil {
			e.drop(l, err)
			return nil
		}
	}
	return l
}

func (e *endpoint) serveConn(ctx context.Context, l *link) {
	err := e.greet(l)
	if err == nil {
		l.session = e.begin(l)
	}
	e.attend(ctx, l, err)
}

// attend serves the messages of l until l falls silent; then wait takes over.
//
// A connection alternates between the two, each time in a new goroutine: a stack that grew during a
// request never shrinks again, and most connections wait most of the time.
func (e *endpoint) attend(ctx context.Context, l *link, err error) {
	switch {
	case err == nil:
		l.pinged = time.Time{}
		err = e.converse(ctx, l)
	case l.session != nil && errors.Is(err, os.ErrDeadlineExceeded) && !e.stopping.Load():
		err = e.ping(l)
	}
	if err == nil {
		err = e.readWithin(l, e.silence(l), false)
	}
	if err != nil {
		e.end(l, err)
		return
	}
	go e.wait(ctx, l)
}

// silence is how long l may wait for its peer before it sends a PING or gives the peer up; 0 means
// forever.
func (e *endpoint) silence(l *link) time.Duration {
	switch {
	case l.minor < 1:
		return max(0, e.lim.SilentTimeout)
	case e.lim.PingInterval > 0:
		return e.lim.PingInterval - e.linger
	}
	return 0
}

// wait waits for the next byte of l and does nothing else, so that the smallest stack suffices.
func (e *endpoint) wait(ctx context.Context, l *link) {
	n, err := l.conn.Read(l.first[:])
	l.woken = n > 0
	go e.attend(ctx, l, err)
}

// converse serves messages until none has come for e.linger.
func (e *endpoint) converse(ctx context.Context, l *link) error {
	if l.r == nil {
		e.lendReader(l)
	}
	for {
		if l.r.Buffered() == 0 && !l.woken {
			if more, err := e.more(l); err != nil || !more {
				if err == nil {
					e.takeReader(l)
				}
				return err
			}
		}
		if l.r.Buffered() < maxHeader {
			if err := e.readWithin(l, e.lim.PingTimeout, true); err != nil {
				return err
			}
		}
		if err := l.next(ctx); err != nil {
			return err
		}
		if e.stopping.Load() {
			return errStopping
		}
	}
}

// more reports whether a byte comes within e.linger.
func (e *endpoint) more(l *link) (bool, error) {
	if e.linger == 0 {
		return false, nil
	}
	if err := e.readWithin(l, e.linger, true); err != nil {
		return false, err
	}
	_, err := l.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) && !e.stopping.Load() {
		return false, nil
	}
	return err == nil, err
}

// ping sends a PING to a peer that was silent for PingInterval, and gives the peer up if it sends
// nothing for PingTimeout. A peer without PING was silent for SilentTimeout.
func (e *endpoint) ping(l *link) error {
	if l.writing() { // a peer that doesn't read meets WriteTimeout
		l.pinged = time.Time{}
		return nil
	}
	if l.minor < 1 {
		return errSilent
	}
	if now := time.Now(); l.pinged.IsZero() {
		l.pinged = now
	} else if now.Sub(l.pinged) >= e.lim.PingTimeout {
		return errSilent
	}
	if err := l.send([]byte(pingFrame)); err != nil {
		return err
	}
	e.met.pingsSent.Inc()
	return nil
}

func (e *endpoint) lendReader(l *link) {
	l.r = e.readers.Get().(*bufio.Reader)
	l.r.Reset(l)
}

func (e *endpoint) takeReader(l *link) {
	l.r.Reset(nil)
	e.readers.Put(l.r)
	l.r = nil
}

// end closes l and logs the reason.
func (e *endpoint) end(l *link, err error) {
	defer e.open.Done()
	if l.session != nil {
		err = l.session.end(err)
	}
	if e.stopping.Load() {
		err = errStopping
	}
	e.drop(l, err)
}

// drop closes a connection and gives its place back. It counts the reason and logs it.
func (e *endpoint) drop(l *link, err error) {
	label, loud := reason(err)
	e.met.closed.WithLabelValues(label).Inc() // before the peer can see the end
	l.conn.Close()
	if l.r != nil {
		e.takeReader(l)
	}
	e.untrack(l)
	if loud {
		e.warn("close minion connection", "addr", l.peer.String(), "reason", label,
			"err", err)
	}
}

// greet makes the hand-shake within its deadline.
func (e *endpoint) greet(l *link) error {
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
	return l.conn.SetDeadline(time.Time{})
}

// shakeHands learns the peer's address from a trusted balancer, and makes the ZMTP hand-shake.
func (e *endpoint) shakeHands(l *link) error {
	e.lendReader(l)
	if len(e.lim.ProxyFrom) > 0 {
		peer, err := readProxy(l.r, l.peer, e.lim.ProxyFrom)
		if err != nil {
			return err
		}
		l.peer = peer
		if err := e.admit(l); err != nil {
			return err
		}
	}
	minor, err := shake(l.conn, l.r, e.own, "", true, e.peers...)
	l.minor = minor
	return err
}

// errFiles: there are as many connections as Limits.Total allows.
var errFiles = errors.New("the limit of open files allows no more: raise it (LimitNOFILE of the service, ulimit -Hn)")

func (e *endpoint) track(l *link) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.links); n >= e.lim.MaxConns {
		return fmt.Errorf("there are %d, see max_connections", n)
	}
	if !e.lim.Total.take() {
		return errFiles
	}
	e.links[l] = struct{}{}
	e.met.connections.Inc()
	return nil
}

func (e *endpoint) untrack(l *link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.links, l)
	e.lim.Total.leave()
	e.leaveSource(l)
	e.met.connections.Dec()
}

func (e *endpoint) each(f func(*link)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.links {
		f(l)
	}
}

// send writes whole frames, without other frames in between. Each maxWriteBytes that the peer takes
// moves the deadline on. It consumes bufs.
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
		// moved on by at least a quarter at a time, because setting it is not free
		if now := time.Now(); l.writeBy.Sub(now) < l.wait {
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

// readWithin bounds the next read; 0 means no bound. With about it keeps a deadline that is at
// least half as far away: most reads end long before it, and setting one is not free. When the
// endpoint stops, serve has set a deadline in the past, which must stay.
func (e *endpoint) readWithin(l *link, limit time.Duration, about bool) error {
	var deadline time.Time
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	if early := deadline.Sub(l.readBy); limit == 0 && !l.readBy.IsZero() || limit > 0 &&
		(early < 0 || !about || early > limit/2) {
		if err := l.conn.SetReadDeadline(deadline); err != nil {
			return err
		}
		l.readBy = deadline
	}
	if e.stopping.Load() {
		return errStopping
	}
	return nil
}

// patient reads the bodies of a message. Each read may take PingTimeout, and so may a short
// message; a longer one must keep coming at MinRate. So a slow peer is served, and one that has
// stopped or sends a byte now and then is given up.
type patient struct {
	l     *link
	e     *endpoint
	since time.Time // when the present PingTimeout began; zero before the first wait
	got   int64     // bytes since then
}

func (p *patient) Read(b []byte) (int, error) {
	if p.l.r.Buffered() == 0 {
		if err := p.await(); err != nil {
			return 0, err
		}
	}
	n, err := p.l.r.Read(b)
	p.got += int64(n)
	return n, err
}

// pause leaves time out in which the peer was made to wait.
func (p *patient) pause(d time.Duration) {
	if !p.since.IsZero() {
		p.since = p.since.Add(d)
	}
}

// await bounds the next read.
func (p *patient) await() error {
	now := time.Now()
	switch elapsed := now.Sub(p.since); {
	case p.since.IsZero():
		p.since = now
	case elapsed < p.e.lim.PingTimeout:
	case float64(p.got) < float64(p.e.lim.MinRate)*elapsed.Seconds():
		return errTrickle
	default:
		p.since, p.got = now, 0
	}
	return p.e.readWithin(p.l, p.e.lim.PingTimeout, true)
}

// command handles a command that both endpoints know. For others it returns ErrUnexpected.
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
