package localbus

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// orderConnection makes a connection as a client's order comes by, and returns the client's end.
func orderConnection(t *testing.T) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().(*net.TCPAddr).AddrPort()
}

// othersConnection is orderConnection of another process.
func othersConnection(t *testing.T) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	other := exec.CommandContext(t.Context(), "bash", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; read -u 3", ln.Addr().(*net.TCPAddr).Port))
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Wait() })
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// Only the listener that waits for the answer to its order gets the answer, and any other gets the
// event.
func TestAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		client func(*testing.T) netip.AddrPort
		old    bool // the asker connected long before its order
		reads  bool // the asker reads before its order is answered
		told   bool
	}{
		{name: "the asker", client: orderConnection, told: true},
		{name: "an old listener of the same process", client: orderConnection, old: true},
		{name: "a listener that passes events on", client: orderConnection, reads: true},
		{name: "an order of another process", client: othersConnection},
		{name: "an order from another machine", client: func(*testing.T) netip.AddrPort {
			return netip.MustParseAddrPort("192.0.2.7:40000")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := serve(t, Options{})
			reader := func(conn net.Conn) <-chan string {
				heard := make(chan string, 1)
				go func() {
					r := bufio.NewReader(conn)
					for {
						body, err := readBody(r, 1<<20)
						if err != nil {
							return
						}
						if tag, data, err := parseBody(body); err == nil && tag == "run/ret" {
							heard <- data.String("return")
							return
						}
					}
				}()
				return heard
			}
			stream := reader(w.listen(t)) // of the same process, opened at the same time
			asker := w.listen(t)
			if tt.old {
				for _, l := range w.s.hub.present() {
					l.since = l.since.Add(-askerAge)
				}
			}
			var got <-chan string
			if tt.reads {
				got = reader(asker)
			}
			asked := time.Now()
			w.bus.Fire("run/new", value.Map{})
			w.s.Answer(tt.client(t), asked, "run/ret", value.Map{{Key: "return", Value: "secret"}})
			w.bus.Fire("run/ret", value.Map{{Key: "return", Value: "hidden"}})
			if !tt.reads {
				got = reader(asker)
			}
			want := "hidden"
			if tt.told {
				want = "secret"
			}
			if heard := <-got; heard != want {
				t.Errorf("the asker heard %s", heard)
			}
			if heard := <-stream; heard != "hidden" {
				t.Errorf("a stream heard %s", heard)
			}
			if strings.Contains(w.log.String(), "stays hidden") == tt.told {
				t.Errorf("told %v: %s", tt.told, w.log)
			}
			if strings.Contains(w.log.String(), "secret") {
				t.Errorf("the log has the answer: %s", w.log)
			}
		})
	}
}
