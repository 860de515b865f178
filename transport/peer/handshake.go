package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Reasons to refuse a connection; each has its label in refusals.
var (
	errALPN        = errors.New("not one of the protocols raft, rpc, join, relay")
	errCertificate = errors.New("not a node certificate")
	errUnpinned    = errors.New("its node key is not pinned for a member")
	errJoinLimit   = errors.New("too many refused join attempts")
	errEvicted     = errors.New("no proof in time while others waited")
	errCopy        = errors.New("another process with its node key runs there, so this is a copy of its data directory")
)

// refusals maps errors to the reason label of clustermaster_peer_refused_total.
var refusals = []struct {
	err    error
	reason string
}{
	{errEvicted, "evicted"},
	{os.ErrDeadlineExceeded, "timeout"}, // in any step
	{errALPN, "alpn"},
	{errCertificate, "certificate"},
	{errUnpinned, "unpinned"},
	{errCopy, "copy"},
	{errBacklog, "backlog"},
	{errJoinLimit, "join_limit"},
	{errJoinClosed, "join_closed"},
	{errJoinHello, "join_hello"},
	{errJoinCluster, "join_cluster"},
	{errJoinLeft, "join_left"},
	{errJoinProof, "join_proof"},
}

// newServerTLS is the listener's side: TLS 1.3 and nothing older, no tickets
// (a resumed session would outlive a removal), a client certificate always.
func (p *Port) newServerTLS() *tls.Config {
	cfg := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		// small records would be small packets, and hide that large ones get lost
		DynamicRecordSizingDisabled: true,
		Certificates:                []tls.Certificate{p.cfg.Key.cert},
		ClientAuth:                  tls.RequireAnyClientCert,
		NextProtos:                  []string{protoRaft, protoRPC, protoJoin, protoRelay},
	}
	// Checked before making a signature, when strangers cost least.
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) != 1 {
			return nil, errALPN
		}
		switch hello.SupportedProtos[0] {
		case protoRaft, protoRPC, protoRelay:
		case protoJoin:
			if !p.tries.left(sourceOf(hello.Conn.RemoteAddr()), time.Now()) {
				return nil, errJoinLimit
			}
		default:
			return nil, errALPN
		}
		return nil, nil
	}
	// The certificate is known but its key is not yet proved: this may only refuse. The port trusts
	// the peer only after the hand-shake has returned.
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		spki, err := certSPKI(s.PeerCertificates)
		if err != nil || s.NegotiatedProtocol == protoJoin {
			return err
		}
		_, err = p.pinned(spki)
		return err
	}
	return cfg
}

// newClientTLS is the dialling side. check can refuse the peer's key before anything worth reading
// is sent.
func (p *Port) newClientTLS(proto string, check func(spki [32]byte) error) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true, // as the listener's side
		Certificates:                []tls.Certificate{p.cfg.Key.cert},
		NextProtos:                  []string{proto},
		// There are no certificate chains: VerifyConnection compares the pinned key.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.NegotiatedProtocol != proto {
				return errALPN
			}
			spki, err := certSPKI(s.PeerCertificates)
			switch {
			case err != nil:
				return err
			case proto == protoJoin && processOf(s) == p.process:
				return ErrSelf
			}
			return check(spki)
		},
	}
}

// pinned names the member with this key. It also compares the record itself in constant time,
// however Pins found it.
func (p *Port) pinned(spki [32]byte) (node string, err error) {
	node, ok := p.cfg.Pins.NodeBySPKI(spki)
	if !ok || p.checkPin(node, spki) != nil {
		return "", fmt.Errorf("key %x: %w", spki[:8], errUnpinned)
	}
	return node, nil
}

func (p *Port) checkPin(node string, spki [32]byte) error {
	want, ok := p.cfg.Pins.SPKIOf(node)
	if !ok || !equalSPKI(want, spki) {
		return fmt.Errorf("key %x is not that of %s: %w", spki[:8], node, errUnpinned)
	}
	return nil
}

// welcome makes the hand-shake of an accepted connection and passes it to its protocol. It closes
// connections that it does not pass on.
func (p *Port) welcome(e *entrant) {
	raw := e.conn
	left := false
	leave := func() (evicted bool) { // later calls do nothing
		if left {
			return false
		}
		left = true
		return p.waiting.leave(e)
	}
	deadline := time.Now().Add(p.cfg.HandshakeTimeout)
	err := raw.SetDeadline(deadline)
	var t *tls.Conn
	if err == nil {
		setUserTimeout(raw)
		t = tls.Server(raw, p.serverTLS)
		err = t.Handshake()
	}
	if err == nil && t.ConnectionState().NegotiatedProtocol == protoJoin {
		err = p.serveJoin(t, raw, leave)
	} else if err == nil {
		err = p.admit(t, raw, deadline, leave)
	}
	evicted := leave()
	if err == nil {
		return
	}
	raw.Close()
	if evicted {
		err = errEvicted
	}
	p.refuse(raw.RemoteAddr(), err)
}

// admit passes a connection whose key is proved to Raft or the RPC server, or relays it.
func (p *Port) admit(t *tls.Conn, raw net.Conn, deadline time.Time, leave func() bool) error {
	s := t.ConnectionState()
	spki, err := certSPKI(s.PeerCertificates)
	if err != nil {
		return err
	}
	node, err := p.pinned(spki)
	if err != nil {
		return err
	}
	if leave() {
		return errEvicted
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c := &conn{Conn: t, raw: raw, node: node, spki: spki, process: processOf(s),
		proto: s.NegotiatedProtocol}
	if err := p.checkCopy(c); err != nil {
		return err
	}
	if err := p.establish(c); err != nil {
		return err
	}
	if c.proto == protoRelay {
		p.relay(c, deadline)
		return nil
	}
	if !p.laneOf(c.proto).deliver(c, time.Until(deadline)) {
		c.kill()
		return fmt.Errorf("%s from %s: %w", c.proto, node, errBacklog)
	}
	p.sawPeer(node)
	return nil
}

// establish registers c and then checks the pin once more: either a Drop finds c registered, or
// this check sees the removal.
func (p *Port) establish(c *conn) error {
	if !p.conns.track(c) {
		return net.ErrClosed
	}
	if err := p.checkPin(c.node, c.spki); err != nil {
		c.kill()
		return err
	}
	return nil
}

// refuse counts and logs a connection that ended before it had an owner.
func (p *Port) refuse(addr net.Addr, err error) {
	select {
	case <-p.closing:
		return // ended by us
	default:
	}
	reason := "tls"
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			reason = r.reason
			break
		}
	}
	p.m.refused.WithLabelValues(reason).Inc()
	if n := p.seldom.Due(logKind{sourceOf(addr), reason}); n > 0 {
		p.cfg.Log.Warn("peer connection refused", "addr", addr.String(), "reason", reason, "err",
			err, "n", n)
	}
}
