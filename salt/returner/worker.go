package returner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"clustermaster/store/outbox"
	"clustermaster/value"
)

// Bounds of a call and of the pauses between failing calls.
const (
	maxItems             = 500
	firstItems           = 16 // while it is unknown how long one takes
	share                = 10 // a call may use this part of python_timeout, because items differ
	maxBytes             = 4 << 20
	firstPause, maxPause = 200 * time.Millisecond, 30 * time.Second
	triesAlone           = 5                // of an item before later ones are tried
	probes               = 8                // later items tried first; then twice as many each time
	probing              = 2 * time.Second  // longest time for these tries
	maxRow               = maxItems         // items set aside in a row after one that was taken
	idle                 = 30 * time.Second // then a process without work ends
	renew                = 5 * time.Minute  // then a new process: modules may have changed
	lastCall             = 2 * time.Second  // left to a running call when the master stops
	maxErrorText         = 2000             // bytes of a returner's error in the log
	poll                 = time.Second      // how often the age of waiting items is checked
)

// worker hands over the items of one queue, one call at a time.
type worker struct {
	r                       *Returners
	queue, option, returner string
	least                   int           // a call starts when this many items wait
	age                     time.Duration // or when the first has waited this long; 0: no limit

	refuses atomic.Bool // the last item could not be kept

	// Only run uses the fields below.
	session Session
	began   time.Time // start of session
	limit   int       // size of the next call
	old     int       // items due whatever their number; first those left from the last run
	since   time.Time // when the first item that is not due was seen
	tries   int       // with the first item
	next    uint64    // place after the later items that were tried; 0: none was
	window  int       // how many later items to try next
	failing time.Time // start of the failures; zero: calls succeed
	pause   time.Duration
}

func (w *worker) run(ctx context.Context) {
	defer w.leave()
	more := w.r.d.Box.Wait(w.queue)
	for ctx.Err() == nil {
		var wait time.Duration
		if w.due(time.Now()) {
			if wait = w.step(ctx); wait == 0 {
				continue
			}
			sleep(ctx, wait, nil)
			continue
		}
		wait = idle
		if w.age > 0 && w.r.d.Box.Len(w.queue) > 0 {
			wait = min(w.age, poll)
		}
		if !sleep(ctx, wait, more) && wait == idle {
			w.leave()
		}
	}
}

// sleep returns true if a notice came before the time was over.
func sleep(ctx context.Context, d time.Duration, notice <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-notice:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

func (w *worker) leave() {
	if w.session != nil {
		w.session.Close()
		w.session = nil
	}
}

// due reports whether waiting items are to be handed over now.
func (w *worker) due(now time.Time) bool {
	n := w.r.d.Box.Len(w.queue)
	if n == 0 {
		w.old, w.since = 0, time.Time{}
		return false
	}
	if w.old > 0 || n >= w.least {
		w.old = max(w.old, n) // all of them
		return true
	}
	if w.since.IsZero() {
		w.since = now
	}
	if w.age > 0 && now.Sub(w.since) >= w.age {
		w.old, w.since = n, time.Time{}
		return true
	}
	return false
}

// step makes a call. It returns the pause before the next one.
func (w *worker) step(ctx context.Context) time.Duration {
	box := w.r.d.Box
	items, err := box.Peek(w.queue, 0, min(w.limit, w.old), maxBytes)
	if err != nil || len(items) == 0 {
		return w.failed("", err, 0)
	}
	began := time.Now()
	taken, why, err := w.hand(ctx, items)
	if taken > 0 {
		w.tries, w.next, w.window = 0, 0, probes
	}
	if err == nil && why == "" {
		w.fine()
		if took := time.Since(began); took > 0 { // a call that is cut off repeats what it wrote
			w.limit = max(1, min(w.limit, int(time.Duration(taken)*w.within()/took)))
		}
		return 0
	}
	if ctx.Err() != nil {
		return 0
	}
	w.limit = 1
	if len(items) == 1 {
		w.tries++
	}
	if w.tries >= triesAlone && w.past(ctx) {
		return 0
	}
	return w.failed(why, err, taken)
}

// hand gives items to the returner and removes those it took.
func (w *worker) hand(ctx context.Context, items []outbox.Item) (taken int, why string, err error) {
	values := make([]any, len(items))
	for i, item := range items {
		if values[i], err = value.Unpack(item.Value); err != nil {
			return 0, "", errors.Join(err, w.r.d.Box.SetAside(w.queue, item))
		}
	}
	if w.session != nil && (w.session.Stale() || time.Since(w.began) > renew) {
		w.leave()
	}
	if w.session == nil {
		w.session, w.began = w.r.d.Session(), time.Now()
	}
	// A call that is cut off at the master's end may already have done its work, which would be
	// done again at the next start.
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastCall, cancel) })
	defer stop()
	taken, why, err = w.session.HandOver(call, w.returner, values, w.within())
	if taken > 0 {
		err = errors.Join(err, w.r.d.Box.Take(w.queue, items[:taken]...))
		w.old -= min(taken, w.old)
	}
	return taken, why, err
}

// within is how long a call should take.
func (w *worker) within() time.Duration { return w.r.o.Timeout / share }

// past tries items after the first one, at each call those after the ones that it has tried; after
// the last one it begins anew. If the returner takes one of them but still refuses the first, it
// will never take the first: past sets it aside, with any refused items between the two.
func (w *worker) past(ctx context.Context) bool {
	box := w.r.d.Box
	first, err := box.Peek(w.queue, 0, 1, maxBytes)
	if err != nil || len(first) == 0 {
		return false
	}
	second := first[0].At + 1
	w.next = max(w.next, second)
	later, err := box.Peek(w.queue, w.next, w.window, maxBytes)
	if err == nil && len(later) == 0 {
		w.next, w.window = second, probes
		later, err = box.Peek(w.queue, w.next, w.window, maxBytes)
	}
	if err != nil {
		return false
	}
	took, until := false, time.Now().Add(probing)
	for n := 0; n < len(later) && !took && time.Now().Before(until) && ctx.Err() == nil; n++ {
		taken, _, _ := w.hand(ctx, later[n:n+1])
		took, w.next = taken > 0, later[n].At+1
	}
	w.window = min(2*w.window, maxItems)
	return took && w.judge(ctx)
}

// judge hands over the items before next, one by one, and sets aside those that the returner
// refuses. It ends after maxRow refusals in a row, because the database may be down again.
func (w *worker) judge(ctx context.Context) bool {
	for row := 0; row < maxRow; {
		items, err := w.r.d.Box.Peek(w.queue, 0, 1, maxBytes)
		if err != nil {
			return false
		}
		if len(items) == 0 || items[0].At >= w.next {
			break
		}
		taken, why, err := w.hand(ctx, items)
		if taken > 0 {
			row = 0
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		w.r.d.Log.Error("returner refuses an item but takes a later one; the item is set aside",
			"option", w.option, "returner", w.returner, "err", reason(why, err))
		if err := w.r.d.Box.SetAside(w.queue, items...); err != nil {
			return false
		}
		w.old -= min(1, w.old)
		row++
	}
	w.tries, w.window = 0, probes
	w.fine()
	return true
}

// fine notes a successful call.
func (w *worker) fine() {
	w.limit, w.pause = min(maxItems, 2*w.limit), 0
	if !w.failing.IsZero() {
		w.r.d.Log.Info("returner takes items again", "option", w.option, "returner", w.returner,
			"took", time.Since(w.failing).Round(time.Millisecond), "waiting",
			w.r.d.Box.Len(w.queue))
		w.failing = time.Time{}
	}
}

// failed notes a failed call and returns the pause. It logs the first failure after a success.
func (w *worker) failed(why string, err error, taken int) time.Duration {
	if w.failing.IsZero() {
		w.failing = time.Now()
		w.r.d.Log.Error("returner takes no items; they are kept and tried again",
			"option", w.option, "returner", w.returner, "err", reason(why, err), "waiting",
			w.r.d.Box.Len(w.queue))
	}
	if taken > 0 {
		w.pause = 0
	} else {
		w.leave() // a process keeps the modules that it found, also that there was none
	}
	w.pause = min(max(2*w.pause, firstPause), maxPause)
	return w.pause
}

func reason(why string, err error) string {
	if err != nil {
		why = err.Error()
	}
	return why[:min(len(why), maxErrorText)]
}
