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
	if n := r.due(reason); n > 0 {
		r.log.Warn("request refused", append(who, "reason", reason, "addr", remote, "n", n)...)
	}
}

// due returns for how many lines of a kind one may be logged now; 0: none may.
func (r *refusals) due(kind string) (n int) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.seen[kind]
	if l == nil {
		l = &refusalLog{}
		r.seen[kind] = l
	}
	if now.Sub(l.last) < refusalLogInterval {
		l.suppressed++
		return 0
	}
	n = l.suppressed + 1
	l.last, l.suppressed = now, 0
	return n
}
