package faults

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// proxies has masters on loopback, each behind a proxy at its peer port. The proxy recognizes the
// caller by its address. While a link is cut, it accepts connections and bytes and passes nothing
// on.
type proxies struct {
	base    e2e.Base
	mu      sync.Mutex
	changed *sync.Cond
	cuts    map[[2]int]bool
	thin    map[[2]int]bool // lose what is large
	closed  bool
	conns   map[net.Conn]bool
}

// proxyAt plus a master's number is the last part of its proxy's address.
const proxyAt = 150

func newProxies(t testing.TB, masters int) *proxies {
	t.Helper()
	p := &proxies{base: e2e.FreeBase(t, masters), cuts: map[[2]int]bool{}, thin: map[[2]int]bool{},
		conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	var wg sync.WaitGroup
	for i := 1; i <= masters; i++ {
		ln, err := net.Listen("tcp", net.JoinHostPort(p.Peer(i), strconv.Itoa(e2e.PeerPort)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		wg.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { p.carry(conn, i) })
			}
		})
	}
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		for c := range p.conns {
			c.Close()
		}
		p.changed.Broadcast()
		p.mu.Unlock()
	})
	return p
}

// Host implements e2e.Network.
func (p *proxies) Host(i int) string { return p.base.Master(i) }

// Peer implements e2e.Network.
func (p *proxies) Peer(i int) string { return p.base.Master(proxyAt + i) }

// Command implements e2e.Network.
func (p *proxies) Command(_ int, path string, args []string) (string,
	[]string) {
	return path, args
}

func (p *proxies) cutOneWay(_ testing.TB, from, to int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts[[2]int{from, to}] = true
}

func (p *proxies) narrow(_ testing.TB, a, b int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thin[[2]int{a, b}], p.thin[[2]int{b, a}] = true, true
}

func (p *proxies) heal(testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.cuts)
	clear(p.thin)
	p.changed.Broadcast()
}

// open waits until from reaches to with so many bytes. It returns false once the test has ended.
func (p *proxies) open(from, to, size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	way := [2]int{from, to}
	for (p.cuts[way] || p.thin[way] && size > 1200) && !p.closed {
		p.changed.Wait()
	}
	return !p.closed
}

// carry joins a connection for a master with the master itself.
func (p *proxies) carry(in net.Conn, to int) {
	defer in.Close()
	caller, _ := in.RemoteAddr().(*net.TCPAddr)
	from := int(caller.IP.To4()[3])
	if !p.keep(in) || !p.open(from, to, 0) || !p.open(to, from, 0) {
		return
	}
	// The member's log and limits must see the caller's address.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: caller.IP}, Timeout: 5 * time.Second}
	out, err := d.Dial("tcp", net.JoinHostPort(p.Host(to), strconv.Itoa(e2e.PeerPort)))
	if err != nil {
		return
	}
	defer out.Close()
	if !p.keep(out) {
		return
	}
	var wg sync.WaitGroup
	pump := func(dst, src net.Conn, from, to int) {
		defer dst.Close()
		defer src.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			if !p.open(from, to, n) {
				return
			}
			if n > 0 {
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	wg.Go(func() { pump(out, in, from, to) })
	wg.Go(func() { pump(in, out, to, from) })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, in)
	delete(p.conns, out)
	p.mu.Unlock()
}

// keep has the connection closed at the end of the test.
func (p *proxies) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	return !p.closed
}
