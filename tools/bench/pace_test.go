package bench

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The tests of paces run in synctest's bubbles: time moves only when all wait, so every
// figure is exact.

// steady answers after a fixed time.
type steady time.Duration

func (s steady) Request(ctx context.Context) error {
	if !sleepUntil(ctx, time.Now().Add(time.Duration(s))) {
		return ctx.Err()
	}
	return nil
}

// scripted is a master that all workers share; do says what a request that comes the given time
// after the start gets.
type scripted struct {
	start time.Time
	do    func(at time.Duration) (takes time.Duration, err error)
}

func (s *scripted) Request(ctx context.Context) error {
	takes, err := s.do(time.Since(s.start))
	if !sleepUntil(ctx, time.Now().Add(takes)) {
		return ctx.Err()
	}
	return err
}

func crowd(r requester, n int) []requester {
	out := make([]requester, n)
	for i := range out {
		out[i] = r
	}
	return out
}

// at is the latency that this share of the answers in per cent does not exceed, to a thousandth.
func at(a *account, percent float64) time.Duration {
	return time.Duration(a.Latency.ValueAtPercentile(percent))
}

// is compares a latency to a thousandth.
func is(got, want time.Duration) bool { return (got - want).Abs() <= want/1000 }

func balanced(t *testing.T, a *account) {
	t.Helper()
	if a.Due != a.Answered+a.Failed+a.Unsent {
		t.Errorf("%d due, but %d answered, %d failed, %d unsent", a.Due, a.Answered, a.Failed,
			a.Unsent)
	}
}

func TestClosedLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Duration(0), time.Duration(0)
		start := time.Now()
		a := drive(t.Context(), crowd(steady(10*time.Millisecond), 4),
			pace{warmup: time.Second, measure: 2 * time.Second, patience: time.Second}, nil,
			func() func() {
				began = time.Since(start)
				return func() { ended = time.Since(start) }
			})
		balanced(t, &a)
		// 4 workers, 100 answers a second each; those that come at the very end are out.
		if a.Answered != 800 || a.Failed != 0 || a.Completed != 800 && a.Completed != 796 {
			t.Errorf("%d answered, %d completed, %d failed, want 800, 800 and none", a.Answered,
				a.Completed, a.Failed)
		}
		if !is(at(&a, 0), 10*time.Millisecond) || !is(at(&a, 100), 10*time.Millisecond) ||
			uint64(a.Latency.TotalCount()) != a.Due {
			t.Errorf("latency %v to %v of %d", at(&a, 0), at(&a, 100), a.Latency.TotalCount())
		}
		if began != time.Second || ended != 3*time.Second {
			t.Errorf("measured from %v to %v", began, ended)
		}
	})
}

func TestOpenLoopAtEase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := drive(t.Context(), crowd(steady(5*time.Millisecond), 4),
			pace{measure: 2 * time.Second, rate: 100, patience: time.Second}, nil, nil)
		balanced(t, &a)
		if a.Due != 200 || a.Answered != 200 || a.Unsent != 0 ||
			!is(at(&a, 100), 5*time.Millisecond) {
			t.Errorf("%+v", a)
		}
	})
}

// A stall of the master must show in the latency of everything that was due meanwhile: this is what
// a closed loop leaves out.
func TestOpenLoopHasNoCoordinatedOmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// One worker, one request due each 10 ms, each takes 1 ms; nothing is answered from 1 s to
		// 2 s.
		master := &scripted{start: time.Now(), do: func(at time.Duration) (time.Duration, error) {
			if at >= time.Second && at < 2*time.Second {
				return 2*time.Second - at + time.Millisecond, nil
			}
			return time.Millisecond, nil
		}}
		p := pace{measure: 4 * time.Second, rate: 100, patience: 10 * time.Second}
		a := drive(t.Context(), []requester{master}, p, nil, nil)
		balanced(t, &a)
		if a.Due != 400 || a.Answered != 400 {
			t.Fatalf("%d due, %d answered, want 400", a.Due, a.Answered)
		}
		// 100 requests were due in the stall. The first waits 1 s, the last but a little.
		if d := at(&a, 100); !is(d, 1001*time.Millisecond) {
			t.Errorf("max %v, want 1.001 s", d)
		}
		if p90 := at(&a, 90); p90 < 600*time.Millisecond ||
			p90 > 720*time.Millisecond {
			t.Errorf("p90 %v: 40 of 400 requests waited longer than 0.6 to 0.7 s", p90)
		}
		if p50 := at(&a, 50); !is(p50, time.Millisecond) {
			t.Errorf("p50 %v, want 1 ms", p50)
		}

		// The same in a closed loop sees one slow request: that is the difference.
		master.start = time.Now()
		p.rate = 0
		if c := drive(t.Context(), []requester{master}, p, nil,
			nil); !is(at(&c, 99), time.Millisecond) {
			t.Errorf("closed loop: p99 %v", at(&c, 99))
		}
	})
}

// What the workers don't come round to stays in the account, and in the latency with the time that
// it waited.
func TestOpenLoopBeyondCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := drive(t.Context(), crowd(steady(100*time.Millisecond), 2),
			pace{warmup: time.Second, measure: 9 * time.Second, rate: 100,
				patience: time.Second}, nil, nil)
		balanced(t, &a)
		if a.Due != 900 || a.Latency.TotalCount() != 900 {
			t.Errorf("%d due, %d latencies, want 900: 100 a second for 9 s", a.Due,
				a.Latency.TotalCount())
		}
		if n := a.PerSecond(); n < 19 || n > 20 {
			t.Errorf("%v a second, want 20: two workers at 10", n)
		}
		if a.Unsent < 700 || at(&a, 100) < 7*time.Second {
			t.Errorf("%d unsent, max %v", a.Unsent, at(&a, 100))
		}
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad answer")
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0, 50} {
			n := 0
			master := &scripted{start: time.Now(), do: func(time.Duration) (time.Duration, error) {
				switch n++; n % 3 {
				case 0:
					return 0, bad
				case 1:
					return time.Hour, nil // never: the patience ends
				}
				return time.Millisecond, nil
			}}
			m := new(meter)
			a := drive(t.Context(), []requester{master},
				pace{measure: 10 * time.Second, rate: rate,
					patience: 250 * time.Millisecond}, m, nil)
			balanced(t, &a)
			if a.Answered == 0 || a.Failed == 0 || a.Err == nil ||
				m.answered.Load() != a.Answered || m.failed.Load() != a.Failed {
				t.Errorf("rate %v: %+v", rate, a)
			}
			if at(&a, 100) < 250*time.Millisecond {
				t.Errorf("rate %v: time-outs left no trace: max %v", rate, at(&a, 100))
			}
		}
		// A master that refuses at once is not asked in a busy loop.
		asked := 0
		refusing := &scripted{do: func(time.Duration) (time.Duration,
			error) {
			asked++
			return 0, bad
		}}
		a := drive(t.Context(), []requester{refusing},
			pace{measure: time.Second, patience: time.Second}, nil, nil)
		if asked > 60 || a.Answered != 0 || a.PerSecond() != 0 || !errors.Is(a.Err, bad) {
			t.Errorf("asked %d times; %+v", asked, a)
		}
	})
}

func TestDriveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0, 100} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			start := time.Now()
			a := drive(ctx, crowd(steady(500*time.Millisecond), 3),
				pace{warmup: time.Second, measure: time.Hour, rate: rate,
					patience: time.Minute}, nil, func() func() { return func() {} })
			cancel()
			if time.Since(start) != 3*time.Second || a.Took != 2*time.Second {
				t.Errorf("rate %v: ended after %v, measured %v", rate, time.Since(start), a.Took)
			}
		}
	})
}
