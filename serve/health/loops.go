package health

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// loopTime is how long a master's loops may take to answer before the master counts as stuck.
const loopTime = 10 * time.Second

// Loops are the parts of a master without which it is of no use. Each check takes the locks of its
// part, and returns at once unless the part is stuck.
type Loops struct {
	checks  []check
	pending atomic.Pointer[string] // the check that has not returned
}

type check struct {
	name string
	ask  func()
}

// Add names a check. Not for use once Alive is called.
func (l *Loops) Add(name string, ask func()) { l.checks = append(l.checks, check{name, ask}) }

// errBusy says that an earlier look has not ended.
var errBusy = errors.New("a part of the master has not answered an earlier check")

// Alive asks every part. An error names the one that did not answer within 10 s.
func (l *Loops) Alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loopTime)
	defer cancel()
	first := "begin"
	if !l.pending.CompareAndSwap(nil, &first) {
		return errBusy
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range l.checks {
			l.pending.Store(&l.checks[i].name)
			l.checks[i].ask()
		}
		l.pending.Store(nil)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		if name := l.pending.Load(); name != nil {
			return fmt.Errorf("%s: did not answer within %v: %w", *name, loopTime,
				context.Cause(ctx))
		}
		return nil
	}
}
