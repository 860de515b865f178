package health

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type state struct{ serving, ready atomic.Bool }

func (s *state) Serving() bool { return s.serving.Load() }
func (s *state) Ready() bool   { return s.ready.Load() }

func get(t *testing.T, url string) int {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}

func TestProbesAndMetrics(t *testing.T) {
	t.Parallel()
	var s state
	ctx, cancel := context.WithCancel(t.Context())
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	probes, metrics := listen(), listen()
	door, err := NewDoor(DoorFiles{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { done <- Probes(ctx, probes, &s, slog.New(slog.DiscardHandler)) }()
	go func() {
		done <- Metrics(ctx, metrics, prometheus.NewRegistry(),
			door, slog.New(slog.DiscardHandler))
	}()
	base := "http://" + probes.Addr().String()
	for _, step := range []struct {
		serving, ready bool
		livez, readyz  int
	}{{false, false, 503, 503}, {true, false, 200, 503}, {true, true, 200, 200}} {
		s.serving.Store(step.serving)
		s.ready.Store(step.ready)
		if l, r := get(t, base+"/livez"), get(t, base+"/readyz"); l != step.livez ||
			r != step.readyz {
			t.Errorf("serving %v ready %v: livez %d readyz %d", step.serving, step.ready, l, r)
		}
	}
	if c := get(t, base+"/metrics"); c != 404 {
		t.Errorf("metrics on the probe port: %d, want 404", c)
	}
	if c := get(t, "http://"+metrics.Addr().String()+"/metrics"); c != 200 {
		t.Errorf("metrics: %d", c)
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestNewest: a port keeps its newest connections, so whoever holds some keeps no probe out. One
// that was closed makes room.
func TestNewest(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	ln := &newest{Listener: tcp, most: 2}
	connect := func() (near, far net.Conn) {
		near, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { near.Close() })
		if err := near.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if far, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		return near, far
	}
	a, _ := connect()
	b, atB := connect()
	c, atC := connect()
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest connection: %v", err)
	}
	atB.Close()
	d, atD := connect()
	for _, open := range []struct{ near, far net.Conn }{{c, atC}, {d, atD}} {
		if _, err := open.far.Write([]byte{1}); err != nil {
			t.Error(err)
		}
		if n, err := open.near.Read(make([]byte, 1)); n != 1 {
			t.Errorf("a newer connection: %v", err)
		}
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the closed connection: %v", err)
	}
}
