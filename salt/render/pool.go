package render

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// unpackPause is the pause after a failed unpacking. One attempt takes seconds, and otherwise
// every file would start one.
const unpackPause = 10 * time.Second

// pool holds the workers, started on demand: at most Options.Workers, and one more for each caller
// ahead of the others.
//
// What a render holds and waits for must form no circle. A template that has a worker may wait for
// a child of Python code (pythonhost), so whoever has such a child is ahead and never waits for a
// worker, and for no second child. A render that a worker's template waits for runs in that worker.
// Programs (gpg, the commands of ext_pillars) are waited for last: they wait for none of these.
type pool struct {
	opts Options
	log  *slog.Logger
	m    *metrics
	free chan struct{} // one token per worker that may run

	unpacked sync.Mutex // held while Python is unpacked
	python   *interpreter
	failed   error     // of the last unpacking
	retry    time.Time // when it may be tried again

	mu     sync.Mutex // guards what follows
	idle   []*worker  // most recently used last
	busy   map[*worker]bool
	closed bool
	done   chan struct{}
	extra  sync.WaitGroup // workers beyond Options.Workers at work
}

type aheadKey struct{}

// Ahead returns a context whose renders don't wait for a worker: if all are busy, another one
// starts. It is for a caller that has what templates with a worker may wait for.
func Ahead(ctx context.Context) context.Context { return context.WithValue(ctx, aheadKey{}, true) }

func newPool(o Options, log *slog.Logger, m *metrics) *pool {
	p := &pool{opts: o, log: log, m: m, free: make(chan struct{}, o.Workers),
		busy: map[*worker]bool{}, done: make(chan struct{})}
	for range o.Workers {
		p.free <- struct{}{}
	}
	return p
}

// take returns a worker for one request. The caller returns it with put.
func (p *pool) take(ctx context.Context) (*worker, error) {
	extra, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	w := p.takeIdle()
	if w == nil {
		if w, err = p.start(ctx); err != nil {
			p.leave(extra)
			return nil, err
		}
	}
	w.extra = extra
	return w, nil
}

// enter waits for a token, or does without if the caller is ahead.
func (p *pool) enter(ctx context.Context) (extra bool, err error) {
	if ctx.Value(aheadKey{}) != nil {
		select {
		case <-p.free:
			return false, nil
		default:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed {
			return false, ErrClosed
		}
		p.extra.Add(1)
		return true, nil
	}
	p.m.waiting.Inc()
	defer p.m.waiting.Dec()
	select {
	case <-p.free:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-p.done:
		return false, ErrClosed
	}
}

func (p *pool) leave(extra bool) {
	if extra {
		p.extra.Done()
		return
	}
	p.free <- struct{}{}
}

func (p *pool) takeIdle() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		w := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		w.timer.Stop()
		select {
		case <-w.gone: // killed from outside
			p.discard(w, "died")
		default:
			p.busy[w] = true
			return w
		}
	}
	return nil
}

func (p *pool) start(ctx context.Context) (*worker, error) {
	py, err := p.interpreter()
	if err != nil {
		return nil, err
	}
	w, err := startWorker(ctx, p.opts, py, p.log)
	if err != nil {
		return nil, err
	}
	p.m.workers.Inc()
	p.m.started.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[w] = true
	if p.closed {
		w.kill()
	}
	return w, nil
}

func (p *pool) interpreter() (*interpreter, error) {
	p.unpacked.Lock()
	defer p.unpacked.Unlock()
	if p.python != nil {
		return p.python, nil
	}
	if time.Now().Before(p.retry) {
		return nil, p.failed
	}
	p.python, p.failed = openInterpreter(p.opts, p.log)
	if p.failed != nil {
		p.retry = time.Now().Add(unpackPause)
		p.log.Error("render workers can't be started", "err", p.failed)
	}
	return p.python, p.failed
}

func (p *pool) put(w *worker) {
	extra := w.extra // another render may take the worker once mu is free
	p.mu.Lock()
	delete(p.busy, w)
	if p.closed {
		w.reason = "closed"
	}
	if w.reason != "" {
		p.discard(w, w.reason)
	} else {
		p.idle = append(p.idle, w)
		w.timer = time.AfterFunc(p.opts.IdleStop, func() { p.retire(w) })
	}
	p.mu.Unlock()
	p.leave(extra)
}

// retire ends a worker that was idle for too long.
func (p *pool) retire(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle {
		if other == w {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			p.discard(w, "idle")
			return
		}
	}
}

// discard ends a worker. The caller holds mu; the end is a kill and therefore quick.
func (p *pool) discard(w *worker, reason string) {
	w.end()
	p.m.workers.Dec()
	p.m.stopped.WithLabelValues(reason).Inc()
	if reason != "idle" && reason != "closed" && reason != "canceled" {
		p.log.Warn("render worker replaced", "pid", w.cmd.Process.Pid, "reason", reason)
	}
}

func (p *pool) close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	for _, w := range p.idle {
		w.timer.Stop()
		p.discard(w, "closed")
	}
	p.idle = nil
	for w := range p.busy {
		w.kill()
	}
	p.mu.Unlock()
	for range p.opts.Workers { // busy workers come back through put
		<-p.free
	}
	p.extra.Wait()
	p.unpacked.Lock()
	defer p.unpacked.Unlock()
	if p.python != nil {
		return errors.Join(p.python.close())
	}
	return nil
}
