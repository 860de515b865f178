package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/test/e2e"
	transport "clustermaster/transport/minion"
)

// startedAfter makes a master start with a line of shell.
func startedAfter(t *testing.T, line string) e2e.Programs {
	t.Helper()
	p := e2e.Ours(t)
	path := filepath.Join(t.TempDir(), "salt-master")
	script := fmt.Sprintf("#!/bin/sh\n%s\nexec %s \"$@\"\n", line, p.Master)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p.Master = path
	return p
}

// TestFloodOfConnections: strangers with many addresses open more connections to the ports of a
// master than it may have open files, and another one for each that it closes. It keeps files for
// itself: it stays ready, takes orders and answers the minions that are connected. Once the
// strangers are gone new ones come in.
func TestFloodOfConnections(t *testing.T) {
	t.Parallel()
	const files, held = 2048, 1200 // held: connections at each port at a time
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3})}
	m := c.Masters[0]
	m.Use(startedAfter(t, fmt.Sprintf("ulimit -n %d", files)))
	c.StartMasters(t)
	pid := m.PID()
	known := accepted(t, m, "known")
	line, err := transport.DialRequests(t.Context(), hostPort(m, e2e.RequestPort), transport.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()

	ports := []int{e2e.PublishPort, e2e.RequestPort, e2e.HealthPort, e2e.PeerPort}
	opened := make([]atomic.Int64, len(ports))
	ctx, stop := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	for i, port := range ports {
		strangers.Go(func() { flood(ctx, m.Addr, port, held, &opened[i]) })
	}
	orders := 0
	e2e.Eventually(t, healed, "the ports are flooded", func() error {
		// the newest connections may push this one out before it is answered
		e2e.Eventually(t, healed, "the health port answers", func() error {
			err := m.Probe("/readyz")
			if err != nil && !errors.As(err, new(*url.Error)) {
				t.Errorf("not ready: %v", err)
				return nil
			}
			return err
		})
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil || len(open) > files-50 {
			t.Errorf("%d files are open: %v", len(open), err)
		}
		orders++
		id := fmt.Sprintf("new-%d", orders)
		newMinion(t, id).comes(t, c.Masters[1])
		succeeds(t, m.Key(t, "-a", id, "-y"))
		answer, err := known.askBy(known.returned(fmt.Sprintf("20260101%012d", orders), "test.ping", true),
			func(packed []byte) ([]byte, error) { return line.Do(within(t, 10*time.Second), packed) })
		if err != nil {
			t.Errorf("a return: %v, %v", answer, err)
		}
		for i, port := range ports {
			if n := opened[i].Load(); n < 2*held {
				return fmt.Errorf("port %d got %d connections", port, n)
			}
		}
		return nil
	})
	stop()
	strangers.Wait()
	t.Logf("%d orders during the flood", orders)
	if m.PID() != pid {
		t.Error("the master was restarted")
	}
	log, err := os.ReadFile(m.Log)
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "too many open files") {
			t.Errorf("open files ran out: %s", line)
		}
	}
	accepted(t, m, "afterwards")
}

// flood keeps that many connections to a port open, from many addresses, until ctx ends, and counts
// those that it makes.
func flood(ctx context.Context, host string, port, most int, made *atomic.Int64) {
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, most)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case places <- struct{}{}:
		}
		d := net.Dialer{Timeout: time.Second,
			LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 254, byte(n/200%200), byte(1+n%200))}}
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			<-places
			continue
		}
		made.Add(1)
		ended := context.AfterFunc(ctx, func() { c.Close() })
		all.Go(func() {
			defer func() { <-places }()
			_, _ = io.Copy(io.Discard, c) // until either end closes it
			ended()
			c.Close()
		})
	}
}
