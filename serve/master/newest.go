package master

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/wire"
)

const (
	// askPause is the shortest time between two questions to the leader, so that requests of
	// strangers do not multiply into requests between masters.
	askPause = 50 * time.Millisecond
	// askLimit ends a question that the leader does not answer, if PeerTimeout does not allow it
	// more time.
	askLimit = 2 * time.Second
)

// newest lets requests that the keys known here refuse wait until this master knows at least what
// any master knew when they came. A key may have been accepted at another master, and its minion
// have signed in there, a moment before the command reaches this one.
type newest struct {
	readIndex func(context.Context) error
	stopped   context.Context
	pause     time.Duration
	limit     time.Duration // of a question
	helped    prometheus.Counter

	mu    sync.Mutex
	next  *question // not asked yet
	asked time.Time // when the one before was
}

// question is asked once for all requests that came before.
type question struct {
	answered chan struct{}
	err      error
}

// twice calls check, which looks at keys, and once more with newer ones if it refuses.
func (n *newest) twice(ctx context.Context, check func() *wire.Refusal) *wire.Refusal {
	refusal := check()
	if refusal == nil || n.wait(ctx) != nil {
		return refusal
	}
	if refusal = check(); refusal == nil {
		n.helped.Inc()
	}
	return refusal
}

// wait returns nil once the state here is as new as this call.
func (n *newest) wait(ctx context.Context) error {
	n.mu.Lock()
	q := n.next
	if q == nil {
		q = &question{answered: make(chan struct{})}
		n.next = q
		time.AfterFunc(n.pause-time.Since(n.asked), n.ask)
	}
	n.mu.Unlock()
	select {
	case <-q.answered:
		return q.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (n *newest) ask() {
	n.mu.Lock()
	q := n.next
	n.next, n.asked = nil, time.Now()
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(n.stopped, n.limit)
	defer cancel()
	q.err = n.readIndex(ctx)
	close(q.answered)
}
