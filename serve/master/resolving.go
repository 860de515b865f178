package master

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// resolving bounds how many targets from minions are resolved at a time: half the processors stay
// free.
type resolving chan struct{}

// maxResolvingWait is how long a target waits for its turn.
const maxResolvingWait = 10 * time.Second

var errBusyTargets = errors.New("too many targets of minions wait to be resolved")

func newResolving() resolving { return make(resolving, max(1, runtime.GOMAXPROCS(0)/2)) }

// enter waits for a turn. Call done when it is over.
func (r resolving) enter(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxResolvingWait)
	defer cancel()
	select {
	case r <- struct{}{}:
		return func() { <-r }, nil
	case <-ctx.Done():
		return nil, errBusyTargets
	}
}

// turn is one request's turn. The request waits at most once, before its first costly work.
type turn struct {
	of   resolving
	done func()
}

// take returns when this request has its turn. Error: errBusyTargets.
func (t *turn) take(ctx context.Context) (err error) {
	if t == nil || t.done != nil {
		return nil
	}
	t.done, err = t.of.enter(ctx)
	return err
}

// end ends the turn if it was taken.
func (t *turn) end() {
	if t.done != nil {
		t.done()
	}
}
