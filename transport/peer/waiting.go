package peer

import (
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// source is the unit of limits and log lines: an IPv4 address, or the /64 of an IPv6 address, whose
// addresses one host can use freely.
type source netip.Prefix

func sourceOf(addr net.Addr) source {
	var ip netip.Addr
	if t, ok := addr.(*net.TCPAddr); ok {
		ip = t.AddrPort().Addr().Unmap().WithZone("")
	}
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil { // not an IP address: all such connections share one source
		return source{}
	}
	return source(p)
}

// waiting holds the accepted connections that have not yet proved their identity. It never refuses
// a newcomer: at a limit it closes the oldest connection of the source with the most, so silent
// connections cannot keep a member out, whose own hand-shake takes milliseconds. It is safe for
// concurrent use.
type waiting struct {
	max, maxPer int
	count       prometheus.Gauge // number of waiting connections

	mu       sync.Mutex // guards all below; no I/O under it
	closed   bool
	total    int
	bySource map[source][]*entrant // oldest first
}

// entrant is one unproved connection.
type entrant struct {
	conn    net.Conn
	from    source
	evicted bool // guarded by waiting.mu
}

func newWaiting(total, perSource int, count prometheus.Gauge) *waiting {
	return &waiting{max: total, maxPer: perSource, count: count,
		bySource: make(map[source][]*entrant)}
}

// enter adds conn and closes the connection that must make room, if any.
func (w *waiting) enter(conn net.Conn, from source) (*entrant, bool) {
	e := &entrant{conn: conn, from: from}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, false
	}
	var victim *entrant
	switch {
	case len(w.bySource[from]) >= w.maxPer:
		victim = w.bySource[from][0]
	case w.total >= w.max:
		victim = w.bySource[w.greediest()][0]
	}
	if victim != nil {
		victim.evicted = true
		w.remove(victim)
	}
	w.bySource[from] = append(w.bySource[from], e)
	w.total++
	w.count.Inc()
	w.mu.Unlock()
	if victim != nil {
		victim.conn.Close()
	}
	return e, true
}

// leave removes e and reports whether it had been evicted.
func (w *waiting) leave(e *entrant) (evicted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(e)
	return e.evicted
}

// close ends every hand-shake and refuses new ones.
func (w *waiting) close() {
	w.mu.Lock()
	w.closed = true
	var all []*entrant
	for _, list := range w.bySource {
		all = append(all, list...)
	}
	w.mu.Unlock()
	for _, e := range all {
		e.conn.Close()
	}
}

func (w *waiting) remove(e *entrant) {
	list := w.bySource[e.from]
	for i, x := range list {
		if x != e {
			continue
		}
		w.total--
		w.count.Dec()
		if len(list) == 1 {
			delete(w.bySource, e.from)
			return
		}
		w.bySource[e.from] = append(list[:i], list[i+1:]...)
		return
	}
}

func (w *waiting) greediest() source {
	var most source
	n := -1
	for from, list := range w.bySource {
		if len(list) > n {
			most, n = from, len(list)
		}
	}
	return most
}
