package returner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"clustermaster/store/outbox"
	"clustermaster/value"
)

// Bounds of one call, and of the pauses between calls that fail.
const (
	maxItems             = 500
	maxBytes             = 4 << 20
	firstPause, maxPause = 200 * time.Millisecond, 30 * time.Second
	triesAlone           = 5                // that an item has before later ones are tried
	probes               = 8                // of these
	probing              = 2 * time.Second  // for so long
	idle                 = 30 * time.Second // after which a process without work ends
	renew                = 5 * time.Minute  // after which a process is replaced: modules may have changed
	lastCall             = 2 * time.Second  // that a call under way has when the master stops
	maxErrorText         = 2000             // bytes of a returner's error in the log
	poll                 = time.Second      // how often the age of what waits is looked at
)

// worker hands over what waits in one queue, by one call at a time.
type worker struct {
	r                       *Returners
	queue, option, returner string
	least                   int           // items that wait before a call
	age                     time.Duration // or the first of them for so long; 0: for ever

	refuses atomic.Bool // the last item was not kept

	// Of run alone.
	session Session
	began   time.Time // when session did
	limit   int       // items of the next call
	old     int       // items that are handed over whatever their number is: first those of before
	since   time.Time // when the first of the others was seen
	tries   int       // of the first item
	failing time.Time // since when calls fail; zero: they don't
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

// sleep returns true if there was a notice before the time was over.
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

// due reports whether what waits is handed over now.
func (w *worker) due(now time.Time) bool {
	n := w.r.d.Box.Len(w.queue)
	if n == 0 {
		w.old, w.since = 0, time.Time{}
		return false
	}
	if w.old > 0 || n >= w.least {
		w.old = max(w.old, n) // all of it
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

// step makes a call. It returns how long to wait before the next one.
func (w *worker) step(ctx context.Context) time.Duration {
	box := w.r.d.Box
	items, err := box.Peek(w.queue, min(w.limit, w.old), maxBytes)
	if err != nil || len(items) == 0 {
		return w.failed("", err, 0)
	}
	taken, why, err := w.hand(ctx, items)
	if taken > 0 {
		w.tries = 0
	}
	if err == nil && why == "" {
		w.fine()
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

// hand gives items to the returner and removes those that it took.
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
	// A call that ends with the master may have done its work: it would be done again.
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastCall, cancel) })
	defer stop()
	taken, why, err = w.session.HandOver(call, w.returner, values)
	if taken > 0 {
		err = errors.Join(err, w.r.d.Box.Take(w.queue, items[:taken]...))
		w.old -= min(taken, w.old)
	}
	return taken, why, err
}

// past tries items after the first one. A returner that takes one of them, and the first still not,
// will never take the first: it is set aside, and so are those between that it does not take.
func (w *worker) past(ctx context.Context) bool {
	items, err := w.r.d.Box.Peek(w.queue, 1+probes, 1<<62)
	if err != nil {
		return false
	}
	took, until := 0, time.Now().Add(probing)
	for n := 1; n < len(items) && took == 0 && time.Now().Before(until) && ctx.Err() == nil; n++ {
		if taken, _, _ := w.hand(ctx, items[n:n+1]); taken > 0 {
			took = n
		}
	}
	if took == 0 {
		return false
	}
	for _, item := range items[:took] {
		taken, why, err := w.hand(ctx, []outbox.Item{item})
		if taken > 0 {
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		w.r.d.Log.Error("a returner does not take one item, and takes a later one; it is set aside",
			"option", w.option, "returner", w.returner, "err", reason(why, err))
		if err := w.r.d.Box.SetAside(w.queue, item); err != nil {
			return false
		}
		w.old -= min(1, w.old)
	}
	w.tries = 0
	w.fine()
	return true
}

// fine notes a call that was good.
func (w *worker) fine() {
	w.limit, w.pause = min(maxItems, 2*w.limit), 0
	if !w.failing.IsZero() {
		w.r.d.Log.Info("returner takes what waited", "option", w.option, "returner", w.returner,
			"took", time.Since(w.failing).Round(time.Millisecond), "waiting",
			w.r.d.Box.Len(w.queue))
		w.failing = time.Time{}
	}
}

// failed notes a call that was not, once until one is good again, and returns the pause.
func (w *worker) failed(why string, err error, taken int) time.Duration {
	if w.failing.IsZero() {
		w.failing = time.Now()
		w.r.d.Log.Error("returner does not take what it is given; it is kept and tried again",
			"option", w.option, "returner", w.returner, "err", reason(why, err), "waiting",
			w.r.d.Box.Len(w.queue))
	}
	if taken > 0 {
		w.pause = 0
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
