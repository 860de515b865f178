package master

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// resolving bounds how many targets that minions gave are resolved at a time: half the processors
// stay free of them.
type resolving chan struct{}

// maxResolvingWait is how long a target waits for its turn.
const maxResolvingWait = 10 * time.Second

var errBusyTargets = errors.New("too many targets of minions wait to be resolved")

func newResolving() resolving { return make(resolving, max(1, runtime.GOMAXPROCS(0)/2)) }

// enter waits for a turn; call done when it is over.
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

// turn is one request's: it waits for it at most once, when something costly is about to be done.
type turn struct {
	of   resolving
	done func()
}

// take comes back when it is this request's turn. Error: errBusyTargets.
func (t *turn) take(ctx context.Context) (err error) {
	if t == nil || t.done != nil {
		return nil
	}
	t.done, err = t.of.enter(ctx)
	return err
}

// end gives the turn to the next one, if it was taken.
func (t *turn) end() {
	if t.done != nil {
		t.done()
	}
}
