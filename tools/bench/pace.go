package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// requester sends one request at a time and waits for its answer.
type requester interface {
	// Request returns nil if the right answer came. Only one goroutine calls it.
	Request(ctx context.Context) error
}

// pace says when to send requests.
type pace struct {
	// warmup comes before the measured time; its requests are sent but not counted.
	warmup, measure time.Duration
	// rate is the number of requests due in a second (open loop); 0: each worker sends
	// the next one as soon as it has its answer (closed loop).
	rate float64
	// patience is how long one request may take; after that it has failed.
	patience time.Duration
}

// account counts the results of a drive's requests.
type account struct {
	// Due is the number of requests for the measured time: by the clock in the open loop, as many
	// as were sent in the closed loop. Due = Answered + Failed + Unsent.
	Due, Answered, Failed, Unsent uint64
	// Completed is the number of good answers that arrived within the measured time, whenever their
	// requests were sent: the throughput is Completed / Took.
	Completed uint64
	Took      time.Duration
	// Latency has the requests due in the measured time, in nanoseconds, to a thousandth. Time-outs
	// count with the patience, unsent ones with the time that they had waited; it leaves out other
	// failures.
	Latency *hdrhistogram.Histogram
	// Err is the first failure.
	Err error
}

// maxLatency is longer than any run and its last request.
const maxLatency = 48 * time.Hour

func newAccount() account {
	return account{Latency: hdrhistogram.New(1, int64(maxLatency), 3)}
}

func (a *account) record(d time.Duration) { _ = a.Latency.RecordValue(int64(d)) } // within bounds

// PerSecond is the throughput.
func (a *account) PerSecond() float64 {
	if a.Took <= 0 {
		return 0
	}
	return float64(a.Completed) / a.Took.Seconds()
}

// meter shows the progress of a drive.
type meter struct{ answered, failed atomic.Uint64 }

func (m *meter) String() string {
	return fmt.Sprintf("%d answers  %d failed", m.answered.Load(), m.failed.Load())
}

// failurePause slows a worker whose requests fail at once.
const failurePause = 20 * time.Millisecond

// drive makes every worker send requests at the given pace. It returns the account when the last
// answer has arrived or its patience has ended. It calls begin, if not nil, when the measured time
// begins, and begin's result when that ends.
func drive(ctx context.Context, workers []requester, p pace, m *meter,
	begin func() (end func())) account {
	if m == nil {
		m = new(meter)
	}
	d := &driving{pace: p, meter: m, start: time.Now()}
	d.from = d.start.Add(p.warmup)
	d.to = d.from.Add(p.measure)
	accounts := make([]account, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		accounts[i] = newAccount()
		wg.Go(func() {
			if p.rate > 0 {
				d.open(ctx, w, &accounts[i])
			} else {
				d.closed(ctx, w, &accounts[i])
			}
		})
	}
	if begin != nil && sleepUntil(ctx, d.from) {
		end := begin()
		sleepUntil(ctx, d.to)
		end()
	}
	wg.Wait()
	sum := newAccount()
	sum.Took = min(time.Since(d.from), p.measure)
	for i := range accounts {
		sum.add(&accounts[i])
	}
	if p.rate > 0 && ctx.Err() == nil {
		d.settle(&sum)
	}
	return sum
}

func (a *account) add(o *account) {
	a.Due += o.Due
	a.Answered += o.Answered
	a.Failed += o.Failed
	a.Unsent += o.Unsent
	a.Completed += o.Completed
	a.Latency.Merge(o.Latency)
	if a.Err == nil {
		a.Err = o.Err
	}
}

// driving is the common state of the workers of a drive.
type driving struct {
	pace
	meter           *meter
	start, from, to time.Time
	next            atomic.Int64 // open loop: the next free slot
}

// closed sends one request after the other until the time is over.
func (d *driving) closed(ctx context.Context, w requester, a *account) {
	for ctx.Err() == nil {
		due := time.Now()
		if !due.Before(d.to) {
			return
		}
		d.one(ctx, w, due, a)
	}
}

// open takes slots: request number i is due at start + i/rate, whatever happened to the earlier
// ones. A worker that is late sends at once, and its latency begins at the due time.
func (d *driving) open(ctx context.Context, w requester, a *account) {
	for {
		due := d.slot(d.next.Add(1) - 1)
		if !due.Before(d.to) || !sleepUntil(ctx, due) {
			return
		}
		if !time.Now().Before(d.to) { // too late to send
			d.unsent(due, a)
			continue
		}
		d.one(ctx, w, due, a)
	}
}

func (d *driving) slot(i int64) time.Time {
	return d.start.Add(time.Duration(float64(i) / d.rate * float64(time.Second)))
}

// unsent counts a request that was due and not sent by the end: it had waited at least until then.
func (d *driving) unsent(due time.Time, a *account) {
	if due.Before(d.from) {
		return
	}
	a.Due++
	a.Unsent++
	a.record(d.to.Sub(due))
}

// settle counts the slots that no worker took, because all were busy until the end.
func (d *driving) settle(sum *account) {
	for i := d.next.Load(); ; i++ {
		due := d.slot(i)
		if !due.Before(d.to) {
			return
		}
		d.unsent(due, sum)
	}
}

// one sends a request and counts its result.
func (d *driving) one(ctx context.Context, w requester, due time.Time, a *account) {
	reqCtx, cancel := context.WithTimeout(ctx, d.patience)
	err := w.Request(reqCtx)
	late := errors.Is(err, context.DeadlineExceeded)
	cancel()
	now := time.Now()
	counted := !due.Before(d.from)
	if ctx.Err() != nil && err != nil {
		return // the caller ended it
	}
	if counted {
		a.Due++
	}
	if err != nil {
		d.meter.failed.Add(1)
		if counted {
			a.Failed++
			if a.Err == nil {
				a.Err = err
			}
			if late {
				a.record(now.Sub(due))
			}
		}
		if !late {
			sleepUntil(ctx, now.Add(failurePause))
		}
		return
	}
	d.meter.answered.Add(1)
	if counted {
		a.Answered++
		a.record(now.Sub(due))
	}
	if !now.Before(d.from) && now.Before(d.to) {
		a.Completed++
	}
}

// sleepUntil sleeps until t; it returns false if ctx ended before.
func sleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
