package pace

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestThrottleSpreadsWhatIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(1000)
		start := time.Now()
		var wg sync.WaitGroup
		for range 4 { // who sends shares the rate
			wg.Go(func() {
				for range 5 {
					if err := th.Wait(t.Context(), 100); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// the last piece may go when the others are paid for
		if took := time.Since(start); took != 1900*time.Millisecond {
			t.Errorf("2000 bytes at 1000 a second took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := th.Wait(ctx, 100); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		none := NewThrottle(0)
		start = time.Now()
		if err := none.Wait(t.Context(), 1<<40); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// steps is a stream that sends a step each interval, and then its end.
type steps struct {
	ctx      context.Context
	interval time.Duration
	left     int
	end      error // nil: the last step is done
}

type step bool

func (s step) GetDone() bool { return bool(s) }

func (s *steps) Recv() (step, error) {
	select {
	case <-time.After(s.interval):
	case <-s.ctx.Done():
		return false, s.ctx.Err()
	}
	if s.left--; s.left >= 0 {
		return false, nil
	}
	return s.end == nil, s.end
}

func TestLast(t *testing.T) {
	t.Parallel()
	gone := errors.New("the operator has gone")
	for name, c := range map[string]struct {
		stream steps
		shown  int
		err    string
		took   time.Duration
	}{
		"done":          {steps{interval: time.Second, left: 3}, 3, "", 4 * time.Second},
		"slow":          {steps{interval: Silence - 1, left: 3}, 3, "", 4 * (Silence - 1)},
		"silent":        {steps{interval: Silence + 1}, 0, "it said nothing for 20s", Silence},
		"refused":       {steps{interval: 1, left: 1, end: io.EOF}, 1, "EOF", 2},
		"caller leaves": {steps{interval: time.Second, left: 1000}, 49, gone.Error(), 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer time.AfterFunc(50*time.Second-1, func() { cancel(gone) }).Stop()
				if name != "caller leaves" {
					ctx = t.Context()
				}
				began, shown := time.Now(), 0
				last, err := Last(ctx, func(ctx context.Context) (*steps, error) {
					c.stream.ctx = ctx
					return &c.stream, nil
				}, func(step) { shown++ })
				if err == nil != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("the error is %v, want %q", err, c.err)
				}
				if bool(last) != (c.err == "") || shown != c.shown {
					t.Errorf("last %v, %d steps shown, want %d", last, shown, c.shown)
				}
				if took := time.Since(began); took.Round(time.Second) != c.took.Round(time.Second) {
					t.Errorf("it took %v, want %v", took, c.took)
				}
			})
		})
	}
}
