package conformance

import (
	"bytes"
	"fmt"
	"testing"
)

// grainEventWiring has events that name the grains by which a minion asks to be accepted.
func grainEventWiring() wiring {
	return wiring{
		name: "grainevents",
		set:  "auth_events_autosign_grains: [accept, pend]\n",
		looks: []wired{{options: "auth_events_autosign_grains",
			ask: func(t *testing.T, m *subject) string {
				h := hear(t, m.path("run"))
				m.first(t, "grained", with("autosign_grains", dict("role", "the grain's value")))
				h.wait(t, "salt/auth")
				h.mu.Lock()
				defer h.mu.Unlock()
				return fmt.Sprint("in the event: ", bytes.Contains(h.all, []byte("the grain's value")))
			}}},
	}
}
