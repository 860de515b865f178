package minion

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/prometheus/client_golang/prometheus"
)

// Publication is one message for subscribers.
type Publication struct {
	// Topics, with filtering: one two-frame copy is sent per topic. Unused without filtering.
	Topics []string
	// Payload is shared by all subscribers' queues; it must not be changed any more.
	Payload []byte
	// JID names the publication for Hold and Release.
	JID string
	// Hold > 0: subscribers that (re)connect within this time get it as well. A later publication
	// with the same JID replaces it.
	Hold time.Duration
}

// PubServer is the publish endpoint, to which SUB sockets connect.
type PubServer struct {
	*endpoint
	filtering bool
	losses    losses

	// before subscriber.mu; guards the following, and the order of publications
	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	young       map[*subscriber]struct{} // the subscribers that are not yet long-lived
	longLived   int                      // the number of the others
	held        []heldEdition            // oldest first, at most Limits.MaxHeld
}

type heldEdition struct {
	jid   string
	until time.Time
	*edition
}

// NewPubServer makes a publish endpoint. filtering is the option zmq_filtering: two
// frames, topic and payload. log and reg may be nil.
func NewPubServer(lim Limits, filtering bool, log *slog.Logger,
	reg prometheus.Registerer) *PubServer {
	lim.SilentTimeout = cmp.Or(lim.SilentTimeout, time.Hour)
	p := &PubServer{endpoint: newEndpoint("publish", lim, log, newMetrics("publish", reg)),
		filtering: filtering, subscribers: make(map[*subscriber]struct{}),
		young: make(map[*subscriber]struct{})}
	p.own = zmq4.Pub
	p.begin = func(l *link) session { return newSubscriber(l, p) }
	p.peers = []zmq4.SocketType{zmq4.Sub, zmq4.XSub}
	return p
}

// Serve accepts subscribers from ln until ctx ends; it closes ln. When it stops it writes the
// queued publications, for at most Limits.DrainTimeout. It returns nil after ctx ended and may be
// called again then.
func (p *PubServer) Serve(ctx context.Context, ln net.Listener) error {
	var expiry sync.WaitGroup
	defer expiry.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	expiry.Go(func() { p.age(ctx) })
	return p.serve(ctx, ln)
}

// age drops expired held publications if nothing else does, and notes which subscribers are
// long-lived.
func (p *PubServer) age(ctx context.Context) {
	tick := time.NewTicker(min(time.Second, p.lim.LongLived/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.mu.Lock()
			p.release(func(h heldEdition) bool { return h.until.Before(now) })
			for s := range p.young {
				if now.Sub(s.since) >= p.lim.LongLived {
					delete(p.young, s)
					s.longLived = true
					p.longLived++
				}
			}
			p.mu.Unlock()
		}
	}
}

// Publish queues a publication for every subscriber of its topics and returns their number. It
// never waits for a subscriber: one whose queue is full misses it. Subscribers get publications in
// the order of the calls.
func (p *PubServer) Publish(pub Publication) (subscribers int) {
	e := newEdition(pub.Topics, pub.Payload, p.filtering)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(func(h heldEdition) bool {
		return h.until.Before(now) || pub.Hold > 0 &&
			h.jid == pub.JID
	})
	if pub.Hold > 0 {
		p.held = append(p.held, heldEdition{jid: pub.JID, until: now.Add(pub.Hold), edition: e})
		if len(p.held) > p.lim.MaxHeld {
			p.held = append(p.held[:0], p.held[1:]...)
			p.met.heldDropped.Inc()
		}
		p.met.held.Set(float64(len(p.held)))
	}
	queued, slow := 0, 0
	for s := range p.subscribers {
		copies := e.matching(s.prefixes)
		if len(copies) == 0 {
			continue
		}
		n := s.put(copies, p.lim.PubHWM)
		if n > 0 {
			subscribers++
		}
		queued, slow = queued+n, slow+len(copies)-n
	}
	p.met.publications.Inc()
	p.count(queued, slow)
	return subscribers
}

// Release drops a held publication.
func (p *PubServer) Release(jid string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(func(h heldEdition) bool { return h.jid == jid || h.until.Before(now) })
}

// Subscribers returns the number of connections with at least one subscription.
func (p *PubServer) Subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.subscribers)
}

// Losses returns the times within the last 30 s at which at least half of the long-lived
// subscribers, and at least two, had left within 2 s, and the times of ExpectBack. Stopping is not
// a loss.
func (p *PubServer) Losses() []time.Time { return p.losses.times(time.Now()) }

// ExpectBack notes that subscribers of the previous process will come back, which counts as a loss.
func (p *PubServer) ExpectBack() { p.losses.elsewhere(time.Now()) }

// release drops held publications; the caller holds mu.
func (p *PubServer) release(drop func(heldEdition) bool) {
	kept := p.held[:0]
	for _, h := range p.held {
		if !drop(h) {
			kept = append(kept, h)
		}
	}
	clear(p.held[len(kept):])
	p.held = kept
	p.met.held.Set(float64(len(kept)))
}

func (p *PubServer) count(queued, slow int) {
	if queued > 0 {
		p.met.copies.WithLabelValues("queued").Add(float64(queued))
	}
	if slow > 0 {
		p.met.copies.WithLabelValues("slow").Add(float64(slow))
		p.warn("publication not queued for slow subscribers", "subscribers", slow)
	}
}

// subscribe changes the subscriptions of s. It queues the held publications that s now gets and did
// not get before, so that a returning subscriber misses nothing.
func (p *PubServer) subscribe(s *subscriber, topic string, on bool) error {
	after, err := s.setTopic(topic, on)
	if err != nil {
		return err
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	before := s.prefixes
	s.prefixes = after
	switch {
	case len(s.prefixes) == 0:
		p.forget(s)
		return nil
	case len(before) == 0:
		p.subscribers[s], p.young[s] = struct{}{}, struct{}{}
		s.since, s.longLived = now, false
		p.met.subscribers.Inc()
	}
	if !on || slices.Equal(before, after) {
		return nil
	}
	p.release(func(h heldEdition) bool { return h.until.Before(now) })
	queued, slow := 0, 0
	for _, h := range p.held {
		copies := h.added(before, s.prefixes)
		n := s.put(copies, p.lim.PubHWM)
		queued, slow = queued+n, slow+len(copies)-n
	}
	p.count(queued, slow)
	return nil
}

// leave removes s and notes a loss if many left with it. Short-lived subscribers don't count: they
// miss no jobs, and jobs are not sent again to all because of them.
func (p *PubServer) leave(s *subscriber) {
	p.mu.Lock()
	counts := p.forget(s) && s.longLived
	remaining := p.longLived
	p.mu.Unlock()
	if !counts || p.stopping.Load() {
		return
	}
	switch p.losses.left(time.Now(), remaining) {
	case loss:
		p.met.losses.Inc()
		p.log.Warn("half of the subscribers left at once; their jobs are sent again when they return", "n", remaining)
	case ignored:
		p.met.lossesIgnored.Inc()
		p.warn("half of the subscribers went at once, once more; jobs are not sent again for it, see which addresses connect", "remaining", remaining)
	}
}

func (p *PubServer) forget(s *subscriber) (was bool) {
	if _, was = p.subscribers[s]; was {
		delete(p.subscribers, s)
		delete(p.young, s)
		if s.longLived {
			p.longLived--
		}
		p.met.subscribers.Dec()
	}
	return was
}
