package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/transport/peer/peerpb"
)

// lines are the lines between masters; those to or from a cut pair of ports carry nothing, narrow
// ones nothing large. A master is known by the port that it listens on.
type lines struct {
	mu  sync.Mutex
	cut map[[2]string]bool // the dialler, the address
	// lose what is large, as the dialler sends and reads it
	thinOut, thinIn map[[2]string]bool
	dials           map[[2]string]int
	conns           map[[2]string][]*lineConn
}

func newLines() *lines {
	return &lines{cut: make(map[[2]string]bool), thinOut: make(map[[2]string]bool),
		thinIn: make(map[[2]string]bool),
		dials:  make(map[[2]string]int),
		conns:  make(map[[2]string][]*lineConn)}
}

// between cuts the line between two masters, or mends it.
func (l *lines) between(a, b *master, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, way := range [][2]string{{a.node, b.Addr().String()}, {b.node, a.Addr().String()}} {
		l.cut[way] = cut
		for _, c := range l.conns[way] {
			c.cut.Store(cut)
		}
	}
}

// narrow makes the line from one master to another lose large packets, or mends it.
func (l *lines) narrow(from, to *master, thin bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there, back := [2]string{from.node, to.Addr().String()}, [2]string{to.node, from.Addr().String()}
	l.thinOut[there], l.thinIn[back] = thin, thin
	for _, c := range l.conns[there] {
		c.thinOut.Store(thin)
	}
	for _, c := range l.conns[back] {
		c.thinIn.Store(thin)
	}
}

func (l *lines) dialled(from, to *master) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials[[2]string{from.node, to.Addr().String()}]
}

// of is the network of one master.
func (l *lines) of(node string) Network { return &lineEnd{lines: l, node: node} }

type lineEnd struct {
	machine
	lines *lines
	node  string
}

// Dial implements Network. On a cut line it waits, as a dial does whose packets are dropped.
func (e *lineEnd) Dial(ctx context.Context, addr string) (net.Conn, error) {
	way := [2]string{e.node, addr}
	e.lines.mu.Lock()
	e.lines.dials[way]++
	cut := e.lines.cut[way]
	e.lines.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	raw, err := e.machine.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &lineConn{Conn: raw}
	e.lines.mu.Lock()
	c.thinOut.Store(e.lines.thinOut[way])
	c.thinIn.Store(e.lines.thinIn[way])
	e.lines.conns[way] = append(e.lines.conns[way], c)
	e.lines.mu.Unlock()
	return c, nil
}

// lineConn loses what is written and read while it is cut. While it is thin it loses what is large,
// and then all that follows: TCP sends the lost packet again and again.
type lineConn struct {
	net.Conn
	cut             atomic.Bool
	thinOut, thinIn atomic.Bool
	lostOut, lostIn atomic.Bool
}

const large = 1200 // bytes

func (c *lineConn) Write(b []byte) (int, error) {
	if c.thinOut.Load() && len(b) > large {
		c.lostOut.Store(true)
	}
	if c.cut.Load() || c.lostOut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *lineConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if c.thinIn.Load() && n > large {
			c.lostIn.Store(true)
		}
		if err != nil || !c.cut.Load() && !c.lostIn.Load() {
			return n, err
		}
	}
}

// newLineMasters makes n masters whose lines can be cut, and which hear each other.
func newLineMasters(t *testing.T, n int, tune ...func(*Config)) (*members, *lines, []*master) {
	t.Helper()
	pins, net := newMembers(), newLines()
	var ms []*master
	for i := range n {
		node := fmt.Sprintf("m%d/%02x", i+1, i+1)
		m := newPort(t, pins, node, append([]func(*Config){func(c *Config) {
			c.Network = net.of(node)
			c.HeartbeatEvery, c.DownAfter = 50*time.Millisecond, 500*time.Millisecond
		}}, tune...)...)
		pins.add(m.node, m.key.SPKI(), m.Addr().String())
		ms = append(ms, m)
	}
	for _, m := range ms {
		m.serve()
	}
	for _, m := range ms {
		for _, o := range ms {
			eventually(t, m.node+" hears "+o.node, func() bool { return m.Alive(o.node) })
		}
	}
	return pins, net, ms
}

// While the line between two masters is cut, calls and Raft's streams between them go through a
// third one, and when it is mended they go directly again.
func TestCutLineIsRelayed(t *testing.T) {
	t.Parallel()
	_, net, ms := newLineMasters(t, 3)
	a, b, c := ms[0], ms[1], ms[2]
	layer := b.RaftLayer()
	go echo(layer)

	net.between(a, b, true)
	eventually(t, "a reaches b through c", func() bool { return a.Through(b.node) == c.node })
	eventually(t, "b reaches a through c", func() bool { return b.Through(a.node) == c.node })
	for _, pair := range [][2]*master{{a, b}, {b, a}} {
		eventually(t, "alive", func() bool { return pair[0].Alive(pair[1].node) })
		eventually(t, "calls", func() bool { return pair[0].ping(pair[1].node) == nil })
	}
	if a.Through(c.node) != "" || c.Through(a.node) != "" {
		t.Error("a detour where the line works")
	}
	eventually(t, "logged", func() bool {
		return a.logs.Contains("the line to a peer is cut") && c.logs.Contains("relay to a peer begins")
	})
	if n := c.count("clustermaster_peer_connections", "relay", "accepted"); n < 2 {
		t.Errorf("%v relays are counted at c", n)
	}

	// Raft dials by name, and carries much.
	s, err := a.RaftLayer().Dial(raft.ServerAddress(b.node), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := bytes.Repeat([]byte("clustermaster"), 1<<17)
	go func() { _, _ = s.Write(want) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a stream through c: %v", err)
	}

	net.between(a, b, false)
	deadline := time.Now().Add(time.Minute)
	for a.Through(b.node) != "" || b.Through(a.node) != "" {
		if time.Now().After(deadline) {
			t.Fatal("the mended line is not used")
		}
		time.Sleep(5 * time.Millisecond)
	}
	eventually(t, "calls on the mended line", func() bool { return a.ping(b.node) == nil })
	eventually(t, "no relay is left", func() bool {
		return c.count("clustermaster_peer_connections", "relay", "accepted") == 0
	})
}

// A line that loses large packets alone, as behind a tunnel with a smaller MTU, counts as cut,
// although connections are made on it and small messages arrive.
func TestLineThatLosesLargePacketsIsRelayed(t *testing.T) {
	t.Parallel()
	_, net, ms := newLineMasters(t, 3)
	a, b, c := ms[0], ms[1], ms[2]
	go echo(b.RaftLayer())
	net.narrow(a, b, true)
	net.narrow(b, a, true)
	for _, pair := range [][2]*master{{a, b}, {b, a}} {
		eventually(t, "a relay", func() bool { return pair[0].Through(pair[1].node) == c.node })
		eventually(t, "alive", func() bool { return pair[0].Alive(pair[1].node) })
		eventually(t, "calls", func() bool { return pair[0].ping(pair[1].node) == nil })
	}
	s, err := a.RaftLayer().Dial(raft.ServerAddress(b.node), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := bytes.Repeat([]byte("clustermaster"), 1000)
	go func() { _, _ = s.Write(want) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a stream through c: %v", err)
	}
}

// Without a relay both ends of such a line are down, and Raft's streams on it end too: otherwise
// the heartbeats of a leader would arrive, and its entries would not.
func TestLineThatLosesLargePacketsCarriesNoHeartbeats(t *testing.T) {
	t.Parallel()
	_, net, ms := newLineMasters(t, 2)
	a, b := ms[0], ms[1]
	go echo(b.RaftLayer())
	s, err := a.RaftLayer().Dial(raft.ServerAddress(b.node), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	net.narrow(a, b, true)
	net.narrow(b, a, true)
	eventually(t, "both are down", func() bool { return !a.Alive(b.node) && !b.Alive(a.node) })
	small, got := []byte("beat"), make([]byte, 4)
	if _, err := s.Write(small); err != nil {
		t.Errorf("the stream ended at once: %v", err)
	} else if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, small) {
		t.Errorf("a small message: %q, %v", got, err)
	}
	_ = s.SetReadDeadline(time.Now().Add(2 * userTimeout))
	if _, err := s.Read(got); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stream goes on: %v", err)
	}
	net.narrow(a, b, false)
	net.narrow(b, a, false)
	eventually(t, "both are up", func() bool { return a.Alive(b.node) && b.Alive(a.node) })
}

// The answers of heartbeats are as large as they are: a peer whose large packets get lost is down,
// although it hears.
func TestAnswersAreAsLargeAsHeartbeats(t *testing.T) {
	t.Parallel()
	_, net, ms := newLineMasters(t, 2)
	a, b := ms[0], ms[1]
	net.narrow(b, a, true)
	eventually(t, "down", func() bool { return !a.Alive(b.node) })
}

// Members of a release that doesn't know padding get none.
func TestNoPaddingBelowItsLevel(t *testing.T) {
	t.Parallel()
	var at atomic.Int64
	at.Store(int64(padLevel) - 1)
	_, net, ms := newLineMasters(t, 2, func(c *Config) { c.Level = func() int { return int(at.Load()) } })
	a, b := ms[0], ms[1]
	net.narrow(a, b, true)
	answered := func() float64 { return a.count("clustermaster_peer_heartbeat_seconds") }
	before := answered()
	eventually(t, "small heartbeats are answered", func() bool { return answered() >= before+20 })
	at.Add(1)
	eventually(t, "down", func() bool { return !a.Alive(b.node) })
}

// echo answers streams with what they send.
func echo(l raft.StreamLayer) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			c.Close()
		}()
	}
}

// If the relay dies another one takes over; without one the peer is down.
func TestRelayThatDies(t *testing.T) {
	t.Parallel()
	_, net, ms := newLineMasters(t, 4)
	a, b := ms[0], ms[1]
	net.between(a, b, true)
	eventually(t, "a relay", func() bool { return a.Through(b.node) != "" && a.ping(b.node) == nil })
	first, second := ms[2], ms[3]
	if a.Through(b.node) != first.node {
		first, second = second, first
	}
	first.stop()
	eventually(t, "the other relay",
		func() bool { return a.Through(b.node) == second.node && a.ping(b.node) == nil })
	second.stop()
	eventually(t, "b is down", func() bool { return !a.Alive(b.node) })
}

// A peer that is down, not cut off, costs the others few questions.
func TestDeadPeerIsRarelyAskedFor(t *testing.T) {
	t.Parallel()
	_, net, ms := newLineMasters(t, 3)
	a, b, c := ms[0], ms[1], ms[2]
	b.stop()
	eventually(t, "down", func() bool { return !a.Alive(b.node) && !c.Alive(b.node) })
	began, before, dials := time.Now(), net.dialled(a, c), net.dialled(a, b)
	eventually(t, "the dead peer is dialled often", func() bool { return net.dialled(a, b)-dials >= 6 })
	// both clients of a link may ask at one time
	took := time.Since(began)
	if n := net.dialled(a, c) - before; n > 2*(1+int(took/askedAgain)) {
		t.Errorf("a asked for a relay %d times in %s", n, took)
	}
}

// A relay serves members only, connects to members only, and to those that it reaches itself.
func TestRelayRefuses(t *testing.T) {
	t.Parallel()
	pins, net, ms := newLineMasters(t, 3)
	a, b, c := ms[0], ms[1], ms[2]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pins.add("dead/09", [32]byte{9}, "127.0.0.1:9")
	for node, want := range map[string]string{
		"127.0.0.1:22":            ErrUnknownPeer.Error(),
		"":                        ErrUnknownPeer.Error(),
		a.node:                    ErrUnknownPeer.Error(),
		"dead/09":                 "not reached",
		strings.Repeat("x", 2000): "",
	} {
		conn, err := a.tunnel(ctx, c.node, node)
		if err == nil {
			conn.kill()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("relay to %.20q: %v, want %q", node, err, want)
		}
	}
	// to itself, which makes no sense but no harm: the key at the other end is c's
	if conn, err := a.tunnel(ctx, c.node, c.node); err == nil {
		if _, err := a.startTLS(ctx, conn, protoRPC, a.keyOf(b.node)); err == nil {
			t.Error("c passed for b")
		}
	}
	// No relay asks another one.
	net.between(c, b, true)
	eventually(t, "c reaches b through a", func() bool { return c.Through(b.node) == a.node })
	if conn, err := a.tunnel(ctx, c.node, b.node); err == nil {
		conn.kill()
		t.Error("a relay took a detour itself")
	}

	stranger, err := LoadNodeKey(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	was := c.refusedFor("unpinned")
	out, err := tls.Dial("tcp", c.Addr().String(), &tls.Config{InsecureSkipVerify: true,
		Certificates: []tls.Certificate{stranger.cert}, NextProtos: []string{protoRelay}})
	if err == nil {
		defer out.Close()
		_ = out.SetDeadline(time.Now().Add(10 * time.Second))
		_ = writeMessage(out, &peerpb.RelayRequest{Node: a.node})
		readsNothing(t, out)
	}
	eventually(t, "the stranger is counted", func() bool { return c.refusedFor("unpinned") > was })
}

// A removed member can't come back through another master that still knows it.
func TestRemovedMemberIsNotRelayedIn(t *testing.T) {
	t.Parallel()
	pins, net, ms := newLineMasters(t, 3)
	a, b, c := ms[0], ms[1], ms[2]
	net.between(a, b, true)
	eventually(t, "a relay", func() bool { return a.Through(b.node) == c.node && a.ping(b.node) == nil })
	pins.remove(b.node)
	a.Drop(b.node)
	eventually(t, "its relays end", func() bool { return a.Through(b.node) == "" })
	if conn, err := a.tunnel(t.Context(), c.node, b.node); err == nil {
		conn.kill()
		t.Error("a relay to a removed member")
	}
	if err := b.ping(a.node); err == nil {
		t.Error("a removed member calls through a relay")
	}
}

// Members of a release that doesn't know relays are not asked for one.
func TestNoRelayBelowItsLevel(t *testing.T) {
	t.Parallel()
	var at atomic.Int64
	at.Store(int64(relayLevel) - 1)
	_, net, ms := newLineMasters(t, 3, func(c *Config) { c.Level = func() int { return int(at.Load()) } })
	a, b, c := ms[0], ms[1], ms[2]
	dials := net.dialled(a, c)
	net.between(a, b, true)
	eventually(t, "down", func() bool { return !a.Alive(b.node) })
	time.Sleep(2 * directFirst)
	if n := net.dialled(a, c) - dials; n != 0 {
		t.Errorf("c was dialled %d times", n)
	}
	at.Add(1)
	eventually(t, "a relay", func() bool { return a.Through(b.node) == c.node })
}
