package pace

import (
	"context"
	"fmt"
	"time"
)

// Silence is how long a master waits for another that sends nothing.
const Silence = 20 * time.Second

// Quiet returns a context that ends with the error of why after limit, unless the caller resets the
// timer whenever something arrives. Call stop at the end.
func Quiet(ctx context.Context, limit time.Duration, why error) (_ context.Context,
	timer *time.Timer, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer = time.AfterFunc(limit, func() { cancel(why) })
	return ctx, timer, func() {
		timer.Stop()
		cancel(nil)
	}
}

// ErrSilent is the cause when a master sent nothing for Silence.
var ErrSilent = fmt.Errorf("it said nothing for %v", Silence)

// Step is a message of a stream that reports progress until its work is done.
type Step interface{ GetDone() bool }

// Steps is a stream of steps, such as a gRPC client's.
type Steps[S Step] interface{ Recv() (S, error) }

// Last starts a stream and returns its last step. It passes every other step to show, which may be
// nil. If the other end sends nothing for Silence, or ctx ends, the error is the cause of that;
// otherwise it is the stream's own, io.EOF if the stream ended before its last step.
func Last[S Step, C Steps[S]](ctx context.Context, start func(context.Context) (C, error),
	show func(S)) (S, error) {
	var none S
	ctx, quiet, stop := Quiet(ctx, Silence, ErrSilent)
	defer stop()
	stream, err := start(ctx)
	for err == nil {
		var step S
		if step, err = stream.Recv(); err != nil {
			break
		}
		quiet.Reset(Silence)
		if step.GetDone() {
			return step, nil
		}
		if show != nil {
			show(step)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return none, cause
	}
	return none, err
}
