package master

import (
	"log/slog"
	"net/netip"

	"clustermaster/serve/seldom"
	"clustermaster/value"
)

// refusals counts refused requests by reason and logs some of them. Reasons are constants of wire
// and of this package, so the kinds of lines are bounded.
type refusals struct {
	log     *slog.Logger
	metrics *metrics
	seldom  seldom.Lines[string] // by reason
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
	if n := r.seldom.Due(reason); n > 0 {
		r.log.Warn("request refused", append(who, "reason", reason, "addr", remote, "n", n)...)
	}
}
