package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// happening is an event of a master's bus.
type happening struct {
	Tag  string
	Data map[string]any
}

func (h happening) String() string { return fmt.Sprintf("%s %v", h.Tag, h.Data) }

// stamp is the time at which the master fired it.
func (h happening) stamp(t testing.TB) time.Time {
	t.Helper()
	text, _ := h.Data["_stamp"].(string)
	at, err := time.Parse(time.RFC3339, text) // a fraction may follow the seconds
	if err != nil {
		t.Fatalf("%v: %v", h, err)
	}
	return at
}

// stream is a running `salt-run state.event`.
type stream struct {
	mu   sync.Mutex // guards seen
	seen []happening
}

// listen starts the stream of a master's events and waits until it is open. The stream runs until
// the test that owns the master ends. Each master has one.
func (s *suite) listen(t *testing.T, m *subject) *stream {
	t.Helper()
	if m.events != nil {
		return m.events
	}
	m.events = listen(t, s.t, m)
	return m.events
}

func listen(t, owner *testing.T, m *subject) *stream {
	t.Helper()
	st := &stream{}
	cmd := exec.Command(filepath.Join(filepath.Dir(programs(t, m.kind).Run), "salt-run"), "-c",
		m.ConfDir, "state.event")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 64<<20)
		for in.Scan() {
			tag, text, ok := strings.Cut(in.Text(), "\t")
			h := happening{Tag: tag}
			if ok && json.Unmarshal([]byte(text), &h.Data) == nil {
				st.mu.Lock()
				st.seen = append(st.seen, h)
				st.mu.Unlock()
			}
		}
	}()
	owner.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		_ = cmd.Wait()
	})
	e2e.Eventually(t, 30*time.Second, "events of "+string(m.kind)+" arrive", func() error {
		m.newClient(t, "marker", 3).auth(t)
		_, err := st.find(0, 0, func(h happening) bool { return h.Data["id"] == "marker" })
		return err
	})
	return st
}

// mark is the present end of the stream, for a look at what comes after.
func (s *stream) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// since returns the events after a mark that match.
func (s *stream) since(mark int, is func(happening) bool) (list []happening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.seen[mark:] {
		if is(h) {
			list = append(list, h)
		}
	}
	return list
}

// find waits until an event after a mark matches.
func (s *stream) find(mark int, limit time.Duration, is func(happening) bool) (happening, error) {
	deadline := time.Now().Add(limit)
	for {
		if list := s.since(mark, is); len(list) > 0 {
			return list[0], nil
		}
		if !time.Now().Before(deadline) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return happening{}, fmt.Errorf("not among the %d events since: %v", len(s.seen)-mark,
				s.seen[mark:])
		}
		<-time.After(20 * time.Millisecond)
	}
}

// wait is find for an event that must come.
func (s *stream) wait(t testing.TB, mark int, limit time.Duration, what string,
	is func(happening) bool) happening {
	t.Helper()
	h, err := s.find(mark, limit, is)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return h
}

// flush waits until all events caused before have been seen.
func (s *stream) flush(t testing.TB, m *subject) {
	t.Helper()
	id := "marker-" + newNonce(t)[:8]
	if m.cfg == lenient.name {
		id = "no-" + id // rejected ids leave no pending key
	}
	mark := s.mark()
	m.newClient(t, id, 3).auth(t)
	s.wait(t, mark, 10*time.Second, "marker", func(h happening) bool { return h.Data["id"] == id })
}

// auth matches the salt/auth events of an id.
func auth(id string) func(happening) bool {
	return func(h happening) bool { return h.Tag == "salt/auth" && h.Data["id"] == id }
}
