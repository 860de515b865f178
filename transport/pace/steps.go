package pace

import (
	"context"
	"fmt"
	"time"
)

// Silence is how long a master may send nothing before the one that waits gives up.
const Silence = 20 * time.Second

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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(Silence,
		func() { cancel(fmt.Errorf("it said nothing for %v", Silence)) })
	defer quiet.Stop()
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
