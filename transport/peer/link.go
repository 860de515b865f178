package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type linkState int

const (
	linkNew  linkState = iota // never answered, not yet silent for DownAfter
	linkUp                    // answered within DownAfter
	linkDown                  // silent for longer, or the port has no listener
)

// link is this master's connection to one member: a client conn for all RPCs, another for
// heartbeats alone (so that a large transfer does not delay them), and the results of the
// heartbeats.
type link struct {
	node    string
	self    bool // this master: always alive, no heartbeats
	rpc     *grpc.ClientConn
	beat    *grpc.ClientConn // nil when self
	rpcGap  *backOff
	beatGap *backOff
	refused chan struct{} // a heartbeat dial found no listener, or the peer refused our key
	seen    chan struct{} // the peer has dialled us
	stop    chan struct{}
	once    sync.Once

	mu       sync.Mutex // guards all below
	state    linkState
	since    time.Time     // of state
	heard    time.Time     // last answer
	disowned time.Time     // when it last refused our key; zero if it has answered since
	boot     []byte        // of the process that answered last
	process  process       // the same by its certificate
	askAgain time.Time     // no relay is asked for before
	broken   chan struct{} // closed and renewed when the peer goes down: ends running dials
}

// linkTo returns the link to a pinned member, and makes it if needed. Members bound the number of
// links: the heartbeat ends a link whose pin was removed.
func (p *Port) linkTo(node string) (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if l, ok := p.links[node]; ok {
		return l, nil
	}
	spki, ok := p.cfg.Pins.SPKIOf(node)
	if !ok {
		return nil, ErrUnknownPeer
	}
	l := &link{
		node:    node,
		self:    equalSPKI(spki, p.cfg.Key.SPKI()),
		refused: make(chan struct{}, 1),
		seen:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		since:   time.Now(),
		broken:  make(chan struct{}),
		rpcGap:  newBackOff(), beatGap: newBackOff(),
	}
	var err error
	if l.rpc, err = p.newRPCClient(l); err != nil {
		return nil, err
	}
	if !l.self {
		l.beat, err = p.newClient(l, l.beatGap, func() { notify(l.refused) })
		if err != nil {
			l.close()
			return nil, err
		}
	}
	p.links[node] = l
	if p.serving {
		p.startLink(l)
	}
	return l, nil
}

// linkOf returns the link to a member, or nil if there is none yet.
func (p *Port) linkOf(node string) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[node]
}

// notify puts a value into a channel with room for one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one is already waiting
	}
}

// startLink starts the heartbeat of l; the caller holds p.mu.
func (p *Port) startLink(l *link) {
	if !l.self {
		p.spawnLocked(func() { p.heartbeat(l) })
	}
}

// close ends the link's conns and its heartbeat; running calls fail.
func (l *link) close() {
	l.once.Do(func() {
		close(l.stop)
		_ = l.rpc.Close() // fails only if already closed
		if l.beat != nil {
			_ = l.beat.Close()
		}
	})
}

// dialLink dials for both conns of a link.
func (p *Port) dialLink(ctx context.Context, l *link, gap *backOff, refused func()) (net.Conn,
	error) {
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.spawn(func() {
		select {
		case <-broken:
		case <-l.stop:
		case <-ctx.Done():
		}
		cancel()
	})
	if err := gap.wait(ctx); err != nil {
		return nil, err
	}
	c, err := p.dialNode(ctx, l.node, protoRPC)
	gap.note()
	if err != nil {
		if refused != nil && errors.Is(err, syscall.ECONNREFUSED) {
			refused()
		}
		return nil, err // a *conn nil must not become a net.Conn
	}
	return c, nil
}

// up reports whether the peer answered within DownAfter.
func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkUp
}

// downFor is how long the peer has been down; 0 if it is not.
func (l *link) downFor(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != linkDown {
		return 0
	}
	return now.Sub(l.since)
}

// failFast returns an error if the peer is down.
func (l *link) failFast() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != linkDown {
		return nil
	}
	return status.Error(codes.Unavailable, fmt.Sprintf("peer %s has not answered since %s", l.node,
		l.since.UTC().Format(time.RFC3339)))
}

// noteUp records an answer and reports what changed.
func (l *link) noteUp(a answer, now time.Time) (cameUp, restarted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard, l.disowned = now, time.Time{}
	cameUp = l.state != linkUp
	restarted = !cameUp && !bytes.Equal(l.boot, a.boot)
	l.boot, l.process = a.boot, a.process
	if cameUp {
		l.state, l.since = linkUp, now
	}
	return cameUp, restarted
}

// noteDown ends running dials and reports whether the peer was up, and whether its state changed.
func (l *link) noteDown(now time.Time) (wasUp, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasUp, changed = l.state == linkUp, l.state != linkDown
	if changed {
		l.state, l.since = linkDown, now
		close(l.broken)
		l.broken = make(chan struct{})
	}
	return wasUp, changed
}
