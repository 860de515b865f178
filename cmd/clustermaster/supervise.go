package main

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"clustermaster/internal/health"
)

// supervise tells systemd, and supervisors that look at files, how far this master is and that it lives.
func (r *rooms) supervise(ctx context.Context) error {
	loops := r.loops()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { r.systemd.Run(ctx, r.listening, r.statusLine, loops.Alive); return nil })
	if files, err := health.NewFiles(filepath.Join(r.opts.CacheDir, "health"), r.log); err != nil {
		r.log.Warn("no health files are written", "err", err)
	} else {
		files.Started()
		g.Go(func() error { files.Run(ctx, r.node, loops.Alive); return nil })
	}
	return g.Wait()
}

// loops are checked before each sign of life. None of them needs another master: a liveness that hangs on
// the cluster would end masters in the middle of an election.
func (r *rooms) loops() *health.Loops {
	l := new(health.Loops)
	l.Add("replicated state", func() { r.node.State().MembershipVersion() })
	l.Add("cluster node", func() { r.node.Ready() })
	l.Add("keys", func() { r.keys.AcceptedIDs() })
	l.Add("ring store", func() { r.store.Info() })
	l.Add("event bus", func() { r.bus.Subscribe(unheard).Close() })
	return l
}

// unheard is a tag that no event has.
const unheard = "clustermaster/liveness"

// statusLine is what systemctl status shows.
func (r *rooms) statusLine() string {
	if why := r.node.NotServing(); why != "" {
		return "not serving: " + why
	}
	select {
	case <-r.listening:
		return "serving"
	default:
		return "opening the minion ports"
	}
}

// listens notes that the minion ports are open.
func (r *rooms) listens() {
	select {
	case <-r.listening:
	default:
		close(r.listening)
	}
}
