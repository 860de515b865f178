package localbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"clustermaster/serve/event"
	"clustermaster/value"
)

// Names below sock_dir, which Salt's clients look for.
const (
	PubSocket  = "master_event_pub.ipc"
	PullSocket = "master_event_pull.ipc"
	// RunningFile is a socket in Salt, to which its own processes write publications. Clients check
	// that it exists before they send an order.
	RunningFile = "publish_pull.ipc"
	// WorkersFile is a socket or a file in Salt, for its workers. salt-api checks that it exists
	// before it sends an order.
	WorkersFile = "workers.ipc"
)

// Mesh gives the events of all masters.
type Mesh interface {
	// Follow returns at once; the caller closes the subscription.
	Follow(prefix string) *event.Subscription
}

// Bus fires events. It does not block.
type Bus interface {
	Pass(tag string, data value.RawMap)
}

// Deps is what a Server uses of other packages.
type Deps struct {
	Mesh Mesh
	Bus  Bus
	// Guard returns the check for events of a process, nil if it may always fire; a nil Guard
	// allows all.
	Guard func(pid int32) func(context.Context) error
	Log   *slog.Logger // nil discards
	Reg   prometheus.Registerer
}

// Options bound a Server.
type Options struct {
	// bytes of an event's data that a process may fire; 0 means event.DefaultMaxEventSize
	MaxEvent int
	// events that may wait for one listener (pub_server_write_queue_size); 0 means 10000
	Queue int
	// how long a listener may read nothing (publish_drain_timeout); 0 means a minute
	WriteTimeout time.Duration
	// Untrue are tags that no process may fire, with the reason: they would report something that
	// did not happen.
	Untrue map[string]string
}

// Server holds the two sockets.
type Server struct {
	deps    Deps
	opts    Options
	log     *slog.Logger
	metrics *metrics
	hub     *hub
	pub     *socket
	pull    *socket
	running []string // paths of RunningFile and WorkersFile that this server owns
	closing sync.Once
}

// Listen binds the sockets below sockDir, for root and the user of this process. It replaces what a
// dead master left there. It fails if a live process answers at a socket, or if sockDir is too long
// for a socket's name.
func Listen(sockDir string, opts Options, deps Deps) (*Server, error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if opts.MaxEvent <= 0 {
		opts.MaxEvent = event.DefaultMaxEventSize
	}
	if opts.Queue <= 0 {
		opts.Queue = 10000
	}
	if opts.WriteTimeout <= 0 {
		opts.WriteTimeout = time.Minute
	}
	s := &Server{deps: deps, opts: opts, log: deps.Log.With("component", "localbus"),
		metrics: newMetrics(deps.Reg)}
	s.hub = &hub{s: s, listeners: make(map[*listener]struct{}),
		answers: make(map[string]answer)}
	var err error
	if s.pub, err = bind(s, filepath.Join(sockDir, PubSocket)); err != nil {
		return nil, err
	}
	if s.pull, err = bind(s, filepath.Join(sockDir, PullSocket)); err != nil {
		s.Close()
		return nil, err
	}
	for _, name := range []string{RunningFile, WorkersFile} {
		if err := s.sayRunning(filepath.Join(sockDir, name)); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// sayRunning makes a file that Salt's clients look for. It takes over the file of a killed master,
// and removes it at the end: a Salt master that starts later fails if its socket's path is a plain
// file.
func (s *Server) sayRunning(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		s.running = append(s.running, path)
		return nil
	}
	if err != nil {
		return fmt.Errorf("make file for Salt's clients: %w", err)
	}
	s.running = append(s.running, path)
	return f.Close()
}

// Close removes the sockets. Serve calls it at its end.
func (s *Server) Close() { s.closing.Do(s.close) }

func (s *Server) close() {
	for _, k := range []*socket{s.pub, s.pull} {
		if k != nil {
			k.close()
		}
	}
	for _, path := range s.running {
		_ = os.Remove(path) // a remaining file only misleads clients; the next master ignores it
	}
}

// Serve serves both sockets until ctx ends, and closes them.
func (s *Server) Serve(ctx context.Context) error {
	defer s.Close()
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	s.pub.enter = s.listen
	s.pull.enter = func(c *net.UnixConn, pid int32) func() {
		return func() { s.take(ctx, c, pid) }
	}
	g.Go(func() error { return s.pub.serve(ctx) })
	g.Go(func() error { return s.pull.serve(ctx) })
	err := g.Wait()
	s.hub.running.Wait()
	return err
}

// listen makes a connection a listener, and returns what sends it events until it leaves.
func (s *Server) listen(conn *net.UnixConn, pid int32) func() {
	l := newListener(s, conn, pid)
	s.hub.enter(l)
	return func() {
		defer s.hub.leave(l)
		if err := l.serve(); err != nil {
			s.metrics.dropped.Inc()
			s.log.Warn("listener on the local bus disconnected; it must read faster, or raise pub_server_write_queue_size",
				"pid", pid, "err", err)
		}
	}
}
