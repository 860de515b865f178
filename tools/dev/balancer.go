package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	checkInterval = 250 * time.Millisecond
	checkTimeout  = 500 * time.Millisecond
	fallAfter     = 2 // failed checks until a master's sessions are closed
)

// Balancer passes TCP sessions to masters as lb/haproxy.cfg does: to those whose /readyz is good,
// or if there are none, to those whose /livez is. It closes the sessions of a master that it no
// longer uses, so that the minions reconnect through another one.
type Balancer struct {
	targets []*target
	log     *slog.Logger

	mu   sync.Mutex // guards next and every target's state and sessions
	next int
}

type target struct {
	host, health string
	failed       [2]int // failed checks in a row: readyz, livez
	sessions     map[net.Conn]struct{}
}

// NewBalancer returns a balancer over masters; each is a host, whose health
// address is on healthPort.
func NewBalancer(hosts []string, healthPort int, log *slog.Logger) *Balancer {
	b := &Balancer{log: log}
	for _, h := range hosts {
		b.targets = append(b.targets, &target{
			host: h, health: net.JoinHostPort(h, fmt.Sprint(healthPort)),
			failed:   [2]int{fallAfter, fallAfter},
			sessions: make(map[net.Conn]struct{}),
		})
	}
	return b
}

// Serve accepts sessions on addr:port for each port and passes them on to the
// same port of a master, until ctx ends.
func (b *Balancer) Serve(ctx context.Context, addr string, ports ...int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	errs := make(chan error, len(ports))
	for _, port := range ports {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp",
			net.JoinHostPort(addr, fmt.Sprint(port)))
		if err != nil {
			return fmt.Errorf("listen for the balancer: %w", err)
		}
		defer ln.Close()
		context.AfterFunc(ctx, func() { ln.Close() })
		wg.Go(func() { errs <- b.accept(ctx, ln, port, &wg) })
	}
	for _, t := range b.targets {
		wg.Go(func() { b.check(ctx, t) })
	}
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

func (b *Balancer) accept(ctx context.Context, ln net.Listener, port int,
	wg *sync.WaitGroup) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept on the balancer: %w", err)
		}
		wg.Go(func() { b.session(ctx, c, port) })
	}
}

// session joins one client connection with one to a master.
func (b *Balancer) session(ctx context.Context, client net.Conn, port int) {
	defer client.Close()
	t, server := b.dial(ctx, port)
	if server == nil {
		return
	}
	defer server.Close()
	b.mu.Lock()
	t.sessions[client] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(t.sessions, client)
		b.mu.Unlock()
	}()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()
	done := make(chan struct{}, 2)
	pass := func(dst, src net.Conn) {
		io.Copy(dst, src)
		dst.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}
	go pass(server, client)
	go pass(client, server)
	<-done
	client.Close()
	server.Close()
	<-done
}

// dial tries the masters in use in turn, starting after the last one used.
func (b *Balancer) dial(ctx context.Context, port int) (*target, net.Conn) {
	for _, t := range b.choice() {
		d := net.Dialer{Timeout: time.Second}
		if c, err := d.DialContext(ctx, "tcp",
			net.JoinHostPort(t.host, fmt.Sprint(port))); err == nil {
			return t, c
		}
	}
	return nil, nil
}

func (b *Balancer) choice() []*target {
	b.mu.Lock()
	defer b.mu.Unlock()
	use := b.inUse()
	if len(use) == 0 {
		return nil
	}
	b.next++
	k := b.next % len(use)
	return append(use[k:len(use):len(use)], use[:k]...)
}

// inUse lists the ready masters, or if there are none the live ones. The caller holds mu.
func (b *Balancer) inUse() []*target {
	for probe := range 2 {
		var use []*target
		for _, t := range b.targets {
			if t.failed[probe] < fallAfter {
				use = append(use, t)
			}
		}
		if len(use) > 0 {
			return use
		}
	}
	return nil
}

func (b *Balancer) check(ctx context.Context, t *target) {
	client := &http.Client{Timeout: checkTimeout,
		Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		for probe, path := range []string{"/readyz", "/livez"} {
			ok := false
			if req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.health+path,
				nil); err == nil {
				if r, err := client.Do(req); err == nil {
					r.Body.Close()
					ok = r.StatusCode == http.StatusOK
				}
			}
			b.record(t, probe, ok)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// record notes a check and closes the sessions of every master that is no longer in use.
func (b *Balancer) record(t *target, probe int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := t.failed[probe] < fallAfter
	if ok {
		t.failed[probe] = 0
	} else {
		t.failed[probe]++
	}
	if is := t.failed[probe] < fallAfter; is == was {
		return
	} else {
		b.log.Info("balancer check changed", "addr", t.health, "probe",
			[]string{"readyz", "livez"}[probe], "up", is)
	}
	use := make(map[*target]bool)
	for _, u := range b.inUse() {
		use[u] = true
	}
	for _, t := range b.targets {
		if !use[t] {
			for c := range t.sessions {
				c.Close()
			}
		}
	}
}
