package simminion

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay passes connections on until they are cut.
type relay struct {
	addr string
	mu   sync.Mutex
	open []net.Conn
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: ln.Addr().String()}
	t.Cleanup(func() { ln.Close(); r.cut(func() {}) })
	go func() {
		for {
			down, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				down.Close()
				continue
			}
			r.mu.Lock()
			r.open = append(r.open, down, up)
			r.mu.Unlock()
			go io.Copy(up, down)
			go io.Copy(down, up)
		}
	}()
	return r
}

// cut ends all connections, and lets the next ones through when both ends have noticed.
func (r *relay) cut(noticed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		c.Close()
	}
	r.open = nil
	noticed()
}
