package pythonhost

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"clustermaster/value"
)

// Engine begins a session of the master itself for calls of kind Engine. They have no time limit,
// and their child does not count towards Options.Children. guard is called before each order of the
// engine to the master; its error refuses the order. A nil guard allows all.
func (h *Host) Engine(guard func(context.Context) error) *Session {
	return &Session{h: h, job: true, guard: guard}
}

// Lease makes the fork server end the child of the running call unless Lease is called again within
// d, so that a stopped master does not keep its engine running. It reports whether there was a
// child.
func (s *Session) Lease(d time.Duration) bool {
	c := s.at.Load()
	return c != nil && c.of.lease(c.pid, d) == nil
}

var errNoLease = errors.New("no such child")

func (s *server) lease(pid int, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.children[pid] == nil {
		return errNoLease
	}
	raw, err := value.PackNew(value.Map{{Key: "op", Value: "lease"}, {Key: "pid", Value: pid},
		{Key: "ms", Value: d.Milliseconds()}})
	if err == nil {
		_, _, err = s.control.WriteMsgUnix(raw, nil, nil)
	}
	return err
}

// maxGuards bounds the remembered processes of engines: their events may still wait after they have
// ended.
const maxGuards = 256

// guards keeps the guards of the newest engines' processes.
type guards struct {
	mu     sync.Mutex
	by     map[int]func(context.Context) error
	oldest []int
}

func (g *guards) add(pid int, guard func(context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil {
		g.by = map[int]func(context.Context) error{}
	}
	if _, again := g.by[pid]; !again {
		g.oldest = append(g.oldest, pid)
	}
	g.by[pid] = guard
	if len(g.oldest) > maxGuards {
		delete(g.by, g.oldest[0])
		g.oldest = g.oldest[1:]
	}
}

// Guard returns the check for events of a process; nil if the process is not part of an engine with
// a guard.
func (h *Host) Guard(pid int32) func(context.Context) error {
	// An engine leads a session, to which the processes that it starts belong.
	leader, err := unix.Getsid(int(pid))
	if err != nil { // it has ended
		leader = int(pid)
	}
	h.guards.mu.Lock()
	defer h.guards.mu.Unlock()
	return h.guards.by[leader]
}
