package peer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestNodeKey(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "it")
	// Two starts at once agree on one key.
	var keys [4]*NodeKey
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, err := LoadNodeKey(dir, nil)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = k
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, k := range keys[1:] {
		if k.SPKI() != keys[0].SPKI() {
			t.Errorf("keys differ: %x, %x", k.SPKI(), keys[0].SPKI())
		}
	}
	path := filepath.Join(dir, nodeKeyFile)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of node.key: %v %v", st.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".node.key-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if text := fmt.Sprint(keys[0].LogValue()); strings.Contains(text, "PRIVATE") {
		t.Errorf("logs as %s", text)
	}

	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadNodeKey(dir, nil); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others read: %v", err)
	}
	for name, text := range map[string]string{"empty": "", "garbage": "garbage",
		"certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, nodeKeyFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadNodeKey(dir, nil); err == nil {
			t.Errorf("%s: taken for a key", name)
		}
	}
}

// otherKeyCert is a certificate of a kind that nodes don't have.
func otherKeyCert(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// readsNothing fails if the other end says anything but a TLS alert before it
// closes.
func readsNothing(t *testing.T, c io.Reader) {
	t.Helper()
	b, err := io.ReadAll(io.LimitReader(c, 1<<16))
	if len(b) > 0 {
		t.Errorf("a stranger was told %q", b)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the connection was left open")
	}
}

// Strangers of every kind lose their connection and nothing else happens.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	stranger, err := LoadNodeKey(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tlsAs := func(cfg *tls.Config, say string) func(*testing.T, net.Conn) {
		return func(t *testing.T, raw net.Conn) {
			cfg := cfg.Clone()
			cfg.InsecureSkipVerify = true
			c := tls.Client(raw, cfg)
			if c.Handshake() != nil { // refused already
				return
			}
			_, _ = io.WriteString(c, say) // may be refused by now
			readsNothing(t, c)
		}
	}
	plain := func(say string) func(*testing.T, net.Conn) {
		return func(t *testing.T, raw net.Conn) {
			_, _ = io.WriteString(raw, say)
			b, _ := io.ReadAll(io.LimitReader(raw, 1<<16))
			if len(b) > 7 { // one TLS alert record
				t.Errorf("a stranger was told %q", b)
			}
		}
	}
	own := []tls.Certificate{stranger.cert}
	raftVote := "\x00\x8b\xa4Term\xce\x00\x00\xff\xff"
	cases := []struct {
		name   string
		reason string
		knock  func(*testing.T, net.Conn)
	}{
		{"raft without TLS", "tls", plain(raftVote)},
		{"HTTP/2 without TLS", "tls", plain("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{"HTTP", "tls", plain("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"garbage", "tls", plain(strings.Repeat("\x16\x03\x01\xff\xff\x01", 5000))},
		{"closes at once", "tls", func(_ *testing.T, raw net.Conn) { raw.Close() }},
		{"says nothing", "timeout", func(t *testing.T, raw net.Conn) { readsNothing(t, raw) }},
		{"half a hand-shake", "timeout", func(t *testing.T, raw net.Conn) {
			_, _ = raw.Write([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01})
			readsNothing(t, raw)
		}},
		{"TLS 1.2", "tls", tlsAs(&tls.Config{MaxVersion: tls.VersionTLS12, Certificates: own,
			NextProtos: []string{"raft"}}, raftVote)},
		{"no ALPN", "alpn", tlsAs(&tls.Config{Certificates: own}, raftVote)},
		{"ALPN h2", "alpn", tlsAs(&tls.Config{Certificates: own, NextProtos: []string{"h2"}},
			"PRI")},
		{"two protocols", "alpn", tlsAs(&tls.Config{Certificates: own,
			NextProtos: []string{"raft", "join"}}, raftVote)},
		{"no certificate", "tls", tlsAs(&tls.Config{NextProtos: []string{"raft"}}, raftVote)},
		{"another kind of key", "certificate",
			tlsAs(&tls.Config{Certificates: []tls.Certificate{otherKeyCert(t)},
				NextProtos: []string{"rpc"}}, "PRI")},
		{"another kind of key, join", "certificate",
			tlsAs(&tls.Config{Certificates: []tls.Certificate{otherKeyCert(t)},
				NextProtos: []string{"join"}}, "")},
		{"unpinned key, raft", "unpinned",
			tlsAs(&tls.Config{Certificates: own, NextProtos: []string{"raft"}}, raftVote)},
		{"unpinned key, rpc", "unpinned",
			tlsAs(&tls.Config{Certificates: own, NextProtos: []string{"rpc"}},
				"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{"join before ServeJoins", "join_closed",
			tlsAs(&tls.Config{Certificates: own, NextProtos: []string{"join"}},
				"\x00\x00\x00\x01x")},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, ms := newMasters(t, 2)
			raw, err := net.Dial("tcp", ms[0].Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			if err := raw.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			tc.knock(t, raw)
			eventually(t, "counted as "+tc.reason,
				func() bool { return ms[0].refusedFor(tc.reason) == 1 })
			eventually(t, "logged with the address",
				func() bool { return ms[0].logs.Contains("addr=" + raw.LocalAddr().String()) })
			eventually(t, "a member is served",
				func() bool { return ms[1].ping(ms[0].node) == nil })
			if n := ms[0].count("clustermaster_peer_refused_total"); n != 1 {
				t.Errorf("%v refusals in all, want 1", n)
			}
		})
	}
}

// The pin is checked on dial as on accept: whoever sits at a member's address
// with another key gets no RPC and no Raft entry.
func TestImpostorIsNotDialled(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 1)
	theirs := newMembers() // trusts our master
	theirs.add(ms[0].node, ms[0].key.SPKI(), ms[0].Addr().String())
	impostor := newPort(t, theirs, "impostor/66").serve()
	var pin [32]byte
	pin[0] = 1
	pins.add("m2/02", pin, impostor.Addr().String())

	if _, err := ms[0].RaftLayer().Dial("127.0.0.1:1", time.Second); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("dial where nobody is: %v, want ErrUnknownPeer", err)
	}
	if _, err := ms[0].RaftLayer().Dial("m2/02", time.Minute); !errors.Is(err, errUnpinned) {
		t.Errorf("dial by raft: %v, want errUnpinned", err)
	}
	if _, err := ms[0].DialNode(context.Background(), "m2/02"); !errors.Is(err, errUnpinned) {
		t.Errorf("dial by node: %v, want errUnpinned", err)
	}
	if err := ms[0].ping("m2/02"); status.Code(err) != codes.Unavailable {
		t.Errorf("RPC: %v, want Unavailable", err)
	}
	if _, err := ms[0].Conn("m9/09"); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("conn to a stranger: %v", err)
	}
	// A true member at another's address is not taken for it either.
	pins.add("m3/03", impostor.key.SPKI(), "127.0.0.1:9")
	if _, err := ms[0].RaftLayer().Dial("m2/02", time.Minute); !errors.Is(err, errUnpinned) {
		t.Errorf("dial of a member at another address: %v, want errUnpinned", err)
	}
}

// Raft's streams go to members by name. A member that has the address of a former one, such as the
// same machine with a new disk, gets none of that one's streams.
func TestRaftDialsMembersByName(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 2)
	layer := ms[0].RaftLayer()
	dial := func(name string) error {
		c, err := layer.Dial(raft.ServerAddress(name), 10*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}
	former := ms[1].node
	if err := dial(former); err != nil {
		t.Fatal(err)
	}
	pins.remove(former)
	pins.add("m2/new", ms[1].key.SPKI(), ms[1].Addr().String())
	if err := dial(former); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("a stream to %s, whose successor is there: %v", former, err)
	}
	if err := dial("m2/new"); err != nil {
		t.Error(err)
	}
}

// whoAmI answers with the identity that the server saw.
func whoAmI(t *testing.T, pins *members) *master {
	t.Helper()
	m := newPort(t, pins, "m0/00")
	pins.add(m.node, m.key.SPKI(), m.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	srv := grpc.NewServer(append(m.ServerOptions(), grpc.UnaryInterceptor(
		func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any,
			error) {
			node, ok := PeerNode(ctx)
			return nil, status.Errorf(codes.Aborted, "%s %t", node, ok)
		}))...)
	healthpb.RegisterHealthServer(srv, healthpb.UnimplementedHealthServer{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.Serve(ctx) })
	wg.Go(func() { _ = srv.Serve(m.RPCListener()) })
	t.Cleanup(func() { cancel(); srv.Stop(); wg.Wait() })
	return m
}

// crashing is a service whose calls panic.
type crashing struct {
	healthpb.UnimplementedHealthServer
}

func (crashing) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse,
	error) {
	panic("unary")
}

func (crashing) Watch(*healthpb.HealthCheckRequest, healthpb.Health_WatchServer) error {
	panic("stream")
}

// TestCrashOfACall: a call that panics ends neither the master nor other calls.
func TestCrashOfACall(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 1)
	m := newPort(t, pins, "m0/00")
	pins.add(m.node, m.key.SPKI(), m.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	srv := grpc.NewServer(m.ServerOptions()...)
	healthpb.RegisterHealthServer(srv, crashing{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.Serve(ctx) })
	wg.Go(func() { _ = srv.Serve(m.RPCListener()) })
	t.Cleanup(func() { cancel(); srv.Stop(); wg.Wait() })
	for range 2 {
		if err := ms[0].ping(m.node); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "unary") {
			t.Errorf("a unary call: %v", err)
		}
		cc, err := ms[0].Conn(m.node)
		if err != nil {
			t.Fatal(err)
		}
		watch, err := healthpb.NewHealthClient(cc).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "stream") {
			t.Errorf("a stream: %v", err)
		}
	}
	if log := m.logs.String(); strings.Count(log, "call of another master panicked") != 4 ||
		!strings.Contains(log, "port_test.go") {
		t.Errorf("logged: %s", log)
	}
}

func TestRPCCarriesTheNode(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 2)
	srv := whoAmI(t, pins)
	for _, m := range append(ms, srv) { // the last dials itself
		err := m.ping(srv.node)
		if want := m.node + " true"; status.Convert(err).Message() != want {
			t.Errorf("server saw %v, want %q", err, want)
		}
	}
	if node, ok := PeerNode(context.Background()); ok {
		t.Errorf("a call from nowhere is from %q", node)
	}
	if !srv.Alive(srv.node) || srv.LastHeard(srv.node).IsZero() {
		t.Error("a master is not alive to itself")
	}
	// The credentials refuse a listener that is not the port's.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wrong := grpc.NewServer(srv.ServerOptions()...)
	go func() { _ = wrong.Serve(ln) }()
	defer wrong.Stop()
	cc, err := grpc.NewClient(ln.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	if _, err := healthpb.NewHealthClient(cc).Check(context.Background(),
		&healthpb.HealthCheckRequest{}); err == nil {
		t.Error("an RPC without TLS was served")
	}
}

// Silent connections, more than there is room for, from the very address that
// a member uses: the member gets in at once, and they are closed.
func TestSilentHandshakesDoNotBlockMembers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		total, perSouce int
	}{{"source's limit", 100, 8}, {"total limit", 8, 100}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, ms := newMasters(t, 2, func(c *Config) {
				c.MaxHandshakes, c.MaxHandshakesPer = tc.total, tc.perSouce
				c.HandshakeTimeout = 30 * time.Second // eviction alone has to do it
			})
			var silent []net.Conn
			for range 40 {
				c, err := net.Dial("tcp", ms[0].Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				silent = append(silent, c)
			}
			begin := time.Now()
			if err := ms[1].ping(ms[0].node); err != nil {
				t.Errorf("member: %v", err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("member waited %s", took)
			}
			eventually(t, "evictions counted",
				func() bool { return ms[0].refusedFor("evicted") >= 32 })
			if err := silent[0].SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			readsNothing(t, silent[0])
			if n := ms[0].count("clustermaster_peer_handshakes"); n > 8 {
				t.Errorf("%v hand-shakes wait, at most 8 may", n)
			}
		})
	}
}

// Removal: what is open closes at once on every side, and stays closed.
func TestDropEndsLiveConnections(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 3)
	a, b, c := ms[0], ms[1], ms[2]
	layer := b.RaftLayer()
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			conn, err := layer.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	var down sync.WaitGroup
	down.Add(1)
	isDown := sync.OnceFunc(down.Done)
	b.OnDown(func(node string) {
		if node == a.node {
			isDown()
		}
	})
	eventually(t, "b hears a", func() bool { return b.Alive(a.node) })
	dialled, err := a.DialNode(context.Background(), b.node)
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	if _, err := dialled.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	atB := <-accepted
	if _, err := io.ReadFull(atB, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	open := func(from, to *master) chan error {
		cc, err := from.Conn(to.node)
		if err != nil {
			t.Fatal(err)
		}
		s, err := healthpb.NewHealthClient(cc).Watch(context.Background(),
			&healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { _, err := s.Recv(); ended <- err }()
		return ended
	}
	toB, fromB, bystander := open(a, b), open(b, a), open(c, b)

	pins.remove(a.node)
	b.Drop(a.node)
	for name, ended := range map[string]chan error{"stream a to b": toB, "stream b to a": fromB} {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Errorf("%s lives on", name)
		}
	}
	for name, conn := range map[string]net.Conn{"dialled": dialled, "accepted": atB} {
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil &&
			name == "dialled" {
			t.Error(err)
		}
		readsNothing(t, conn)
	}
	down.Wait()
	if b.Alive(a.node) {
		t.Error("a removed peer is alive")
	}
	if _, err := b.Conn(a.node); !errors.Is(err, ErrUnknownPeer) {
		t.Errorf("conn to a removed peer: %v", err)
	}
	if n := b.count("clustermaster_peer_dropped_total", "removed"); n < 1 {
		t.Errorf("%v drops counted", n)
	}
	// It is out for good: its next attempts are a stranger's.
	if err := a.ping(b.node); status.Code(err) != codes.Unavailable {
		t.Errorf("call of a removed peer: %v", err)
	}
	eventually(t, "refused as unpinned", func() bool { return b.refusedFor("unpinned") >= 1 })
	select {
	case err := <-bystander:
		t.Errorf("another member's stream ended: %v", err)
	default:
	}
}

// A link whose member is gone from the pins ends by itself.
func TestUnpinnedLinkEnds(t *testing.T) {
	t.Parallel()
	pins, ms := newMasters(t, 2, func(c *Config) { c.HeartbeatEvery = 20 * time.Millisecond })
	eventually(t, "alive", func() bool { return ms[0].Alive(ms[1].node) })
	pins.remove(ms[1].node)
	eventually(t, "link gone", func() bool {
		ms[0].mu.Lock()
		defer ms[0].mu.Unlock()
		return len(ms[0].links) == 0
	})
}

// A member that was removed and doesn't know it dials ever more rarely, though its hand-shakes
// succeed at its own end.
func TestRemovedMemberDialsRarely(t *testing.T) {
	t.Parallel()
	old, now := newMembers(), newMembers()
	gone, peer := newPort(t, old, "m1/01"), newPort(t, now, "m2/02")
	old.add(gone.node, gone.key.SPKI(), gone.Addr().String())
	for _, pins := range []*members{old, now} {
		pins.add(peer.node, peer.key.SPKI(), peer.Addr().String())
	}
	peer.serve()
	gone.serve().Watch(peer.node)
	eventually(t, "refused", func() bool { return peer.refusedFor("unpinned") > 0 })
	time.Sleep(3 * time.Second)
	// two connections, each with gaps of 0.1, 0.16, ... 1 s
	if n := peer.refusedFor("unpinned"); n > 20 {
		t.Errorf("it was refused %v times in 3 s", n)
	}
}

// A peer that returns is alive as soon as it dials: nobody waits for the next heartbeat.
func TestReturningPeerIsAliveAtOnce(t *testing.T) {
	pins, ms := newMasters(t, 1, func(c *Config) {
		c.HeartbeatEvery, c.DownAfter = time.Hour,
			2*time.Second
	})
	back := newPort(t, pins, "m2/02")
	pins.add(back.node, back.key.SPKI(), back.Addr().String())
	l, err := ms[0].linkTo(back.node)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "silent peer is down", func() bool { return l.failFast() != nil })
	back.serve().Watch(ms[0].node)
	eventually(t, "peer that dials is alive", func() bool { return ms[0].Alive(back.node) })
}

// The port ends with its context, whatever is open, and Serve leaves nothing.
func TestServeEndsWithOpenConnections(t *testing.T) {
	t.Parallel()
	_, ms := newMasters(t, 2)
	if err := ms[0].ping(ms[1].node); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", ms[1].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	held, err := ms[0].DialNode(context.Background(), ms[1].node) // nobody accepts it
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	begin := time.Now()
	ms[1].stop()
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("stop took %s", took)
	}
	if _, err := ms[1].RaftLayer().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
	if _, err := ms[1].Conn(ms[0].node); !errors.Is(err, net.ErrClosed) {
		t.Errorf("conn after the end: %v", err)
	}
	if _, err := net.DialTimeout("tcp", ms[1].Addr().String(), time.Second); err == nil {
		t.Error("the port still listens")
	}
	if n := ms[1].count("clustermaster_peer_connections"); n != 0 {
		t.Errorf("%v connections left", n)
	}
}

// One peer can't pile up connections: the oldest goes.
func TestConnectionsPerPeerAreBounded(t *testing.T) {
	t.Parallel()
	_, ms := newMasters(t, 2, func(c *Config) { c.MaxConnsPer = 3 })
	layer := ms[1].RaftLayer()
	go func() {
		for {
			if _, err := layer.Accept(); err != nil {
				return
			}
		}
	}()
	var conns []net.Conn
	for range 5 {
		c, err := ms[0].DialNode(context.Background(), ms[1].node)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	eventually(t, "accepted ones bounded", func() bool {
		return ms[1].count("clustermaster_peer_connections", "raft", "accepted") == 3
	})
	if err := conns[0].SetReadDeadline(time.Now().Add(5 * time.Second)); err == nil {
		readsNothing(t, conns[0])
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	key, err := LoadNodeKey(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no key", Config{Pins: newMembers()}, "no node key"},
		{"no pins", Config{Key: key}, "no pins"},
		{"bad address", Config{Key: key, Pins: newMembers(), Listen: "nowhere"},
			"cluster_pool_port"},
	} {
		if _, err := New(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	p, err := New(Config{Key: key, Pins: newMembers(), Listen: "127.0.0.1:0",
		Advertise: "m1.example:4520"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.RaftLayer().Addr().String(); got != "m1.example:4520" {
		t.Errorf("raft's own address is %s", got)
	}
}

func TestSPKIIsOfTheKey(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newNodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newNodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if a.SPKI() != b.SPKI() || bytes.Equal(a.cert.Certificate[0], b.cert.Certificate[0]) {
		t.Error("the pin must be of the key, the certificate is new each time")
	}
}
