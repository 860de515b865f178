package minion

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestSourceOf(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32",
		"2001:db8::1": "2001:db8::/64", "2001:db8::ffff:0:0:1": "2001:db8::/64",
		"fe80::1%eth0": "fe80::/64",
	} {
		if got := sourceOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if sourceOf(netip.Addr{}).IsValid() {
		t.Error("no address is a source")
	}
}

func TestMaxPerSource(t *testing.T) {
	t.Parallel()
	const crowd, other, balancer = "127.0.0.2", "127.0.0.3", "127.0.0.9"
	header := func(addr string) []byte {
		return fmt.Appendf(nil,
			"PROXY TCP4 %s 192.0.2.9 4711 4506\r\n", addr)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix(balancer + "/32")}
	for _, tt := range []struct {
		name     string
		lim      Limits
		from     string
		header   string // address in a PROXY header
		admitted int    // of the crowd's
		others   bool   // whether another address, or one in another header, is admitted then
	}{
		{name: "option", lim: Limits{MaxPerSource: 3}, from: crowd, admitted: 3, others: true},
		{name: "balancer", lim: Limits{MaxPerSource: 3, Unlimited: trusted}, from: balancer,
			admitted: 24, others: true},
		{name: "sources behind a balancer",
			lim: Limits{MaxPerSource: 3, ProxyFrom: trusted, Unlimited: trusted}, from: balancer,
			header: "192.0.2.1", admitted: 3, others: true},
		{name: "default behind a balancer",
			lim: Limits{MaxConns: 25, ProxyFrom: trusted, Unlimited: trusted}, from: balancer,
			header: "192.0.2.1", admitted: 16, others: true},
		// All minions may come from one address: it has nine tenths of all, and the others what is
		// left.
		{name: "default", lim: Limits{MaxConns: 20}, from: crowd, admitted: 18, others: true},
		{name: "default, room", lim: Limits{MaxConns: 100}, from: crowd, admitted: 24,
			others: true},
		{name: "default, few open files", lim: Limits{MaxConns: 100, Total: NewTotal(20)}, from: crowd,
			admitted: 18, others: true},
		{name: "default, the balancer is named", lim: Limits{MaxConns: 20, Unlimited: trusted},
			from: balancer, admitted: 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, addr, _ := startRequests(t, echo, tt.lim)
			dial := func(from, named string) *raw {
				c := dialFrom(t, addr, from)
				if named != "" {
					c.say(header(named))
				}
				return c
			}
			var in []*raw
			for range tt.admitted {
				in = append(in, dial(tt.from, tt.header).greet("REQ", "", 1))
			}
			if tt.admitted < 24 {
				for range 3 {
					c := dial(tt.from, tt.header)
					c.Write(greetingBytes(1))
					c.closedByPeer()
				}
				reason := "source_full"
				if tt.admitted == tt.lim.MaxConns {
					reason = "full"
				}
				eventually(t, "counted",
					func() bool { return value(t, s.met.closed.WithLabelValues(reason)) == 3 })
			}
			if tt.others {
				from, header := other, tt.header
				if header != "" {
					from, header = tt.from, strings.Replace(header, ".1", ".2", 1)
				}
				dial(from, header).greet("REQ", "", 1)
			}
			in[0].Close()
			in[1].Close()
			eventually(t, "two have gone",
				func() bool { return value(t, s.met.closed.WithLabelValues("gone")) == 2 })
			dial(tt.from, tt.header).greet("REQ", "", 1)
		})
	}
}

// from is a connection from an address, of which nothing is served.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }

// A crowd from one address gets no more than its share at any moment, however late its connections
// are served: the others' are accepted meanwhile.
func TestACrowdIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s, _, _ := startRequests(t, echo, Limits{MaxConns: 5, MaxPerSource: 2})
	enter := func(addr string) bool {
		conn, peer := net.Pipe()
		t.Cleanup(func() { conn.Close(); peer.Close() })
		return s.enter(from{conn, addr}) != nil
	}
	admitted := 0
	for i := range 10 {
		if enter(fmt.Sprintf("192.0.2.1:%d", 1000+i)) {
			admitted++
		}
	}
	if admitted != 2 {
		t.Errorf("%d of the crowd have got in", admitted)
	}
	if !enter("192.0.2.2:1000") {
		t.Error("there is no place for another one")
	}
	if n := value(t, s.met.closed.WithLabelValues("source_full")); n != 8 {
		t.Errorf("%v are counted as refused", n)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	var a addresses
	first := netip.MustParseAddr("192.0.2.1")
	if a.has(first) {
		t.Error("it is there already")
	}
	a.add(first)
	for i := range 3 * maxAddresses {
		if !a.has(first) {
			t.Fatalf("what is used is forgotten after %d", i)
		}
		a.add(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if len(a.now)+len(a.before) > 2*maxAddresses {
		t.Errorf("%d and %d are kept", len(a.now), len(a.before))
	}
	if a.has(netip.AddrFrom4([4]byte{10, 0, 0, 0})) {
		t.Error("what is not used is kept for ever")
	}
}
