package auth

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// refusalLogInterval is the minimum time between log lines on refusals of one back end; those for
// too many attempts count separately.
const refusalLogInterval = 10 * time.Second

// refusals logs some refusals and counts the others in those lines. Back ends are those of
// external_auth, "unknown" and "token", so the map is bounded.
type refusals struct {
	mu   sync.Mutex // guards seen
	seen map[string]*refusalLog
}

type refusalLog struct {
	last       time.Time
	suppressed int
}

func (r *refusals) tell(log *slog.Logger, eauth, source, user string, err error) {
	reason := eauth
	if errors.Is(err, errBusy) {
		reason += " busy"
	}
	now := time.Now()
	r.mu.Lock()
	l := r.seen[reason]
	if l == nil {
		l = new(refusalLog)
		if r.seen == nil {
			r.seen = map[string]*refusalLog{}
		}
		r.seen[reason] = l
	}
	if now.Sub(l.last) < refusalLogInterval {
		l.suppressed++
		r.mu.Unlock()
		return
	}
	n := l.suppressed + 1
	l.last, l.suppressed = now, 0
	r.mu.Unlock()
	log.Warn("authentication refused", "eauth", eauth, "user", user, "addr", source, "err", err,
		"n", n)
}
