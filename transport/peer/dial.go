package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// ErrUnknownPeer: no member of that name is pinned.
var ErrUnknownPeer = errors.New("not a member of this cluster")

// keepAlive detects within about 11 s that the other end of an idle connection is gone. Heartbeats
// are faster; this is for connections without them.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second,
	Count: 3}

// userTimeout ends a connection whose sent data stays unacknowledged, or whose peer's window stays
// closed, for so long.
const userTimeout = 5 * time.Second

// reached is a connection with a member, after TLS.
type reached struct {
	*tls.Conn
	raw     net.Conn // below TLS
	through string   // the master that relays it, or ""
}

// keyCheck refuses keys of the other end.
type keyCheck = func(spki [32]byte) error

// dialNode connects to a member at the address of its record.
func (p *Port) dialNode(ctx context.Context, node, proto string) (*conn, error) {
	addr, ok := p.cfg.Pins.AddrOf(node)
	if !ok {
		return nil, fmt.Errorf("%s: %w", node, ErrUnknownPeer)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.HandshakeTimeout)
	defer cancel()
	r, err := p.reach(ctx, node, addr, proto, p.keyOf(node))
	if err != nil {
		return nil, err
	}
	return p.dialled(r, node, proto)
}

// dialLine is dialNode without a detour, within ctx.
func (p *Port) dialLine(ctx context.Context, node, proto string) (*conn, error) {
	addr, ok := p.cfg.Pins.AddrOf(node)
	if !ok {
		return nil, fmt.Errorf("%s: %w", node, ErrUnknownPeer)
	}
	r, err := p.line(ctx, addr, proto, p.keyOf(node))
	if err != nil {
		return nil, err
	}
	return p.dialled(r, node, proto)
}

// keyOf admits the key of a member alone.
func (p *Port) keyOf(node string) keyCheck {
	return func(spki [32]byte) error { return p.checkPin(node, spki) }
}

// line connects to addr without a detour.
func (p *Port) line(ctx context.Context, addr, proto string, check keyCheck) (reached, error) {
	raw, err := p.cfg.Network.Dial(ctx, addr)
	if err != nil {
		return reached{}, err
	}
	t, err := p.startTLS(ctx, raw, proto, check)
	return reached{Conn: t, raw: raw}, err
}

// dialled registers a connection with node.
func (p *Port) dialled(r reached, node, proto string) (*conn, error) {
	spki, err := certSPKI(r.ConnectionState().PeerCertificates)
	if err == nil {
		c := &conn{Conn: r.Conn, raw: r.raw, via: r.through, node: node, spki: spki,
			process: processOf(r.ConnectionState()), proto: proto, dialled: true,
			refused: func() { p.noteDisowned(node) }}
		if err = p.establish(c); err == nil {
			return c, nil
		}
	}
	r.raw.Close()
	return nil, err
}

// startTLS makes the hand-shake and checks the key, within ctx. It closes raw if that fails.
func (p *Port) startTLS(ctx context.Context, raw net.Conn, proto string,
	check func(spki [32]byte) error) (*tls.Conn, error) {
	setUserTimeout(raw)
	t := tls.Client(raw, p.newClientTLS(proto, check))
	if err := t.HandshakeContext(ctx); err != nil {
		raw.Close()
		hint := ""
		if errors.Is(err, context.DeadlineExceeded) {
			hint = " (its master hangs, or large packets get lost: check the MTU on the way)"
		}
		return nil, fmt.Errorf("shake hands with %s: %w%s", raw.RemoteAddr(), err, hint)
	}
	return t, nil
}

// machine is the TCP of this machine.
type machine struct {
	from  string // local address of dialled connections, or ""
	names *lookups
}

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
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	if last := m.names.instead(ctx, host); last != "" {
		return d.DialContext(ctx, "tcp", net.JoinHostPort(last, port))
	}
	c, err := d.DialContext(ctx, "tcp", addr) // looks again, and chooses among the addresses
	if err == nil {
		m.names.reached(host, c.RemoteAddr())
	}
	return c, err
}
