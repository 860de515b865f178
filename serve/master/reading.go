package master

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of requests that read the site's files. While the disk or the file server behind a folder
// hangs, each of them keeps a thread of the process, of which Go allows 10,000 and podman 2,048 by
// default; without a bound the minions of a large site would end the master.
const (
	filesAtOnce   = 500
	pillarsAtOnce = 1000 // a pillar may wait for other programs, too
	readPatience  = time.Minute
)

// errReading says that so many requests were reading files for too long.
var errReading = errors.New("too many requests wait for file_roots or pillar_roots; see cluster.health")

// readers bounds the requests that read files at a time; more of them wait.
type readers struct {
	slots   chan struct{}
	waiting prometheus.Gauge
}

func newReaders(what string, most int, m *metrics) *readers {
	return &readers{slots: make(chan struct{}, most), waiting: m.readersWaiting.WithLabelValues(what)}
}

// enter waits for a place, for readPatience at most. The caller leaves.
func (r *readers) enter(ctx context.Context) error {
	select {
	case r.slots <- struct{}{}:
		return nil
	default:
	}
	r.waiting.Inc()
	defer r.waiting.Dec()
	ctx, cancel := context.WithTimeoutCause(ctx, readPatience, errReading)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *readers) leave() { <-r.slots }
