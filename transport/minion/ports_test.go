package minion

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
)

// TestPorts opens both ports or none, and closes both.
func TestPorts(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	free := func() string {
		ln, err := net.Listen("tcp", ownAddress()+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		return ln.Addr().String()
	}
	taken, err := net.Listen("tcp", ownAddress()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var mu sync.Mutex
	var seen []string
	opened := make(chan struct{})
	p := Ports{
		Publish: free(), Request: taken.Addr().String(),
		Pub: NewPubServer(Limits{}, false, log, nil),
		Req: NewRequestServer(nil, Limits{}, log, nil),
		Opened: func(publish, request net.Addr) func() {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, publish.String(), request.String())
			close(opened)
			return func() {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, "closed")
			}
		},
	}
	if err := p.Serve(t.Context()); err == nil || len(seen) > 0 {
		t.Fatalf("a port that is taken: %v, %v", err, seen)
	}
	ln, err := net.Listen("tcp", p.Publish)
	if err != nil {
		t.Fatalf("the publish port stayed open: %v", err)
	}
	ln.Close()
	p.Request = free()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Serve(ctx) }()
	<-opened
	for _, addr := range []string{p.Publish, p.Request} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			continue
		}
		c.Close()
	}
	cancel()
	<-done
	if !slices.Equal(seen, []string{p.Publish, p.Request, "closed"}) {
		t.Errorf("opened and closed: %v", seen)
	}
	for _, addr := range []string{p.Publish, p.Request} {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Errorf("%s is still open", addr)
		}
	}
}
