package event

import "sync"

// Bounds of the queue of one subscriber. At the limit it drops and counts the oldest events.
const (
	maxQueuedEvents = 16384
	maxQueuedBytes  = 64 << 20
)

// Subscription receives events until it is closed.
type Subscription struct {
	// C receives the events in order. Close closes it.
	C <-chan Event

	out     chan Event
	wants   func(tag string) bool
	detach  func()
	metrics *metrics

	mu      sync.Mutex // guards the fields below
	queue   []Event    // ring: count events from head on
	head    int
	count   int
	bytes   int
	dropped uint64

	lost        chan struct{} // holds one notice
	wake        chan struct{}
	stop        chan struct{}
	stopOnce    sync.Once
	pumped      chan struct{}
	unconfirmed []string
}

func newSubscription(m *metrics, wants func(string) bool) *Subscription {
	out := make(chan Event)
	s := &Subscription{
		C: out, out: out, wants: wants, metrics: m, detach: func() {},
		lost: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}),
		pumped: make(chan struct{}),
	}
	m.subscriptions.Inc()
	go s.pump()
	return s
}

// Close ends the subscription and closes C. It may be called more than once.
func (s *Subscription) Close() {
	s.stopOnce.Do(func() {
		s.detach()
		close(s.stop)
		s.metrics.subscriptions.Dec()
	})
	<-s.pumped
}

// Lost receives a notice when events were lost since the last one: because this subscriber read too
// slowly, or because this master did not take those of another one in time, or lost its stream
// (then they may have been for other subscribers).
func (s *Subscription) Lost() <-chan struct{} { return s.lost }

// miss queues a notice of loss.
func (s *Subscription) miss() {
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// Dropped returns the number of events lost because the subscriber read too slowly.
func (s *Subscription) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Unconfirmed names the masters (Node strings) that had not confirmed when the subscription was
// returned. Their events arrive once they do.
func (s *Subscription) Unconfirmed() []string { return s.unconfirmed }

// offer queues e and never blocks.
func (s *Subscription) offer(e Event) {
	size := len(e.Tag) + len(e.Data)
	s.mu.Lock()
	full := false
	for s.count > 0 && (s.count >= maxQueuedEvents || s.bytes+size > maxQueuedBytes) {
		s.drop()
		s.dropped++
		s.metrics.dropped.Inc()
		full = true
	}
	if s.count == len(s.queue) {
		grown := make([]Event, max(16, 2*len(s.queue)))
		for i := range s.count {
			grown[i] = s.queue[(s.head+i)%len(s.queue)]
		}
		s.queue, s.head = grown, 0
	}
	s.queue[(s.head+s.count)%len(s.queue)] = e
	s.count++
	s.bytes += size
	s.mu.Unlock()
	if full {
		s.miss()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// drop removes the oldest event from the queue. The caller holds mu and has checked that there is
// one.
func (s *Subscription) drop() Event {
	e := s.queue[s.head]
	s.queue[s.head] = Event{}
	s.head = (s.head + 1) % len(s.queue)
	s.count--
	s.bytes -= len(e.Tag) + len(e.Data)
	if s.count == 0 && len(s.queue) > 1024 {
		s.queue, s.head = nil, 0 // a burst is over
	}
	return e
}

func (s *Subscription) pump() {
	defer close(s.pumped)
	defer close(s.out)
	for {
		s.mu.Lock()
		if s.count == 0 {
			s.mu.Unlock()
			select {
			case <-s.wake:
				continue
			case <-s.stop:
				return
			}
		}
		e := s.drop()
		s.mu.Unlock()
		select {
		case s.out <- e:
		case <-s.stop:
			return
		}
	}
}
