package conformance

import (
	"net"
	"sync"
	"testing"

	"clustermaster/test/e2e"
)

// relay is an address in front of a master whose connections can be cut.
type relay struct {
	addr, to string

	mu       sync.Mutex // guards the rest
	down     bool
	sessions []*session
	lns      []net.Listener
	wg       sync.WaitGroup
}

// session is one connection through a relay. It stays in the list after its end.
type session struct {
	port   int
	sent   int64 // bytes from the minion
	ended  bool
	client net.Conn
	server net.Conn
}

// newRelay forwards the two minion ports of addr to a master until the test ends.
func newRelay(t *testing.T, addr, to string) *relay {
	t.Helper()
	r := &relay{addr: addr, to: to}
	r.up(t)
	t.Cleanup(func() { r.cut(0, true); r.wg.Wait() })
	return r
}

// up opens the ports.
func (r *relay) up(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = false
	for _, port := range []int{e2e.PublishPort, e2e.RequestPort} {
		ln, err := net.Listen("tcp", hostPort(r.addr, port))
		if err != nil {
			t.Fatal(err)
		}
		r.lns = append(r.lns, ln)
		r.wg.Go(func() { r.accept(ln, port) })
	}
}

func (r *relay) accept(ln net.Listener, port int) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", hostPort(r.to, port))
		if err != nil {
			client.Close()
			continue
		}
		s := &session{port: port, client: client, server: server}
		r.mu.Lock()
		if r.down {
			client.Close()
		}
		r.sessions = append(r.sessions, s)
		r.mu.Unlock()
		r.wg.Go(func() { r.copy(s, server, client, true) })
		r.wg.Go(func() { r.copy(s, client, server, false) })
	}
}

func (r *relay) copy(s *session, to, from net.Conn, count bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if count {
			r.mu.Lock()
			s.sent += int64(n)
			r.mu.Unlock()
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	s.client.Close()
	s.server.Close()
	r.mu.Lock()
	s.ended = true
	r.mu.Unlock()
}

// cut ends the connections on a port, or on both for 0. With stay the ports stay closed until up.
func (r *relay) cut(port int, stay bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stay {
		r.down = true
		for _, ln := range r.lns {
			ln.Close()
		}
		r.lns = nil
	}
	for _, s := range r.sessions {
		if port == 0 || s.port == port {
			s.client.Close()
			s.server.Close()
		}
	}
}

// ports lists the ports of the connections so far, in order. A negative one sent nothing.
func (r *relay) ports() (list []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		port := s.port
		if s.sent == 0 {
			port = -port
		}
		list = append(list, port)
	}
	return list
}

// open counts the open connections on a port.
func (r *relay) open(port int) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.port == port && !s.ended {
			n++
		}
	}
	return n
}
