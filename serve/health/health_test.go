package health

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

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
