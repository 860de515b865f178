package minion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/prometheus/client_golang/prometheus"
)

// errHandler: the handler returned an error or no reply.
var errHandler = errors.New("handler has no reply")

// Request is one message of a minion.
type Request struct {
	// Payload is the first frame after the empty delimiter; the handler may keep it.
	Payload []byte
	// Remote is the minion's address; behind a trusted balancer the one in its PROXY header.
	Remote netip.AddrPort
	// Buffer is empty memory of replyBuffer bytes for making the reply. The endpoint uses it again
	// once Handle has returned and the reply is sent.
	Buffer []byte
	// Sender is the connection that the request came on, until Handle returns.
	Sender Sender
}

// Sender is a connection, as a handler uses it.
type Sender interface {
	// Hold counts n more bytes of memory for this request until its reply is sent: those of its
	// decoded payload, and of what the reply is made of. If it returns false there is not enough;
	// the handler must not decode the payload, and should end without a reply. One small amount is
	// not counted. Calls must not overlap.
	Hold(n int64) bool
	// Vouch says that an accepted minion sealed this request: its decoded form then counts as a
	// minion's.
	Vouch()
}

// Handler answers requests. It is called from one goroutine per connection.
type Handler interface {
	// Handle returns the payload of the reply. On an error or a nil reply the endpoint closes the
	// connection, and the minion tries again on a new one. ctx ends only after a stopping endpoint
	// has waited Limits.DrainTimeout for the handler: a minion that leaves does not cancel its
	// request.
	Handle(ctx context.Context, r Request) (reply []byte, err error)
}

// RequestServer is the request endpoint, to which REQ sockets connect (and DEALER sockets that send
// the empty delimiter).
type RequestServer struct {
	*endpoint
	handler Handler
	memory  memory
	pace    pace      // of the requests of strangers
	proved  addresses // from which accepted minions have sent requests
	buffers sync.Pool // *[replyBuffer]byte
}

// NewRequestServer makes an endpoint whose requests h answers. log and reg may be nil.
func NewRequestServer(h Handler, lim Limits, log *slog.Logger,
	reg prometheus.Registerer) *RequestServer {
	lim.SilentTimeout = cmp.Or(lim.SilentTimeout, 10*time.Minute)
	s := &RequestServer{endpoint: newEndpoint("request", lim, log, newMetrics("request", reg)),
		handler: h}
	s.buffers.New = func() any { return new([replyBuffer]byte) }
	s.own, s.linger = zmq4.Router, requestLinger
	if s.lim.PingInterval > 0 {
		s.linger = min(s.linger, s.lim.PingInterval/4)
	}
	s.memory.lim = &s.endpoint.lim
	s.begin = func(l *link) session { return newRequester(s, l) }
	s.peers = []zmq4.SocketType{zmq4.Req, zmq4.Dealer}
	if reg != nil {
		s.gauges(reg)
	}
	return s
}

// ServeRequests is NewRequestServer and Serve in one.
func ServeRequests(ctx context.Context, ln net.Listener, h Handler, lim Limits, log *slog.Logger,
	reg prometheus.Registerer) error {
	return NewRequestServer(h, lim, log, reg).Serve(ctx, ln)
}

// Serve answers requests from ln until ctx ends; it closes ln. When it stops it answers the present
// requests, for at most Limits.DrainTimeout. It returns nil after ctx ended.
func (s *RequestServer) Serve(ctx context.Context, ln net.Listener) error {
	if s.lim.PingInterval > 0 {
		var pings sync.WaitGroup
		defer pings.Wait()
		over, cancel := context.WithCancel(ctx)
		defer cancel()
		pings.Go(func() { s.pingHandled(over) })
	}
	return s.serve(ctx, ln)
}

// Connections returns the number of open connections.
func (s *RequestServer) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links)
}

// requester is a connection that sends requests.
type requester struct {
	s *RequestServer
	l *link

	body   patient // reads the present message
	proved bool    // an accepted minion has sent a request on this connection
	holding
}

func newRequester(s *RequestServer, l *link) *requester {
	return &requester{s: s, l: l, body: patient{l: l, e: s.endpoint}}
}

// next answers one request. REQ is lock-step: the peer sends nothing while it is handled.
func (r *requester) next(ctx context.Context) error {
	defer r.release()
	r.body.since, r.body.got = time.Time{}, 0
	r.waits, r.claims, r.small = true, 0, 0
	payload, whole, err := r.receive()
	if r.arrived() {
		return errEjected
	}
	if err == nil && whole {
		err = r.s.answer(ctx, r, payload)
	}
	if err != nil && r.wasEjected() {
		err = errEjected
	}
	return err
}

// discard drops an unused frame.
func (r *requester) discard(size int64) error {
	for size > 0 {
		n := min(size, firstBody)
		if size > firstBody && r.stranger() {
			if err := r.slowDown(n); err != nil {
				return err
			}
		}
		if err := discard(&r.body, n); err != nil {
			return err
		}
		size -= n
	}
	return nil
}

// slowDown waits until strangers may send n more bytes.
func (r *requester) slowDown(n int64) error {
	wait := r.s.pace.next(n, r.s.lim.StrangersRate, time.Now())
	if wait <= 0 {
		return nil
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-over.C:
		r.body.pause(wait)
		return nil
	case <-r.s.stopped:
		return errStopping
	case <-r.ejected:
		return errEjected
	}
}

// pace spreads bytes over time.
type pace struct {
	mu   sync.Mutex // guards free
	free time.Time  // when the time of all bytes so far is over
}

// next returns how long n bytes must wait at a rate per second.
func (p *pace) next(n, rate int64, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free.Before(now) {
		p.free = now
	}
	wait := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	return wait
}

// writing is always false: a connection that waits for a request has written its reply.
func (r *requester) writing() bool { return false }

func (r *requester) end(err error) error { return err }

// receive reads frames up to the end of a message, and handles commands on the way; whole is false
// if it returns after a command.
func (r *requester) receive() (payload []byte, whole bool, err error) {
	s, l := r.s, r.l
	room := s.lim.MaxFrame
	for frame := 0; ; {
		if frame > 0 && l.r.Buffered() < maxHeader {
			if err := r.body.await(); err != nil {
				return nil, false, err
			}
		}
		flags, err := l.r.ReadByte()
		if err != nil {
			return nil, false, err
		}
		h, err := readHeader(l.r, flags, room)
		if err != nil {
			return nil, false, err
		}
		if h.command {
			body, err := readBody(&r.body, h.size, r.hold)
			if err != nil {
				return nil, false, err
			}
			name, data, err := splitCommand(body)
			if err == nil {
				err = l.command(name, data)
			}
			if err != nil {
				return nil, false, err
			}
			if frame == 0 {
				return nil, false, nil
			}
			continue
		}
		switch {
		case frame == 0 && (h.size != 0 || !h.more):
			return nil, false, fmt.Errorf("message without empty delimiter: %w", ErrUnexpected)
		case frame == maxFrames:
			return nil, false, fmt.Errorf("message of more than %d frames: %w", maxFrames,
				ErrTooLarge)
		case frame == 1:
			r.claims = h.size
			payload, err = readBody(&r.body, h.size, r.hold)
		default: // the empty delimiter, or unused frames
			err = r.discard(h.size)
		}
		if err != nil {
			return nil, false, err
		}
		room -= h.size
		frame++
		if !h.more {
			s.met.received.Add(float64(len(payload)))
			return payload, true, nil
		}
	}
}

// answer runs the handler and writes its reply. It sends PINGs while the handler runs, so that a
// balancer keeps the connection.
func (s *RequestServer) answer(ctx context.Context, r *requester, payload []byte) error {
	l := r.l
	start := time.Now()
	l.handling.Store(start.UnixNano())
	defer l.handling.Store(0)
	buffer := s.buffers.Get().(*[replyBuffer]byte)
	defer s.buffers.Put(buffer)
	s.met.handling.Inc()
	reply, err := s.call(ctx, Request{Payload: payload, Remote: l.peer, Buffer: buffer[:0],
		Sender: r})
	s.met.handling.Dec()
	s.met.took.Observe(time.Since(start).Seconds())
	if err != nil || reply == nil {
		s.met.requests.WithLabelValues("no_reply").Inc()
		if err != nil {
			s.warn("no reply to minion", "addr", l.peer.String(), "err", err)
		}
		return errHandler
	}
	r.waits = true
	if n := int64(len(reply)); n > firstBody {
		if err := r.count(n, true); err != nil {
			s.met.requests.WithLabelValues("unsent").Inc()
			return err
		}
	}
	if err := l.send(appendHeader(append(l.head[:0], flagMore, 0), 0, len(reply)),
		reply); err != nil {
		s.met.requests.WithLabelValues("unsent").Inc()
		return err
	}
	s.met.answered.Inc()
	s.met.sent.Add(float64(len(reply)))
	return nil
}

// call confines a handler's panic to one request and logs the stack: a stranger's bytes must not
// end the master.
func (s *RequestServer) call(ctx context.Context, r Request) (reply []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("handler of a minion's request panicked; please report this", "addr", r.Remote.String(), "err", p, "stack",
				string(debug.Stack()))
			reply, err = nil, fmt.Errorf("handler panics: %v", p)
		}
	}()
	return s.handler.Handle(ctx, r)
}

// pingHandled sends PINGs, at most every PingInterval, to peers whose request takes long.
func (s *RequestServer) pingHandled(ctx context.Context) {
	tick := time.NewTicker(max(s.lim.PingInterval/4, time.Millisecond))
	defer tick.Stop()
	var sending sync.WaitGroup
	defer sending.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			due := now.Add(-s.lim.PingInterval * 3 / 4).UnixNano()
			s.each(func(l *link) {
				began := l.handling.Load()
				if began == 0 || began > due || l.minor < 1 ||
					!l.handling.CompareAndSwap(began, now.UnixNano()) {
					return
				}
				sending.Go(func() { // the peer may not be reading
					// otherwise the reply will meet the same error
					if err := l.send([]byte(pingFrame)); err == nil {
						s.met.pingsSent.Inc()
					}
				})
			})
		}
	}
}
