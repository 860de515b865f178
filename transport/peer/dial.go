package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrUnknownPeer: no member of that name, or none at that address, is pinned.
var ErrUnknownPeer = errors.New("not a member of this cluster")

// keepAlive detects within about 11 s that the other end of an idle connection is gone. Heartbeats
// are faster; this is for connections without them.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second,
	Count: 3}

// userTimeout ends a connection whose sent data stays unacknowledged, or whose peer's window stays
// closed, for so long.
const userTimeout = 5 * time.Second

// dialNode connects to a member at the address of its record.
func (p *Port) dialNode(ctx context.Context, node, proto string) (*conn, error) {
	addr, ok := p.cfg.Pins.AddrOf(node)
	if !ok {
		return nil, fmt.Errorf("%s: %w", node, ErrUnknownPeer)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.HandshakeTimeout)
	defer cancel()
	raw, via, err := p.reach(ctx, node, addr)
	if err != nil {
		return nil, err
	}
	return p.shakeHands(ctx, raw, via, node, proto)
}

// dialLine is dialNode without a detour, within ctx.
func (p *Port) dialLine(ctx context.Context, node, proto string) (*conn, error) {
	addr, ok := p.cfg.Pins.AddrOf(node)
	if !ok {
		return nil, fmt.Errorf("%s: %w", node, ErrUnknownPeer)
	}
	raw, err := p.cfg.Network.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return p.shakeHands(ctx, raw, "", node, proto)
}

// dialAddr connects to the member whose record names addr.
func (p *Port) dialAddr(ctx context.Context, addr, proto string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.HandshakeTimeout)
	defer cancel()
	raw, via, err := p.reach(ctx, p.nodeAt(addr), addr)
	if err != nil {
		return nil, err
	}
	var node string
	t, err := p.startTLS(ctx, raw, proto, func(spki [32]byte) (err error) {
		if node, err = p.pinned(spki); err != nil {
			return err
		}
		if at, ok := p.cfg.Pins.AddrOf(node); !ok || at != addr {
			return fmt.Errorf("%s answers at %s, its record says %q: %w", node, addr, at,
				errUnpinned)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p.dialled(t, raw, via, node, proto)
}

// nodeAt names the watched member whose record names addr, or returns "".
func (p *Port) nodeAt(addr string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node := range p.links {
		if at, ok := p.cfg.Pins.AddrOf(node); ok && at == addr {
			return node
		}
	}
	return ""
}

// shakeHands makes a connection with node of raw, which it closes if that fails.
func (p *Port) shakeHands(ctx context.Context, raw net.Conn, via, node, proto string) (*conn,
	error) {
	t, err := p.startTLS(ctx, raw, proto,
		func(spki [32]byte) error { return p.checkPin(node, spki) })
	if err != nil {
		return nil, err
	}
	return p.dialled(t, raw, via, node, proto)
}

func (p *Port) dialled(t *tls.Conn, raw net.Conn, via, node, proto string) (*conn, error) {
	spki, err := certSPKI(t.ConnectionState().PeerCertificates)
	if err == nil {
		c := &conn{Conn: t, raw: raw, via: via, node: node, spki: spki, proto: proto, dialled: true,
			refused: func() { p.noteDisowned(node) }}
		if err = p.establish(c); err == nil {
			return c, nil
		}
	}
	raw.Close()
	return nil, err
}

// startTLS makes the hand-shake and checks the key, within ctx. It closes raw if that fails.
func (p *Port) startTLS(ctx context.Context, raw net.Conn, proto string,
	check func(spki [32]byte) error) (*tls.Conn, error) {
	setUserTimeout(raw)
	t := tls.Client(raw, p.newClientTLS(proto, check))
	if err := t.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("shake hands with %s: %w", raw.RemoteAddr(), err)
	}
	return t, nil
}

// machine is the TCP of this machine.
type machine struct{ from string } // local address of dialled connections, or ""

// Listen implements Network.
func (machine) Listen(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	return lc.Listen(ctx, "tcp", addr)
}

// Dial implements Network.
func (m machine) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive}
	if m.from != "" {
		ip := net.ParseIP(m.from)
		if ip == nil {
			return nil, fmt.Errorf("dial from %q: not an address", m.from)
		}
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return d.DialContext(ctx, "tcp", addr)
}
