package auth

import (
	"errors"
	"log/slog"

	"clustermaster/serve/seldom"
)

// refusals logs some refusals, by back end; those for too many attempts count separately. Back ends
// are those of external_auth, "unknown" and "token", so the kinds are bounded.
type refusals struct{ seldom seldom.Lines[string] }

func (r *refusals) tell(log *slog.Logger, eauth, source, user string, err error) {
	kind := eauth
	if errors.Is(err, errBusy) {
		kind += " busy"
	}
	if n := r.seldom.Due(kind); n > 0 {
		log.Warn("authentication refused", "eauth", eauth, "user", user, "addr", source, "err",
			err, "n", n)
	}
}
