package peer

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"sync/atomic"
	"testing"
)

// names is a DNS server on loopback that the machine's resolver asks in these tests. It gives every
// name one address.
type names struct {
	conn   net.PacketConn
	answer atomic.Pointer[net.IP]
	asked  atomic.Int64
}

var nameServer atomic.Pointer[names]

// What net.Dialer asks, as the product uses it.
func init() {
	net.DefaultResolver = &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if s := nameServer.Load(); s != nil {
				network, address = "udp", s.conn.LocalAddr().String()
			}
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}}
}

func serveNames(t *testing.T, ip net.IP) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &names{conn: conn}
	s.answer.Store(&ip)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := s.reply(buf[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	nameServer.Store(s)
	t.Cleanup(func() {
		nameServer.Store(nil)
		conn.Close()
		<-done
	})
	return s
}

// reply answers one question (RFC 1035, section 4): with the address if it is asked for one of
// IPv4, else with none. Without an address it is silent.
func (s *names) reply(q []byte) []byte {
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	if end+5 > len(q) {
		return nil
	}
	end += 5
	out := append([]byte(nil), q[:end]...)
	binary.BigEndian.PutUint16(out[2:], 0x8180) // an answer without error
	clear(out[6:12])
	if binary.BigEndian.Uint16(q[end-4:]) != 1 { // not type A
		return out
	}
	s.asked.Add(1)
	ip := s.answer.Load()
	if ip == nil {
		return nil
	}
	binary.BigEndian.PutUint16(out[6:], 1)
	// the name asked for, type A, IN, 300 s, 4 bytes
	out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0x2c, 0, 4)
	return append(out, ip.To4()...)
}

// A member that is advertised by name is looked up again at each new connection: when it gets
// another address, and its name says so, it is reached there, although the old answer was good for
// 300 s more.
func TestNamesAreResolvedAgain(t *testing.T) {
	s := serveNames(t, net.IPv4(127, 0, 0, 1))
	pins := newMembers()
	one := newPort(t, pins, "m1/01").serve()
	two := newPort(t, pins, "m2/02").serve()
	port := two.Addr().(*net.TCPAddr).Port
	pins.add(one.node, one.key.SPKI(), one.Addr().String())
	pins.add(two.node, two.key.SPKI(), net.JoinHostPort("m2.masters.test", strconv.Itoa(port)))
	eventually(t, "m2 is reached by its name", func() bool { return one.Alive(two.node) })
	two.stop()
	eventually(t, "m2 is gone", func() bool { return !one.Alive(two.node) })
	before := s.asked.Load()
	ip := net.IPv4(127, 0, 0, 2)
	s.answer.Store(&ip)
	newPort(t, pins, two.node, func(c *Config) {
		c.Key, c.Listen = two.key, net.JoinHostPort(ip.String(), strconv.Itoa(port))
	}).serve()
	eventually(t, "m2 is reached at its new address", func() bool { return one.Alive(two.node) })
	if s.asked.Load() == before {
		t.Error("nobody asked for its name again")
	}
}

// While the name service is silent a member is reached at its last address, also by a master that
// has been started since.
func TestNamesOfASilentService(t *testing.T) {
	s := serveNames(t, net.IPv4(127, 0, 0, 1))
	file := filepath.Join(t.TempDir(), "addresses.json")
	keeps := func(c *Config) { c.NamesFile = file }
	pins := newMembers()
	one, two := newPort(t, pins, "m1/01", keeps).serve(), newPort(t, pins, "m2/02").serve()
	port := two.Addr().(*net.TCPAddr).Port
	pins.add(one.node, one.key.SPKI(), one.Addr().String())
	pins.add(two.node, two.key.SPKI(), net.JoinHostPort("m2.masters.test", strconv.Itoa(port)))
	eventually(t, "m2 is reached by its name", func() bool { return one.Alive(two.node) })

	s.answer.Store(nil)
	two.stop()
	eventually(t, "m2 is gone", func() bool { return !one.Alive(two.node) })
	newPort(t, pins, two.node, func(c *Config) {
		c.Key, c.Listen = two.key, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}).serve()
	eventually(t, "m2 is reached at its last address", func() bool { return one.Alive(two.node) })

	one.stop()
	again := newPort(t, pins, one.node, keeps, func(c *Config) { c.Key = one.key }).serve()
	eventually(t, "m2 is reached after a start", func() bool { return again.Alive(two.node) })
}

// A file of addresses that can't be used costs its addresses alone.
func TestNamesFromABrokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "addresses.json")
	for _, text := range []string{"", "{", `{"level":2,"names":{"a":"::1"}}`, `{"level":1}`, `[]`,
		`{"level":1,"names":{"a":["::1"]}}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l := newLookups(file, slog.New(slog.DiscardHandler))
		l.reached("b", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 4520})
		want := map[string]string{"b": "127.0.0.2"}
		if got := newLookups(file, slog.New(slog.DiscardHandler)).last; !reflect.DeepEqual(got, want) {
			t.Errorf("after %q: %v, want %v", text, got, want)
		}
	}
}
