package peer

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
)

// The protocols of the port, as ALPN spells them.
const (
	protoRaft = "raft"
	protoRPC  = "rpc"
	protoJoin = "join"
	// protoRelay: the first frame names the member to whose port the bytes behind it go.
	protoRelay = "relay"
)

// conn is an established connection with a pinned peer. It stays in the registry until it is
// closed, so that Drop and shutdown can end it.
type conn struct {
	*tls.Conn
	raw     net.Conn // a *conn of protoRelay if another master relays
	via     string   // that master, or ""
	node    string
	spki    [32]byte
	process process
	proto   string
	dialled bool // by this side
	reg     *registry
	heard   bool   // something was read; the reader's
	refused func() // called when the other end refuses this side's key
}

// Read detects the refusal of a dialled connection: a TLS 1.3 hand-shake ends here before the other
// end has checked our key, so its refusal is the first thing to read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard = true
	}
	if err != nil && !c.heard && c.refused != nil {
		if alert := (*net.OpError)(nil); errors.As(err, &alert) && alert.Op == "remote error" {
			c.refused()
		}
	}
	return n, err
}

// Close says goodbye and closes.
func (c *conn) Close() error {
	c.reg.forget(c)
	return c.Conn.Close()
}

// kill ends the connection at once and drops unsent data. It sends no TLS goodbye, which a stopped
// peer could hold up for seconds.
func (c *conn) kill() {
	c.reg.forget(c)
	switch raw := c.raw.(type) {
	case *conn:
		raw.kill()
		return
	case *net.TCPConn:
		_ = raw.SetLinger(0) // only the close below matters
	}
	_ = c.raw.Close()
}

// registry holds every established connection by peer. It is safe for concurrent use.
type registry struct {
	maxPer int
	m      *metrics

	mu     sync.Mutex // guards all below; no I/O under it
	closed bool
	byNode map[string][]*conn // oldest first
}

func newRegistry(maxPer int, m *metrics) *registry {
	return &registry{maxPer: maxPer, m: m, byNode: make(map[string][]*conn)}
}

// track registers c. If one peer has more than maxPer connections in one direction, it closes the
// oldest. It returns false once the port has closed.
func (r *registry) track(c *conn) bool {
	c.reg = r
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return false
	}
	var surplus *conn
	n := 0
	for _, x := range r.byNode[c.node] {
		if x.dialled == c.dialled {
			if surplus == nil {
				surplus = x
			}
			n++
		}
	}
	if n < r.maxPer {
		surplus = nil
	}
	r.byNode[c.node] = append(r.byNode[c.node], c)
	r.m.conns.WithLabelValues(c.proto, c.side()).Inc()
	r.mu.Unlock()
	if surplus != nil {
		surplus.kill()
		r.m.dropped.WithLabelValues("surplus").Inc()
	}
	return true
}

func (r *registry) forget(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.byNode[c.node]
	for i, x := range list {
		if x != c {
			continue
		}
		r.m.conns.WithLabelValues(c.proto, c.side()).Dec()
		if len(list) == 1 {
			delete(r.byNode, c.node)
		} else {
			r.byNode[c.node] = append(list[:i], list[i+1:]...)
		}
		return
	}
}

// holds reports whether a process of a peer has a connection.
func (r *registry) holds(node string, of process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.byNode[node], func(c *conn) bool { return c.process == of })
}

// through returns the master that relays the calls that this side makes to node, or "".
func (r *registry) through(node string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.byNode[node] {
		if c.via != "" && c.proto == protoRPC {
			return c.via
		}
	}
	return ""
}

// kill ends the connections of a peer that pick selects, and counts them.
func (r *registry) kill(node, reason string, pick func(*conn) bool) {
	r.mu.Lock()
	var doomed []*conn
	for _, c := range r.byNode[node] {
		if pick(c) {
			doomed = append(doomed, c)
		}
	}
	r.mu.Unlock()
	for _, c := range doomed {
		c.kill()
	}
	r.m.dropped.WithLabelValues(reason).Add(float64(len(doomed)))
}

// killDialled ends the connections of a protocol that this side dialled.
func (r *registry) killDialled(proto string) {
	r.mu.Lock()
	var doomed []*conn
	for _, list := range r.byNode {
		for _, c := range list {
			if c.dialled && c.proto == proto {
				doomed = append(doomed, c)
			}
		}
	}
	r.mu.Unlock()
	for _, c := range doomed {
		c.kill()
	}
}

// close ends every connection and refuses new ones.
func (r *registry) close() {
	r.mu.Lock()
	r.closed = true
	var all []*conn
	for _, list := range r.byNode {
		all = append(all, list...)
	}
	r.mu.Unlock()
	for _, c := range all {
		c.kill()
	}
}

func (c *conn) side() string {
	if c.dialled {
		return "dialled"
	}
	return "accepted"
}
