package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"clustermaster/cluster/level"
	"clustermaster/transport/peer/peerpb"
)

const (
	// directFirst is how long a dial tries the line itself before it asks another master.
	directFirst = 500 * time.Millisecond
	// onwardTimeout is how long the other master tries.
	onwardTimeout = 2 * time.Second
	// relaysAsked is how many masters one dial asks.
	relaysAsked = 3
	// askedAgain is the time between two searches that found no relay.
	askedAgain = 3 * time.Second
	// maxRelayMessage bounds a request and a reply, in bytes; a node name has fewer than 300.
	maxRelayMessage = 1024
)

// relayLevel is the level of a cluster whose members all know relays.
var relayLevel = level.OfField("clustermaster.peer.RelayRequest", "node")

// errNoRelay: no other master reaches the peer.
var errNoRelay = errors.New("no other master reaches it")

// reach connects to addr, where node listens. If the line there is cut, or large packets get lost
// on it so that no hand-shake ends, it connects through another master, which passes on bytes that
// it can't read: TLS is between the ends.
func (p *Port) reach(ctx context.Context, node, addr, proto string, check keyCheck) (reached, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the slower way
	direct := attempt(func() (reached, error) { return p.line(ctx, addr, proto, check) })
	var detour <-chan attempted // nil while no other master is asked
	// A line that was cut a moment ago may need a detour before this dial ends.
	look := time.NewTicker(directFirst)
	defer look.Stop()
	var failed error // of the line
	for {
		select {
		case a := <-direct:
			if a.err == nil {
				discard(detour)
				return a.reached, nil
			}
			direct, failed = nil, a.err
		case a := <-detour:
			if a.err == nil {
				discard(direct)
				return a.reached, nil
			}
			detour = nil
		case <-look.C:
		}
		if detour == nil && ctx.Err() == nil && p.mayDetour(node) {
			detour = attempt(func() (reached, error) { return p.detour(ctx, node, proto, check) })
		}
		if direct == nil && detour == nil {
			return reached{}, failed
		}
	}
}

// attempted is the outcome of one way to a member.
type attempted struct {
	reached
	err error
}

// attempt dials in the background; its channel gets one result.
func attempt(dial func() (reached, error)) <-chan attempted {
	out := make(chan attempted, 1)
	go func() {
		r, err := dial()
		out <- attempted{r, err}
	}()
	return out
}

// discard closes what an attempt that lost still brings.
func discard(slower <-chan attempted) {
	if slower == nil {
		return
	}
	go func() {
		if a := <-slower; a.err == nil {
			a.raw.Close()
		}
	}()
}

// mayDetour reports whether another master may be asked for node now: its line does not work, or
// did not when it was last tried.
func (p *Port) mayDetour(node string) bool {
	if !p.atLevel(relayLevel) {
		return false
	}
	l := p.linkOf(node)
	if l == nil || l.self {
		return false
	}
	l.mu.Lock()
	due := !time.Now().Before(l.askAgain)
	l.mu.Unlock()
	return due && (!l.up() || p.conns.through(node) != "")
}

// detour connects to node through another master.
func (p *Port) detour(ctx context.Context, node, proto string, check keyCheck) (reached, error) {
	err := errNoRelay
	for _, by := range p.relays(node) {
		r, why := p.dialThrough(ctx, by, node, proto, check)
		if why == nil {
			return r, nil
		}
		err = fmt.Errorf("through %s: %w", by, why)
	}
	if l := p.linkOf(node); l != nil && ctx.Err() == nil {
		l.mu.Lock()
		l.askAgain = time.Now().Add(askedAgain)
		l.mu.Unlock()
	}
	return reached{}, err
}

// dialThrough connects to node through the master by.
func (p *Port) dialThrough(ctx context.Context, by, node, proto string, check keyCheck) (reached,
	error) {
	ctx, cancel := context.WithTimeout(ctx, 2*onwardTimeout)
	defer cancel()
	c, err := p.tunnel(ctx, by, node)
	if err != nil {
		return reached{}, err
	}
	t, err := p.startTLS(ctx, c, proto, check)
	return reached{Conn: t, raw: c, through: by}, err
}

// relays lists masters that are reached without a detour, in a random order so that they share the
// load.
func (p *Port) relays(node string) []string {
	p.mu.Lock()
	var out []string
	for name, l := range p.links {
		if name != node && !l.self && l.up() {
			out = append(out, name)
		}
	}
	p.mu.Unlock()
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	var direct []string
	for _, name := range out {
		if len(direct) < relaysAsked && p.conns.through(name) == "" {
			direct = append(direct, name)
		}
	}
	return direct
}

// tunnel asks the master by to connect this one to node.
func (p *Port) tunnel(ctx context.Context, by, node string) (*conn, error) {
	c, err := p.dialLine(ctx, by, protoRelay)
	if err != nil {
		return nil, err
	}
	ended := context.AfterFunc(ctx, c.kill)
	var reply peerpb.RelayReply
	err = writeMessage(c, &peerpb.RelayRequest{Node: node})
	if err == nil {
		err = readMessage(c, maxRelayMessage, &reply)
	}
	if err == nil && reply.GetRefused() != "" {
		err = errors.New(reply.GetRefused())
	}
	if !ended() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// relay serves a master whose line to another one is cut, until either of them hangs up. c has
// proved its key and is registered.
func (p *Port) relay(c *conn, deadline time.Time) {
	defer c.Close()
	err := c.SetDeadline(deadline)
	var request peerpb.RelayRequest
	if err == nil {
		err = readMessage(c, maxRelayMessage, &request)
	}
	if err != nil {
		p.cfg.Log.Debug("relay: no request", "peer", c.node, "err", err)
		return
	}
	var reply peerpb.RelayReply
	out, err := p.onward(c.node, request.GetNode())
	if err != nil {
		reply.Refused = err.Error()
	} else {
		defer out.Close()
	}
	if werr := writeMessage(c, &reply); err != nil || werr != nil {
		return
	}
	if c.SetDeadline(time.Time{}) != nil {
		return
	}
	if n := p.seldom.Due(logKind{sourceOf(c.RemoteAddr()), "relay to " + request.GetNode()}); n > 0 {
		p.cfg.Log.Info("relay to a peer begins: the line between the two is cut", "peer", c.node,
			"to", request.GetNode(), "n", n)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, c) // its end is the end of the relay, whatever the reason
		out.Close()
	}()
	_, _ = io.Copy(c, out)
	c.Close()
	<-done
}

// onward connects a relay to node. It takes no detour itself, so relays make no loops.
func (p *Port) onward(from, node string) (net.Conn, error) {
	addr, ok := p.cfg.Pins.AddrOf(node)
	if !ok || node == from {
		return nil, ErrUnknownPeer
	}
	if !p.Alive(node) || p.conns.through(node) != "" {
		return nil, errors.New("it is not reached from there either")
	}
	ctx, cancel := context.WithTimeout(context.Background(), onwardTimeout)
	defer cancel()
	raw, err := p.cfg.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	setUserTimeout(raw)
	return raw, nil
}

// Through returns the master that relays this one's calls of node, or "" if none does.
func (p *Port) Through(node string) string { return p.conns.through(node) }

const (
	// firstProbe is the time from the start of a detour to the first new try of the line itself.
	firstProbe = 5 * time.Second
	lastProbe  = 5 * time.Minute
	// steady is how long a line must work before it counts as mended.
	steady = time.Minute
)

// detours returns from the relay to the line itself when that works again. Each time the line
// breaks soon after, the next try comes later. One goroutine uses it, the heartbeat of the link.
type detours struct {
	port *Port
	link *link
	gap  time.Duration // between tries
	next time.Time     // of the next try; zero: there is no detour
	back time.Time     // when the last detour ended
}

// check looks whether there is a detour, and tries the line if it is time.
func (d *detours) check(now time.Time) {
	through := d.port.conns.through(d.link.node)
	switch {
	case through == "":
		if !d.next.IsZero() {
			d.back, d.next = now, time.Time{}
		}
		return
	case d.next.IsZero():
		if now.Sub(d.back) < steady {
			d.gap = min(2*d.gap, lastProbe)
		} else {
			d.gap = firstProbe
		}
		d.next = now.Add(d.gap)
		d.port.cfg.Log.Warn("the line to a peer is cut, or loses large packets; another master relays to it, "+
			"check firewalls, routes and MTU between the two", "peer", d.link.node, "through", through)
		return
	case now.Before(d.next):
		return
	}
	d.next = now.Add(d.gap)
	d.port.spawn(func() { d.port.tryLine(d.link.node) })
}

// tryLine ends the detour to node if the line works again. Calls that are running fail, as at any
// broken connection, and their callers repeat them.
func (p *Port) tryLine(node string) {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.HandshakeTimeout)
	defer cancel()
	c, err := p.dialLine(ctx, node, protoRPC)
	if err != nil {
		return
	}
	c.Close()
	p.cfg.Log.Info("the line to a peer works again; its relay ends", "peer", node)
	p.conns.kill(node, "line", func(c *conn) bool { return c.dialled && c.via != "" })
}
