package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/prometheus/client_golang/prometheus"
)

// errHandler: the handler returned an error or nothing to send.
var errHandler = errors.New("handler has no reply")

// Request is one message of a minion.
type Request struct {
	// Payload is the first frame after the empty delimiter; the handler may keep it.
	Payload []byte
	// Remote is the minion's address; behind a trusted balancer the one that its PROXY
	// header names.
	Remote netip.AddrPort
	// Buffer is empty memory of replyBuffer bytes in which the reply may be made. It is the endpoint's again when Handle
	// has returned and the reply is sent.
	Buffer []byte
}

// Handler answers requests. It is called from one goroutine per connection.
type Handler interface {
	// Handle returns the payload of the reply. With an error or a nil reply the
	// connection is closed and the minion tries again on a new one. ctx ends when
	// the endpoint has waited Limits.DrainTimeout for the handler, not earlier: a
	// minion that goes away does not cancel its request.
	Handle(ctx context.Context, r Request) (reply []byte, err error)
}

// RequestServer is the request endpoint: what REQ sockets (and DEALER ones that send
// the empty delimiter) connect to.
type RequestServer struct {
	*endpoint
	handler  Handler
	inFlight atomic.Int64 // bytes of requests larger than eagerBody
	buffers  sync.Pool    // *[replyBuffer]byte
}

// NewRequestServer makes an endpoint whose requests h answers. log and reg may be nil.
func NewRequestServer(h Handler, lim Limits, log *slog.Logger, reg prometheus.Registerer) *RequestServer {
	s := &RequestServer{endpoint: newEndpoint("request", lim, log, newMetrics("request", reg)), handler: h}
	s.buffers.New = func() any { return new([replyBuffer]byte) }
	s.own, s.linger = zmq4.Router, requestLinger
	if s.lim.PingInterval > 0 {
		s.linger = min(s.linger, s.lim.PingInterval/4)
	}
	s.begin = func(l *link) session { return &requester{s, l} }
	s.peers = []zmq4.SocketType{zmq4.Req, zmq4.Dealer}
	return s
}

// ServeRequests is NewRequestServer and Serve in one.
func ServeRequests(ctx context.Context, ln net.Listener, h Handler, lim Limits, log *slog.Logger, reg prometheus.Registerer) error {
	return NewRequestServer(h, lim, log, reg).Serve(ctx, ln)
}

// Serve answers requests from ln until ctx ends; it closes ln. A stopping server
// answers the requests that it has, for at most Limits.DrainTimeout. It returns nil
// after ctx ended.
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
}

// next answers one request. REQ is lock-step: there is nothing to read while it is being handled.
func (r *requester) next(ctx context.Context) error {
	payload, whole, held, err := r.s.receive(r.l)
	if err == nil && whole {
		err = r.s.answer(ctx, r.l, payload)
	}
	r.s.inFlight.Add(-held)
	return err
}

// writing: what waits for a request has written its reply.
func (r *requester) writing() bool { return false }

func (r *requester) end(err error) error { return err }

// receive reads frames up to the end of a message, and commands on the way; whole is false after a command before one. held
// is what the message counts in inFlight, also with an error.
func (s *RequestServer) receive(l *link) (payload []byte, whole bool, held int64, err error) {
	hold := func(n int64) error {
		held += n
		if s.inFlight.Add(n) > s.lim.MaxInFlight {
			return ErrMemory
		}
		return nil
	}
	room := s.lim.MaxFrame
	for frame := 0; ; {
		if frame > 0 && l.r.Buffered() < maxHeader {
			if err := s.readWithin(l, s.lim.PingTimeout, true); err != nil {
				return nil, false, held, err
			}
		}
		flags, err := l.r.ReadByte()
		if err != nil {
			return nil, false, held, err
		}
		h, err := readHeader(l.r, flags, room)
		if err != nil {
			return nil, false, held, err
		}
		if h.command {
			body, err := readBody(&patient{l, s.endpoint}, h.size, hold)
			if err != nil {
				return nil, false, held, err
			}
			name, data, err := splitCommand(body)
			if err == nil {
				err = l.command(name, data)
			}
			if err != nil {
				return nil, false, held, err
			}
			if frame == 0 {
				return nil, false, held, nil
			}
			continue
		}
		switch {
		case frame == 0 && (h.size != 0 || !h.more):
			return nil, false, held, fmt.Errorf("message without empty delimiter: %w", ErrUnexpected)
		case frame == maxFrames:
			return nil, false, held, fmt.Errorf("message of more than %d frames: %w", maxFrames, ErrTooLarge)
		case frame == 1:
			payload, err = readBody(&patient{l, s.endpoint}, h.size, hold)
		default: // the delimiter, which is empty, or frames that nobody reads
			if h.size > 0 {
				err = discard(&patient{l, s.endpoint}, h.size)
			}
		}
		if err != nil {
			return nil, false, held, err
		}
		room -= h.size
		frame++
		if !h.more {
			s.met.received.Add(float64(len(payload)))
			return payload, true, held, nil
		}
	}
}

// answer runs the handler and writes its reply. A handler that takes long must not
// let a balancer drop the connection, so PINGs go out meanwhile.
func (s *RequestServer) answer(ctx context.Context, l *link, payload []byte) error {
	start := time.Now()
	l.handling.Store(start.UnixNano())
	defer l.handling.Store(0)
	buffer := s.buffers.Get().(*[replyBuffer]byte)
	defer s.buffers.Put(buffer)
	s.met.handling.Inc()
	reply, err := s.call(ctx, Request{Payload: payload, Remote: l.peer, Buffer: buffer[:0]})
	s.met.handling.Dec()
	s.met.took.Observe(time.Since(start).Seconds())
	if err != nil || reply == nil {
		s.met.requests.WithLabelValues("no_reply").Inc()
		if err != nil {
			s.quiet.warn("no reply to minion", "addr", l.peer.String(), "err", err)
		}
		return errHandler
	}
	if err := l.send(appendHeader(append(l.head[:0], flagMore, 0), 0, len(reply)), reply); err != nil {
		s.met.requests.WithLabelValues("unsent").Inc()
		return err
	}
	s.met.answered.Inc()
	s.met.sent.Add(float64(len(reply)))
	return nil
}

// call keeps a handler's panic on one request, and the stack in the log: what a
// stranger sends must not end the master.
func (s *RequestServer) call(ctx context.Context, r Request) (reply []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("handler panics", "addr", r.Remote.String(), "err", p, "stack", string(debug.Stack()))
			reply, err = nil, fmt.Errorf("handler panics: %v", p)
		}
	}()
	return s.handler.Handle(ctx, r)
}

// pingHandled sends a PING, every PingInterval at most, to peers whose request is being handled for long.
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
				if began == 0 || began > due || l.minor < 1 || !l.handling.CompareAndSwap(began, now.UnixNano()) {
					return
				}
				sending.Go(func() { // the peer may not read
					if err := l.send([]byte(pingFrame)); err == nil { // else the reply will meet the same error
						s.met.pingsSent.Inc()
					}
				})
			})
		}
	}
}
