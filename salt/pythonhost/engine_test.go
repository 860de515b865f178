package pythonhost

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/value"
)

const testEngine = `
import logging
import os
import subprocess
import time

log = logging.getLogger(__name__)


def start(how, text="none"):
    if how == "said":
        log.warning("said %s %s %s", __opts__["id"], __salt__["test.echo"](text), list(__runners__["test.arg"](1)["args"]))
        return object()
    if how == "floods":
        for n in range(1000):
            log.warning("record %d", n)
        raise KeyError(text)
    if how == "orders":
        return __runners__["manage.up"]()
    child = subprocess.Popen(["sleep", "600"])
    log.warning("pids %d %d", os.getpid(), child.pid)
    while True:
        time.sleep(600)
`

// TestEngine runs an engine with each release of Salt: what it is bound to, what ends it, and who
// may refuse what it orders.
func TestEngine(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			var ordered, lost atomic.Bool
			s := newSite(t, release, map[string]string{"ext/engines/site.py": testEngine},
				func(o *Options) {
					o.Natives = map[string][]string{"runner": {"manage.up"}}
					o.Answer = func(context.Context, Question) (any, error) {
						ordered.Store(true)
						return []any{}, nil
					}
				})
			guard := func(context.Context) error {
				if lost.Load() {
					return errors.New("the lead is lost")
				}
				return nil
			}
			start := func(session *Session, options ...string) error {
				kwargs := value.Map{{Key: "how", Value: options[0]}}
				if len(options) > 1 {
					kwargs = append(kwargs, value.Pair{Key: "text", Value: options[1]})
				}
				_, err := session.Call(t.Context(),
					Call{Kind: Engine, Fun: "site.start", Kwargs: kwargs})
				return err
			}
			engine := func(options ...string) error {
				session := s.host.Engine(guard)
				defer session.Close()
				return start(session, options...)
			}
			if err := engine("said", "hello"); err != nil ||
				!s.lines.has("said master1 hello [1]") {
				t.Errorf("what it is bound to: %v", err)
			}
			if err := engine("floods", "x"); err == nil || err.Error() != "'x'" ||
				!s.lines.has("record 400") || s.lines.has("record 999") {
				t.Errorf("an exception after many records: %v", err)
			}
			if err := engine("orders"); err != nil || !ordered.Swap(false) {
				t.Errorf("an order: %v", err)
			}
			lost.Store(true)
			if err := engine("orders"); err == nil || ordered.Load() ||
				!strings.Contains(err.Error(), "the lead is lost") {
				t.Errorf("an order of one that may not: %v, carried out: %v", err, ordered.Load())
			}
			session := s.host.Engine(guard)
			_, err := session.Call(t.Context(), Call{Kind: Engine, Fun: "nosuch.start"})
			session.Close()
			if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "nosuch.start") {
				t.Errorf("an unknown engine: %v", err)
			}
			s.standsStill(t, start)
		})
	}
}

// standsStill has an engine run until nobody makes its lease longer.
func (s *site) standsStill(t *testing.T, start func(*Session, ...string) error) {
	t.Helper()
	session := s.host.Engine(func(context.Context) error { return nil })
	defer session.Close()
	ended := make(chan error, 1)
	go func() { ended <- start(session, "waits") }()
	for !s.lines.has("pids ") { // the lease is made longer while it starts
		session.Lease(2 * time.Second)
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.lines.mu.Lock()
	text := s.lines.text.String()
	s.lines.mu.Unlock()
	words := strings.Fields(text[strings.LastIndex(text, "pids ")+5:])
	for i, word := range words[:2] {
		pid, err := strconv.Atoi(strings.Trim(word, `"`))
		if err != nil {
			t.Fatal(err)
		}
		if s.host.Guard(int32(pid)) == nil {
			t.Errorf("process %d of an engine (%d) has no guard", pid, i)
		}
	}
	if s.host.Guard(int32(os.Getpid())) != nil {
		t.Error("a process that is no engine's has a guard")
	}
	session.Lease(300 * time.Millisecond)
	began := time.Now()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "signal 9") {
			t.Errorf("its lease is over: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("it runs %v after its lease", time.Since(began))
	}
}
