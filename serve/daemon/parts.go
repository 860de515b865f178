package daemon

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Part runs until its context ends. An error ends the others.
type Part func(ctx context.Context) error

// If returns p if the condition holds, else a part that ends at once.
func If(there bool, p Part) Part {
	if !there {
		return func(context.Context) error { return nil }
	}
	return p
}

// Parts run in the process. The upper parts depend on the lower ones.
type Parts struct {
	Lower, Upper []Part
	// Between is called once the upper parts have ended, while the lower ones run.
	Between func()
}

// Run runs all parts until ctx ends or one fails. The upper parts end first, then the lower ones. A
// lower part that ends early ends all, even without an error. It returns nil if ctx ended.
func (p Parts) Run(ctx context.Context) error {
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	upper, uctx := errgroup.WithContext(ctx)
	lower, lctx := errgroup.WithContext(base)
	for _, part := range p.Lower {
		lower.Go(func() error {
			err := part(lctx)
			if err == nil && lctx.Err() == nil && ctx.Err() == nil {
				err = errors.New("a part of the master ended without a reason")
			}
			return err
		})
	}
	upper.Go(func() error {
		select {
		case <-lctx.Done():
			return context.Cause(lctx)
		case <-uctx.Done():
			return nil
		}
	})
	for _, part := range p.Upper {
		upper.Go(func() error { return part(uctx) })
	}
	err := upper.Wait()
	if p.Between != nil {
		p.Between()
	}
	stop()
	if lowerErr := lower.Wait(); lowerErr != nil && err == nil &&
		!errors.Is(lowerErr, context.Canceled) {
		err = lowerErr
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
