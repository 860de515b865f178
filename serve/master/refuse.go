package master

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"clustermaster/value"
)

// refusalLogInterval is the minimum time between log lines with the same reason. Each line counts
// the refusals since the last one.
const refusalLogInterval = 10 * time.Second

// refusals counts refused requests by reason and logs some of them. Reasons are constants of wire
// and of this package, so the map is bounded.
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

// note counts a minion's refused request.
func (r *refusals) note(reason, id string, remote netip.AddrPort) {
	r.tell(reason, remote, "minion", shortened(id))
}

// order counts a user's refused order. Fun may be any value.
func (r *refusals) order(reason, cmd, user string, fun any, remote netip.AddrPort) {
	r.tell(reason, remote, "cmd", cmd, "user", shortened(user), "fun", shortened(value.Str(fun)))
}

// shortened makes a text from a stranger safe for a log.
func shortened(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}

func (r *refusals) tell(reason string, remote netip.AddrPort, who ...any) {
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
	r.log.Warn("request refused", append(who, "reason", reason, "addr", remote, "n",
		suppressed+1)...)
}
