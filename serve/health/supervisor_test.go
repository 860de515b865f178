package health

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// waitFor waits until ok, for at most 20 s.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "health")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, stale := range []string{"startup", "ready", "alive"} {
		if err := os.WriteFile(filepath.Join(dir, stale), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := NewFiles(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var s state
	var stuck atomic.Bool
	stuck.Store(true)
	var asked atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx, &s, func(context.Context) error {
			asked.Add(1)
			if stuck.Load() {
				return errBusy
			}
			return nil
		})
	}()
	has := func(name string) bool { return exists(filepath.Join(dir, name)) }
	if has("startup") || has("ready") || has("alive") {
		t.Error("files of an earlier process are left")
	}
	f.Started()
	if !has("startup") {
		t.Error("no file startup")
	}
	s.ready.Store(true)
	waitFor(t, "ready", func() bool { return has("ready") })
	waitFor(t, "what follows from the first answer", func() bool { return asked.Load() > 1 })
	if has("alive") {
		t.Error("a stuck master is said to be alive")
	}
	stuck.Store(false)
	waitFor(t, "alive", func() bool { return has("alive") })
	s.ready.Store(false)
	waitFor(t, "not ready", func() bool { return !has("ready") })
	cancel()
	<-done
}

// TestSystemd reads what the service manager is told. It sets the environment, so it is not
// parallel.
func TestSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "300000")
	s := NewSystemd(slog.New(slog.DiscardHandler))
	serving := make(chan struct{})
	var stuck atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, serving, func() string {
			select {
			case <-serving:
				return "serving"
			default:
				return "joining"
			}
		}, func(context.Context) error {
			if stuck.Load() {
				return errBusy
			}
			return nil
		})
	}()
	heard := func(want string) bool {
		buf := make([]byte, 1000)
		if err := l.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := l.ReadFrom(buf)
		if err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		return strings.Contains(string(buf[:n]), want)
	}
	first := func(wants ...string) {
		t.Helper()
		buf := make([]byte, 1000)
		n, _, err := l.ReadFrom(buf)
		for _, want := range wants {
			if err != nil || !strings.Contains(string(buf[:n]), want) {
				t.Errorf("first message %q, %v; want %s", buf[:n], err, want)
			}
		}
	}
	first("STATUS=joining", "EXTEND_TIMEOUT_USEC=60000000", "WATCHDOG=1")
	s.Reloading()()
	s.tell("STATUS=reloaded before it serves")
	for said := false; !said; {
		buf := make([]byte, 1000)
		n, _, err := l.ReadFrom(buf)
		if err != nil || strings.Contains(string(buf[:n]), "READY=1") ||
			strings.Contains(string(buf[:n]), "RELOADING") {
			t.Fatalf("it said %q (%v) before it serves", buf[:n], err)
		}
		said = strings.Contains(string(buf[:n]), "STATUS=reloaded")
	}
	close(serving)
	for !heard("READY=1") {
	}
	for !heard("WATCHDOG=1") {
	}
	stuck.Store(true)
	quiet := make([]byte, 1000)
	var silent bool
	for range 10 { // what was under way when it stuck
		if err := l.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.ReadFrom(quiet); err != nil {
			silent = true
			break
		}
	}
	if !silent {
		t.Error("a stuck master goes on with signs of life")
	}
	s.Reloading()()
	for !heard("RELOADING=1\nMONOTONIC_USEC=") {
	}
	for !heard("READY=1") {
	}
	s.Stopping("SIGTERM")
	for !heard("STOPPING=1") {
	}
	cancel()
	<-done
}

func TestLoops(t *testing.T) {
	t.Parallel()
	var l Loops
	held := make(chan struct{})
	var calls atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.Add("store", func() { calls.Add(1) })
	l.Add("ring", func() { cancel(); <-held })
	if err := l.Alive(ctx); err == nil || !strings.Contains(err.Error(), "ring") {
		t.Errorf("a stuck part: %v", err)
	}
	if err := l.Alive(t.Context()); err == nil {
		t.Error("alive while a part is stuck")
	}
	close(held)
	waitFor(t, "alive again", func() bool { return l.Alive(t.Context()) == nil })
	if n := calls.Load(); n < 2 {
		t.Errorf("%d calls", n)
	}
}
