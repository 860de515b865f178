package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
)

// laneBacklog is how many proved connections of one protocol may wait for an Accept; others wait in
// their own goroutine until the deadline.
const laneBacklog = 16

// lane hands the accepted connections of one protocol to its consumer.
type lane struct {
	addr    net.Addr
	queue   chan *conn
	closed  chan struct{}
	closing <-chan struct{} // the port's
	once    sync.Once
}

func newLane(addr net.Addr, closing <-chan struct{}) *lane {
	return &lane{addr: addr, queue: make(chan *conn, laneBacklog), closed: make(chan struct{}),
		closing: closing}
}

// Accept returns the next proved connection, or net.ErrClosed after Close or the end of the port.
func (l *lane) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		if !l.isClosed() { // both may be ready; then the end wins
			return c, nil
		}
		c.kill()
	case <-l.closed:
	case <-l.closing:
	}
	return nil, net.ErrClosed
}

// Close ends Accept; the port and accepted connections continue.
func (l *lane) Close() error {
	l.once.Do(func() { close(l.closed) })
	for {
		select {
		case c := <-l.queue:
			c.kill()
		default:
			return nil
		}
	}
}

func (l *lane) Addr() net.Addr { return l.addr }

func (l *lane) isClosed() bool {
	select {
	case <-l.closed:
		return true
	case <-l.closing:
		return true
	default:
		return false
	}
}

// deliver passes c to the consumer, or returns false if the consumer does not take it in time.
func (l *lane) deliver(c *conn, wait time.Duration) bool {
	if l.isClosed() {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case l.queue <- c:
		if l.isClosed() {
			_ = l.Close() // drains what arrived during the first Close
		}
		return true
	case <-l.closed:
	case <-l.closing:
	case <-t.C:
	}
	return false
}

// RaftLayer returns the stream layer for raft.NetworkTransportConfig. Only one is open at a time:
// its Close, which the transport calls, ends the streams that it dialled or is dialling, and the
// next call opens another. Its address is Config.Advertise, or the bound one.
func (p *Port) RaftLayer() raft.StreamLayer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raft.isClosed() {
		p.raft = newLane(p.advertise, p.closing)
	}
	return &raftLayer{lane: p.raft, port: p}
}

var _ raft.StreamLayer = (*raftLayer)(nil)

type raftLayer struct {
	*lane
	port *Port
}

// Dial connects to a member. Raft calls its name an address.
func (r *raftLayer) Dial(name raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() {
		select {
		case <-r.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, err := r.port.dialNode(ctx, string(name), protoRaft)
	if err == nil && r.isClosed() { // Close may not have seen it
		c.kill()
		err = net.ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("dial raft peer %s: %w", name, err)
	}
	return c, nil
}

// Close ends the layer: callers that wait for a peer's answer fail at once. Streams that peers
// dialled continue, because they end on their own.
func (r *raftLayer) Close() error {
	err := r.lane.Close()
	r.port.conns.killDialled(protoRaft)
	return err
}

// DialNode opens a Raft stream to a member by its name, at the present address in its record.
func (p *Port) DialNode(ctx context.Context, node string) (net.Conn, error) {
	c, err := p.dialNode(ctx, node, protoRaft)
	if err != nil {
		return nil, fmt.Errorf("dial raft peer %s: %w", node, err)
	}
	return c, nil
}

// ServeRPC answers other masters until ctx ends.
func (p *Port) ServeRPC(ctx context.Context, server *grpc.Server) error {
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(p.RPCListener()); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve peers: %w", err)
	}
	return nil
}

// RPCListener returns the listener for the gRPC server with ServerOptions (or at least
// ServerCredentials). Only one is open at a time, as with RaftLayer.
func (p *Port) RPCListener() net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rpc.isClosed() {
		p.rpc = newLane(p.advertise, p.closing)
	}
	return p.rpc
}

func (p *Port) laneOf(proto string) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	if proto == protoRaft {
		return p.raft
	}
	return p.rpc
}

// errBacklog: the consumer did not take a proved connection in time.
var errBacklog = errors.New("its service is not running here yet, or not keeping up")
