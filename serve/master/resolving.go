package master

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// resolving bounds how many targets that minions gave are resolved at a time: half the processors stay free of them.
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
