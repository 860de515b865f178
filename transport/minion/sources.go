package minion

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// source is what a connection counts for: an IPv4 address, or the /64 of an IPv6 address, in which
// a host may choose freely.
type source struct{ netip.Prefix }

func sourceOf(addr netip.Addr) source {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits)
	return source{prefix}
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes,
		func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
}

// admit counts a connection for its source, once, and refuses it if the source has reached its
// share.
func (e *endpoint) admit(l *link) error {
	from := sourceOf(l.peer.Addr())
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.from.IsValid() || contains(e.lim.Unlimited, l.peer.Addr()) {
		return nil
	}
	share, scarce := e.lim.MaxPerSource, true
	if share == 0 {
		share = e.lim.Total.share(e.lim.MaxConns)
		scarce = len(e.lim.ProxyFrom) > 0 || len(e.links) > e.lim.MaxConns-e.lim.MaxConns/10 ||
			e.lim.Total.scarce()
	}
	if n := e.sources[from]; scarce && n >= share {
		return fmt.Errorf("%s has %d, see max_connections_per_source: %w", from, n, errShare)
	}
	l.from = from
	e.sources[from]++
	return nil
}

// leaveSource removes a connection from the count of its source. The caller holds mu.
func (e *endpoint) leaveSource(l *link) {
	if !l.from.IsValid() {
		return
	}
	if e.sources[l.from]--; e.sources[l.from] <= 0 {
		delete(e.sources, l.from)
	}
}

// maxAddresses bounds addresses: when it is reached, those not used since the last time are
// dropped.
const maxAddresses = 1 << 15

// addresses remembers sources. The zero value is ready.
type addresses struct {
	mu          sync.Mutex // guards now, before
	now, before map[source]struct{}
}

func (a *addresses) add(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep(sourceOf(addr))
}

func (a *addresses) has(addr netip.Addr) bool {
	from := sourceOf(addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, is := a.now[from]; is {
		return true
	}
	_, is := a.before[from]
	if is {
		a.keep(from)
	}
	return is
}

// keep adds a source; the caller holds mu.
func (a *addresses) keep(from source) {
	if len(a.now) >= maxAddresses || a.now == nil {
		a.now, a.before = make(map[source]struct{}), a.now
	}
	a.now[from] = struct{}{}
}
