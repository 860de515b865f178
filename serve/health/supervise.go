package health

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Supervised is what supervisors are told of a master.
type Supervised struct {
	State     State
	Loops     *Loops
	Listening <-chan struct{} // closed once the minion ports are open for the first time
	// NotServing says why minions get no answers; "" if they do.
	NotServing func() string
	Dir        string // of the files for supervisors that look at files
}

// Supervise tells systemd, and supervisors that look at files, how far this master is and that it
// lives, until ctx ends.
func Supervise(ctx context.Context, systemd *Systemd, s Supervised, log *slog.Logger) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { systemd.Run(ctx, s.Listening, s.status, s.Loops.Alive); return nil })
	if files, err := NewFiles(s.Dir, log); err != nil {
		log.Warn("no health files are written", "err", err)
	} else {
		files.Started()
		g.Go(func() error { files.Run(ctx, s.State, s.Loops.Alive); return nil })
	}
	return g.Wait()
}

// status is what systemctl status shows.
func (s Supervised) status() string {
	if why := s.NotServing(); why != "" {
		return "not serving: " + why
	}
	select {
	case <-s.Listening:
		return "serving"
	default:
		return "opening the minion ports"
	}
}

// Serve answers probes on one address and metrics on the other, until ctx ends.
func Serve(ctx context.Context, probes, metrics string, s State, g prometheus.Gatherer, d *Door,
	log *slog.Logger) error {
	var lc net.ListenConfig
	p, err := lc.Listen(ctx, "tcp", probes)
	if err != nil {
		return fmt.Errorf("listen for health: %w", err)
	}
	m, err := lc.Listen(ctx, "tcp", metrics)
	if err != nil {
		p.Close()
		return fmt.Errorf("listen for metrics: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return Probes(ctx, p, s, log) })
	group.Go(func() error { return Metrics(ctx, m, g, d, log) })
	return group.Wait()
}
