package dev

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// fakeMaster answers health checks as told and greets each session with its name.
type fakeMaster struct{ live, ready atomic.Bool }

func startFake(t *testing.T, host string, port, healthPort int) *fakeMaster {
	t.Helper()
	m := new(fakeMaster)
	mux := http.NewServeMux()
	for path, flag := range map[string]*atomic.Bool{"/livez": &m.live, "/readyz": &m.ready} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if !flag.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}
	hl, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, healthPort))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: mux}
	go srv.Serve(hl)
	ln, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close(); ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, host)
			go func() { io.Copy(io.Discard, c); c.Close() }()
		}
	}()
	return m
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// greet opens a session and reads which master it reached; "" if none.
func greet(addr string) (net.Conn, string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, ""
	}
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		c.Close()
		return nil, ""
	}
	return c, line[:len(line)-1]
}

// reaches waits until sessions reach exactly the wanted masters.
func reaches(t *testing.T, addr string, want ...string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		got := map[string]bool{}
		for range 6 {
			c, host := greet(addr)
			if c != nil {
				c.Close()
			}
			got[host] = true
		}
		ok := len(got) == len(want)
		for _, w := range want {
			ok = ok && got[w]
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sessions reach %v, want %v", got, want)
		}
	}
}

func TestBalancerFollowsReadiness(t *testing.T) {
	t.Parallel()
	port, healthPort := freePort(t), freePort(t)
	hosts := []string{"127.83.7.1", "127.83.7.2"}
	a := startFake(t, hosts[0], port, healthPort)
	b := startFake(t, hosts[1], port, healthPort)
	a.live.Store(true)
	a.ready.Store(true)
	b.live.Store(true)

	ctx, cancel := context.WithCancel(t.Context())
	bal := NewBalancer(hosts, healthPort, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- bal.Serve(ctx, "127.83.7.9", port) }()
	addr := fmt.Sprintf("127.83.7.9:%d", port)

	reaches(t, addr, hosts[0])
	b.ready.Store(true)
	reaches(t, addr, hosts...)

	// A session to a master that stops being ready is closed by the balancer.
	var held net.Conn
	for held == nil {
		c, host := greet(addr)
		if host == hosts[0] {
			held = c
		} else if c != nil {
			c.Close()
		}
	}
	a.ready.Store(false)
	held.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := held.Read(make([]byte, 1)); err != io.EOF && !isReset(err) {
		t.Errorf("held session ended with %v, want it closed", err)
	}
	reaches(t, addr, hosts[1])

	// With no ready master the live ones serve.
	b.ready.Store(false)
	reaches(t, addr, hosts...)

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func isReset(err error) bool {
	_, ok := err.(*net.OpError)
	return ok && !err.(*net.OpError).Timeout()
}
