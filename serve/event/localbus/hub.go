package localbus

import (
	"sync"

	"clustermaster/serve/event"
)

// hub passes each event, framed once, to all listeners. It follows the bus only while it has
// listeners.
type hub struct {
	s *Server

	mu        sync.Mutex // guards the fields below; before listener.mu
	listeners map[*listener]struct{}
	answers   map[string]answer // by tag
	sub       *event.Subscription
	running   sync.WaitGroup
}

// enter adds a listener, which gets events from now on.
func (h *hub) enter(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners[l] = struct{}{}
	h.s.metrics.listeners.Inc()
	if h.sub != nil {
		return
	}
	sub := h.s.deps.Mesh.Follow("")
	h.sub = sub
	h.running.Go(func() { h.pass(sub) })
}

// leave removes a listener; the last one ends the subscription.
func (h *hub) leave(l *listener) {
	h.mu.Lock()
	delete(h.listeners, l)
	h.s.metrics.listeners.Dec()
	var over *event.Subscription
	if len(h.listeners) == 0 {
		over, h.sub = h.sub, nil
	}
	h.mu.Unlock()
	if over != nil {
		over.Close()
	}
}

// pass frames the events of sub until it is closed.
func (h *hub) pass(sub *event.Subscription) {
	for {
		select {
		case e, ok := <-sub.C:
			if !ok {
				return
			}
			h.tell(sub, e)
		case <-sub.Lost():
			h.lost(sub)
		}
	}
}

func (h *hub) tell(sub *event.Subscription, e event.Event) {
	frame, err := appendFrame(nil, e)
	if err != nil {
		h.s.metrics.unframed.Inc()
		h.s.log.Debug("event not passed on", "tag", e.Tag, "err", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sub != sub { // its listeners have left, and others came
		return
	}
	instead, some := h.answers[e.Tag]
	delete(h.answers, e.Tag)
	for l := range h.listeners {
		if some && instead.to[l] {
			l.offer(instead.frame)
		} else {
			l.offer(frame)
		}
	}
}

// lost handles a loss of events. Listeners can't be told, because Salt has no message for it.
func (h *hub) lost(sub *event.Subscription) {
	h.mu.Lock()
	n := len(h.listeners)
	h.mu.Unlock()
	h.s.log.Warn("listeners on the local bus may have missed events: another master was lost, or this one was too slow", "n", n, "dropped", sub.Dropped())
}
