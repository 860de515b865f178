package master

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// refusalLogInterval is how often a reason is logged at most; what came between is counted in the line.
const refusalLogInterval = 10 * time.Second

// refusals counts requests that were not served, by reason, and logs some of them. Reasons are constants of wire and of this
// package, so the map is bounded.
type refusals struct {
	log     *slog.Logger
	metrics *metrics

	mu   sync.Mutex // guards seen
	seen map[string]*refusalLog
}

type refusalLog struct {
	last       time.Time
	suppressed int
}

func (r *refusals) note(reason, id string, remote netip.AddrPort) {
	r.metrics.refused.WithLabelValues(reason).Inc()
	now := time.Now()
	r.mu.Lock()
	l := r.seen[reason]
	if l == nil {
		l = &refusalLog{}
		r.seen[reason] = l
	}
	if now.Sub(l.last) < refusalLogInterval {
		l.suppressed++
		r.mu.Unlock()
		return
	}
	suppressed := l.suppressed
	l.last, l.suppressed = now, 0
	r.mu.Unlock()
	if len(id) > 64 {
		id = id[:64]
	}
	r.log.Warn("request refused", "reason", reason, "minion", id, "addr", remote, "n", suppressed+1)
}
