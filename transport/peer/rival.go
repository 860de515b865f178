package peer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"

	"clustermaster/test/knownbug"
)

// process tells the processes with one node key apart: it is the SHA-256 of the certificate, which
// each start makes anew.
type process [sha256.Size]byte

// processOf names the process at the other end of a connection whose certificate was checked.
func processOf(s tls.ConnectionState) process {
	return sha256.Sum256(s.PeerCertificates[0].Raw)
}

// A copied data directory, as that of a cloned machine, makes two processes with one node key. Both
// would vote as one member, and what one of them stored would count as stored by the other. The
// one at the address in the member's record stays as long as it runs, and the other is refused.

// checkCopy refuses an accepted connection if another process of that member runs.
func (p *Port) checkCopy(c *conn) error {
	if !p.contested(c.node, c.process) {
		return nil
	}
	at, _, _ := p.looks.Do(c.node, func() (any, error) {
		return p.rival(context.Background(), c.node, c.process), nil
	})
	if at == "" {
		return nil
	}
	return fmt.Errorf("%s at %s: %w", c.node, at, errCopy)
}

// rivalOf is rival for the other end of a join. A member that names another address than its
// record's has moved, or is a copy.
func (p *Port) rivalOf(ctx context.Context, from Hello, of process) string {
	node, err := p.pinned(from.SPKI)
	if err != nil {
		return ""
	}
	if at, _ := p.cfg.Pins.AddrOf(node); at == from.Addr && !p.contested(node, of) {
		return ""
	}
	return p.rival(ctx, node, of)
}

// contested reports whether there is a sign of another process of a member: it answered last, and
// still has a connection. A restarted master is another process, too, but the connections of the
// former one ended with that.
func (p *Port) contested(node string, of process) bool {
	if spki, ok := p.cfg.Pins.SPKIOf(node); ok && equalSPKI(spki, p.cfg.Key.SPKI()) {
		return of != p.process
	}
	l := p.linkOf(node)
	if l == nil {
		return false
	}
	l.mu.Lock()
	last, up := l.process, l.state == linkUp
	l.mu.Unlock()
	return up && last != of && p.conns.holds(node, last)
}

// rival returns the address at which another process of a member than this one runs now; "" if none
// does.
func (p *Port) rival(ctx context.Context, node string, of process) string {
	if knownbug.Is(knownbug.ClonesServe) {
		return ""
	}
	at, _ := p.cfg.Pins.AddrOf(node)
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DownAfter)
	defer cancel()
	c, err := p.dialNode(ctx, node, protoRPC)
	if err != nil {
		return "" // nobody is there
	}
	c.kill()
	if c.process == of {
		return ""
	}
	return at
}
