package minion

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// raw is a peer that says exactly what a test tells it to.
type raw struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dialRaw(t testing.TB, addr string) *raw {
	t.Helper()
	return dialFrom(t, addr, "127.0.0.1")
}

// dialFrom connects from an address of this machine.
func dialFrom(t testing.TB, addr, from string) *raw {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &raw{t: t, Conn: conn, r: bufio.NewReader(conn)}
}

func greetingBytes(minor byte) []byte {
	b := make([]byte, greetingSize)
	b[0], b[8], b[9], b[10], b[11] = 0xff, 1, 0x7f, 3, minor
	copy(b[12:], "NULL")
	return b
}

func property(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	b = append(b, 0, 0, byte(len(value)>>8), byte(len(value)))
	return append(b, value...)
}

func readyFrame(socketType, identity string) []byte {
	return appendCommand(nil, cmdReady, append(property("Socket-Type", socketType),
		property("Identity", identity)...)...)
}

// greet makes a whole hand-shake.
func (r *raw) greet(socketType, identity string, minor byte) *raw {
	r.t.Helper()
	r.say(greetingBytes(minor), readyFrame(socketType, identity))
	var b [greetingSize]byte
	if _, err := io.ReadFull(r.r, b[:]); err != nil {
		r.t.Fatalf("read greeting: %v", err)
	}
	if b[0] != 0xff || b[9] != 0x7f || b[10] != 3 || b[11] != 1 || string(b[12:16]) != "NULL" {
		r.t.Fatalf("greeting % x", b)
	}
	if body, command := r.frame(); !command || string(body[:6]) != "\x05READY" {
		r.t.Fatalf("instead of READY: %q", body)
	}
	return r
}

func (r *raw) say(parts ...[]byte) {
	r.t.Helper()
	if _, err := r.Write(bytes.Join(parts, nil)); err != nil {
		r.t.Fatalf("write: %v", err)
	}
}

func (r *raw) tryFrame() (body []byte, flags byte, err error) {
	flags, err = r.r.ReadByte()
	if err != nil {
		return nil, 0, err
	}
	h, err := readHeader(r.r, flags, 1<<30)
	if err != nil {
		return nil, 0, err
	}
	body = make([]byte, h.size)
	_, err = io.ReadFull(r.r, body)
	return body, flags, err
}

func (r *raw) frame() (body []byte, command bool) {
	r.t.Helper()
	body, flags, err := r.tryFrame()
	if err != nil {
		r.t.Fatalf("read frame: %v", err)
	}
	return body, flags&flagCommand != 0
}

// message reads one message and answers no PING.
func (r *raw) message() (message [][]byte) {
	r.t.Helper()
	for {
		body, flags, err := r.tryFrame()
		if err != nil {
			r.t.Fatalf("read message: %v", err)
		}
		if flags&flagCommand != 0 {
			continue
		}
		message = append(message, body)
		if flags&flagMore == 0 {
			return message
		}
	}
}

func (r *raw) request(payload []byte) {
	r.t.Helper()
	r.say([]byte{flagMore, 0}, appendHeader(nil, 0, len(payload)), payload)
}

// closedByPeer waits for the end of the connection.
func (r *raw) closedByPeer() {
	r.t.Helper()
	if _, err := io.Copy(io.Discard, r.r); err != nil {
		if e, ok := err.(net.Error); ok && e.Timeout() {
			r.t.Fatal("connection stays open")
		}
	}
}

type handlerFunc func(ctx context.Context, r Request) ([]byte, error)

func (f handlerFunc) Handle(ctx context.Context, r Request) ([]byte, error) { return f(ctx, r) }

var echo = handlerFunc(func(_ context.Context, r Request) ([]byte, error) {
	return append([]byte("re:"), r.Payload...), nil
})

type testLog struct{ t testing.TB }

func (w testLog) Write(b []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}

func logTo(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(testLog{t}, nil)) }

// ownAddress is an address of the loopback for this process, without a port: tests that open a port
// again use it. On 127.0.0.1 somebody else may take the port meanwhile: clients of all tests of
// this machine have their ports there.
func ownAddress() string {
	n := uint(os.Getpid())
	return fmt.Sprintf("127.%d.%d.%d", 1+n>>14%200, 1+n>>7%128, 1+n%128)
}

// run serves in the background until the test ends, and checks that it ends in time.
func run(t testing.TB, serve func(context.Context, net.Listener) error) (addr string, stop func()) {
	t.Helper()
	return runAt(t, "127.0.0.1:0", serve)
}

func runAt(t testing.TB, at string, serve func(context.Context, net.Listener) error) (addr string, stop func()) {
	t.Helper()
	ln, err := Listen(t.Context(), at, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, ln) }()
	var done bool
	stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Serve does not end")
		}
	}
	t.Cleanup(stop)
	return ln.Addr().String(), stop
}

func startRequests(t testing.TB, h Handler, lim Limits) (*RequestServer, string, func()) {
	t.Helper()
	s := NewRequestServer(h, lim, logTo(t), prometheus.NewRegistry())
	addr, stop := run(t, s.Serve)
	return s, addr, stop
}

func startPub(t testing.TB, lim Limits, filtering bool) (*PubServer, string, func()) {
	t.Helper()
	p := NewPubServer(lim, filtering, logTo(t), prometheus.NewRegistry())
	addr, stop := run(t, p.Serve)
	return p, addr, stop
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func counted(t testing.TB, e *endpoint, reason string) func() bool {
	return func() bool { return value(t, e.met.closed.WithLabelValues(reason)) > 0 }
}

func payloadOf(n int) []byte { return bytes.Repeat([]byte{'x'}, n) }

func publication(n int) Publication { return Publication{Payload: fmt.Appendf(nil, "pub %d", n)} }
