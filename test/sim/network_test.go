package sim

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Times of the network.
const (
	// data that stays unacknowledged this long ends a connection, as TCP_USER_TIMEOUT does on the
	// peer port
	userTimeout = 5 * time.Second
	keepAlive   = 11 * time.Second // the same for a connection without traffic
	synRetry    = time.Second
)

// window is how many bytes of one direction of a connection may be on their way or wait to be read.
const window = 64 << 10

// large is the size of a message that does not fit into a packet on a narrow path, in bytes.
const large = 1240

// fabric is the network between the masters. What is written to a connection arrives in order and
// late. Connections don't wait for each other. A write waits while the window is full.
type fabric struct {
	seed uint64
	sent *atomic.Int64 // messages, counted also while they can't arrive

	mu        sync.Mutex // guards the fields below, and those of the conns
	listeners map[string]*listener
	paths     map[[2]string]*path // from one host to another
	conns     map[*end]bool
	dialled   map[[2]string]uint64
	delay     time.Duration  // the longest for one message, without faults
	broken    int            // connections ended by faults
	reads     map[string]int // bytes per second that a host reads from each connection; 0: no limit
	waited    int            // writes that had to wait for the window
	// hosts that lost power and sent no reset, since when
	dark map[string]time.Time
}

// path is one direction between two hosts.
type path struct {
	cut   bool
	epoch int // counts cuts
	slow  time.Duration
	lossy float64       // share of messages that must be sent again
	held  bool          // messages wait; both ends' kernels answer, so no connection breaks
	thin  bool          // large messages get lost
	ended time.Time     // when it was last cut, held or thin, or connections were reset while it was slow
	late  time.Duration // its last slowness, and the end of that
	swift time.Time
}

func (p *path) parts() bool { return p.cut || p.held || p.thin }

// turns notes that a fault of the path may end now. The caller holds fabric.mu.
func (p *path) turns() {
	if p.parts() {
		p.ended = time.Now()
	}
	if p.slow > 0 {
		p.late, p.swift = p.slow, time.Now()
	}
}

// lateSince is how slow the path is, or was at some moment since then. The caller holds fabric.mu.
func (p *path) lateSince(since time.Time) time.Duration {
	if p.slow == 0 && p.swift.After(since) {
		return p.late
	}
	return p.slow
}

func newFabric(seed uint64, delay time.Duration) *fabric {
	return &fabric{seed: seed, sent: new(atomic.Int64), listeners: map[string]*listener{}, paths: map[[2]string]*path{},
		conns: map[*end]bool{}, dialled: map[[2]string]uint64{}, delay: delay, reads: map[string]int{},
		dark: map[string]time.Time{}}
}

func (f *fabric) path(from, to string) *path {
	p := f.paths[[2]string{from, to}]
	if p == nil {
		p = &path{}
		f.paths[[2]string{from, to}] = p
	}
	return p
}

// rng is a source of chance that depends on the seed and names, not on the order of calls.
func rng(seed uint64, name ...string) *rand.Rand {
	h := fnv.New64a()
	for _, n := range name {
		io.WriteString(h, n+"\x00")
	}
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// chunk is one message on its way. Nil data is the end of the stream.
type chunk struct {
	at    time.Time
	data  []byte
	large bool
}

// end is one side of a connection.
type end struct {
	f             *fabric
	local, remote netip.AddrPort
	peer          *end
	rng           *rand.Rand // for what this side sends
	cond          *sync.Cond // on fabric.mu

	in          []chunk
	unread      int       // bytes of in
	readAgain   time.Time // a slow reader reads nothing before this
	lastIn      time.Time
	err         error // why this side is broken
	closed      bool
	spoke       bool // since the path was cut or the other host dark
	readBy      time.Time
	writeBy     time.Time
	watchedSend bool
}

func (e *end) from() *path { return e.f.path(e.local.Addr().String(), e.remote.Addr().String()) }
func (e *end) to() *path   { return e.f.path(e.remote.Addr().String(), e.local.Addr().String()) }

func (e *end) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(e.local) }
func (e *end) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(e.remote) }

func (e *end) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: e.LocalAddr(), Addr: e.RemoteAddr(), Err: err}
}

func (e *end) Read(b []byte) (int, error) {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case e.closed:
			return 0, e.opError("read", net.ErrClosed)
		case !e.readBy.IsZero() && !now.Before(e.readBy):
			return 0, e.opError("read", os.ErrDeadlineExceeded)
		case len(e.in) > 0 && !e.in[0].at.After(now) && !e.to().cut && !e.to().held &&
			!(e.to().thin && e.stuck()) && !e.readAgain.After(now):
			c := &e.in[0]
			if c.data == nil {
				return 0, io.EOF
			}
			if rate := e.f.reads[e.local.Addr().String()]; rate > 0 {
				b = b[:min(len(b), 2<<10)]
				d := time.Duration(min(len(b), len(c.data))) * time.Second / time.Duration(rate)
				e.readAgain = now.Add(d)
				time.AfterFunc(d, e.cond.Broadcast)
			}
			n := copy(b, c.data)
			if c.data = c.data[n:]; len(c.data) == 0 {
				e.in = e.in[1:]
			}
			if e.unread -= n; e.unread+n >= window {
				e.peer.cond.Broadcast()
			}
			return n, nil
		case e.err != nil:
			return 0, e.opError("read", e.err)
		}
		e.cond.Wait()
	}
}

func (e *end) Write(b []byte) (int, error) {
	e.f.sent.Add(1)
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	for done, waits := 0, false; ; {
		switch {
		case e.closed:
			return done, e.opError("write", net.ErrClosed)
		case e.err != nil:
			return done, e.opError("write", e.err)
		case !e.writeBy.IsZero() && !time.Now().Before(e.writeBy):
			return done, e.opError("write", os.ErrDeadlineExceeded)
		}
		e.spoke = true
		if e.unacknowledged(len(b)) {
			e.watch()
		} else if e.peer.closed {
			e.after(e.f.delay, func() { e.breaks(syscall.ECONNRESET) })
			return len(b), nil
		}
		if n := min(len(b)-done, max(window-e.peer.unread, 0)); n > 0 {
			e.send(append([]byte{}, b[done:done+n]...))
			done += n
		}
		if done == len(b) {
			return done, nil
		}
		if !waits {
			waits = true
			e.f.waited++
		}
		e.cond.Wait()
	}
}

// cutOff reports that the line is cut, one way or both, or that the other host is dark. The caller
// holds mu.
func (e *end) cutOff() bool {
	return e.from().cut || e.to().cut || e.f.isDark(e.remote.Addr().String())
}

// unacknowledged reports that nothing this side sends is acknowledged, once it has sent so many
// bytes more. The caller holds mu.
func (e *end) unacknowledged(more int) bool {
	return e.cutOff() || e.from().thin && (more > large || e.peer.stuck())
}

// stuck reports that the next message for this side is a large one: on a thin path it is lost, and
// TCP sends it again and again. The caller holds mu.
func (e *end) stuck() bool { return len(e.in) > 0 && e.in[0].large }

// after calls f later, holding mu.
func (e *end) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		e.f.mu.Lock()
		defer e.f.mu.Unlock()
		f()
	})
}

// watch ends this side if what it sends stays unacknowledged.
func (e *end) watch() {
	if e.watchedSend {
		return
	}
	e.watchedSend = true
	a, b := e.from().epoch, e.to().epoch
	e.after(userTimeout, func() {
		e.watchedSend = false
		if e.unacknowledged(0) && a == e.from().epoch && b == e.to().epoch {
			e.breaks(syscall.ETIMEDOUT)
		}
	})
}

// send puts data on the way. Nil is the end of the stream.
func (e *end) send(data []byte) {
	p := e.from()
	d := e.f.delay/4 + time.Duration(e.rng.Int64N(int64(e.f.delay))) + p.slow
	if p.lossy > 0 && e.rng.Float64() < p.lossy {
		d += 200 * time.Millisecond
	}
	at := time.Now().Add(d)
	if at.Before(e.peer.lastIn) {
		at = e.peer.lastIn
	}
	e.peer.lastIn = at
	e.peer.in = append(e.peer.in, chunk{at, data, len(data) > large})
	e.peer.unread += len(data)
	time.AfterFunc(time.Until(at), e.peer.cond.Broadcast)
}

// breaks ends this side. The caller holds mu.
func (e *end) breaks(err error) {
	if e.err == nil && !e.closed {
		e.err = err
		e.f.broken++
		e.cond.Broadcast()
	}
}

func (e *end) Close() error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	if e.closed {
		return e.opError("close", net.ErrClosed)
	}
	e.close()
	e.send(nil)
	return nil
}

func (e *end) close() {
	e.closed = true
	delete(e.f.conns, e)
	e.in, e.unread = nil, 0
	e.cond.Broadcast()
	e.peer.cond.Broadcast() // a write there waits no more
}

func (e *end) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	e.readBy = t
	e.cond.Broadcast()
	if d := time.Until(t); !t.IsZero() && d > 0 {
		time.AfterFunc(d, e.cond.Broadcast)
	}
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	e.writeBy = t
	e.cond.Broadcast()
	if d := time.Until(t); !t.IsZero() && d > 0 {
		time.AfterFunc(d, e.cond.Broadcast)
	}
	return nil
}

type listener struct {
	f      *fabric
	addr   netip.AddrPort
	queue  chan *end
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case e := <-l.queue:
		return e, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.f.mu.Lock()
		defer l.f.mu.Unlock()
		if l.f.listeners[l.addr.String()] == l {
			delete(l.f.listeners, l.addr.String())
		}
		for len(l.queue) > 0 {
			(<-l.queue).close()
		}
	})
	return nil
}

// host is the network as one running master sees it.
type host struct {
	f    *fabric
	ip   netip.Addr
	dead chan struct{}
}

// Listen implements peer.Network.
func (h *host) Listen(_ context.Context, addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.f.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	l := &listener{f: h.f, addr: at, queue: make(chan *end, 128), closed: make(chan struct{})}
	h.f.listeners[addr] = l
	return l, nil
}

// Dial implements peer.Network.
func (h *host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	fails := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(at), Err: err}
	}
	from, to := h.ip.String(), at.Addr().String()
	h.f.mu.Lock()
	h.f.dialled[[2]string{from, to}]++
	n := h.f.dialled[[2]string{from, to}]
	port := uint16(20000 + n%40000)
	local := netip.AddrPortFrom(h.ip, port)
	chance := rng(h.f.seed, "dial", local.String(), at.String())
	h.f.mu.Unlock()
	for wait := h.f.delay/2 + time.Duration(chance.Int64N(int64(h.f.delay))); ; wait = synRetry {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fails(ctx.Err())
		case <-h.dead:
			t.Stop()
			return nil, fails(net.ErrClosed)
		}
		h.f.mu.Lock()
		if h.f.path(from, to).cut || h.f.path(to, from).cut || h.f.isDark(to) {
			h.f.mu.Unlock()
			continue
		}
		l := h.f.listeners[addr]
		if l == nil || len(l.queue) == cap(l.queue) {
			h.f.mu.Unlock()
			return nil, fails(syscall.ECONNREFUSED)
		}
		select {
		case <-h.dead:
			h.f.mu.Unlock()
			return nil, fails(net.ErrClosed)
		default:
		}
		a := &end{f: h.f, local: local, remote: at, cond: sync.NewCond(&h.f.mu),
			rng: rng(h.f.seed, "out", local.String(), at.String())}
		b := &end{f: h.f, local: at, remote: local, cond: sync.NewCond(&h.f.mu),
			rng: rng(h.f.seed, "in", local.String(), at.String())}
		a.peer, b.peer = b, a
		h.f.conns[a], h.f.conns[b] = true, true
		l.queue <- b
		h.f.mu.Unlock()
		return a, nil
	}
}

// kill does what the end of a process does to its connections and ports: the others' connections
// are reset. A machine that lost power sends nothing; then the others must find out by themselves.
func (h *host) kill(silently bool) {
	h.f.mu.Lock()
	var listening []*listener
	for _, l := range h.f.listeners {
		if l.addr.Addr() == h.ip {
			listening = append(listening, l)
		}
	}
	close(h.dead)
	if silently {
		h.f.darken(h.ip.String())
	}
	for e := range h.f.conns {
		if e.local.Addr() != h.ip {
			continue
		}
		peer := e.peer
		e.close()
		if !silently && !peer.closed && !peer.cutOff() {
			e.after(h.f.delay, func() { peer.breaks(syscall.ECONNRESET) })
		}
	}
	h.f.mu.Unlock()
	for _, l := range listening {
		l.Close()
	}
}

// cut stops the traffic from one host to another.
func (f *fabric) cut(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.path(from, to)
	if p.cut {
		return
	}
	p.cut = true
	p.epoch++
	epoch := p.epoch
	f.expire(func(e *end) bool {
		a, b := e.local.Addr().String(), e.remote.Addr().String()
		return a == from && b == to || a == to && b == from
	}, func() bool { return p.cut && p.epoch == epoch })
}

// expire breaks silent connections when they are idle for too long, if they are silent all the
// time. The caller holds mu.
func (f *fabric) expire(silent func(*end) bool, still func() bool) {
	for e := range f.conns {
		if silent(e) {
			e.spoke = false
		}
	}
	time.AfterFunc(keepAlive, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !still() {
			return
		}
		for e := range f.conns {
			if silent(e) {
				e.breaks(syscall.ETIMEDOUT)
			}
		}
	})
}

func (f *fabric) isDark(ip string) bool { return !f.dark[ip].IsZero() }

// darken lets a host answer nothing until it is lit. The caller holds mu.
func (f *fabric) darken(ip string) {
	since := time.Now()
	f.dark[ip] = since
	f.changed(ip)
	f.expire(func(e *end) bool { return e.remote.Addr().String() == ip },
		func() bool { return f.dark[ip].Equal(since) })
}

// lit lets a host answer again: with a reset, to what was sent to its former process.
func (f *fabric) lit(ip string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isDark(ip) {
		return
	}
	delete(f.dark, ip)
	f.changed(ip)
	for e := range f.conns {
		if e.remote.Addr().String() == ip && e.spoke && e.peer.closed && !e.cutOff() {
			e.after(f.delay, func() { e.breaks(syscall.ECONNRESET) })
		}
	}
}

// changed counts a cut, or its end, of all lines of a host. The caller holds mu.
func (f *fabric) changed(ip string) {
	for ends, p := range f.paths {
		if ends[0] == ip || ends[1] == ip {
			p.epoch++
		}
	}
}

// roundTrip is how long a message and its answer need on a line that is slow, or was since then.
func (f *fabric) roundTrip(a, b string, since time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.path(a, b).lateSince(since) + f.path(b, a).lateSince(since)
}

// parted reports whether the line between two hosts was cut or held, or lost large messages, at any
// moment since then, or needed new connections while it was slow.
func (f *fabric) parted(a, b string, since time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	there, back := f.path(a, b), f.path(b, a)
	return there.parts() || back.parts() || there.ended.After(since) || back.ended.After(since)
}

// narrow loses the large messages of a path.
func (f *fabric) narrow(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.path(from, to)
	p.thin = true
	p.epoch++
}

// heal ends all cuts, slowness and loss between two hosts.
func (f *fabric) heal(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.path(from, to)
	p.turns()
	p.cut, p.slow, p.lossy, p.held, p.thin = false, 0, 0, false, false
	p.epoch++
	for e := range f.conns {
		a, b := e.local.Addr().String(), e.remote.Addr().String()
		if a == from && b == to || a == to && b == from {
			if e.peer.closed && !e.cutOff() {
				peer := e
				e.after(f.delay, func() { peer.breaks(syscall.ECONNRESET) })
			}
			e.cond.Broadcast()
		}
	}
}

// reset breaks the connections between two hosts, as middle boxes do.
func (f *fabric) reset(a, b string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range []*path{f.path(a, b), f.path(b, a)} {
		if p.slow > 0 {
			p.ended = time.Now()
		}
	}
	for e := range f.conns {
		x, y := e.local.Addr().String(), e.remote.Addr().String()
		if x == a && y == b || x == b && y == a {
			e.breaks(syscall.ECONNRESET)
		}
	}
}

// disturb makes a path slow and lossy.
func (f *fabric) disturb(from, to string, slow time.Duration, lossy float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.path(from, to)
	p.turns()
	p.slow, p.lossy = slow, lossy
}

// hold keeps back all messages of a path; those that wait arrive at once when it ends.
func (f *fabric) hold(from, to string, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.path(from, to)
	p.turns()
	p.held = held
	for e := range f.conns {
		if e.local.Addr().String() == to && e.remote.Addr().String() == from {
			e.cond.Broadcast()
		}
	}
}

// slowReader limits what a host reads from each of its connections, in bytes per second; 0 is no
// limit.
func (f *fabric) slowReader(ip string, rate int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[ip] = rate
}
