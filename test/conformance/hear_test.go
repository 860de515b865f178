package conformance

import (
	"bytes"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

var errNotHeard = errors.New("not heard")

// heard is the bytes that a listener on a master's local bus got. Tags appear in them as they are.
type heard struct {
	mu  sync.Mutex // guards the fields below
	all []byte
}

// hear listens on the local bus in a sock_dir until the test ends.
func hear(t *testing.T, sockDir string) *heard {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(sockDir, "master_event_pub.ipc"))
	if err != nil {
		t.Fatal(err)
	}
	h, ended := new(heard), make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1<<16); ; {
			n, err := conn.Read(b)
			h.mu.Lock()
			h.all = append(h.all, b[:n]...)
			h.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	return h
}

// wait waits until an event with this tag was heard.
func (h *heard) wait(t *testing.T, tag string) {
	t.Helper()
	e2e.Eventually(t, 20*time.Second, tag+" is on the local bus", func() error {
		if h.times(tag) == 0 {
			return errNotHeard
		}
		return nil
	})
}

// times counts the events with this tag.
func (h *heard) times(tag string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Count(h.all, []byte(tag+"\n\n"))
}
