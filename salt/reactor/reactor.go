package reactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/salt/function"
	"clustermaster/salt/render"
	"clustermaster/serve/event"
	"clustermaster/value"
)

// User is the user of reactions. The reactor ignores this user's events, so that no reaction causes
// itself.
const User = "Reactor"

// manageTags is part of the tags of events about the reactor itself.
const manageTags = "salt/reactors/manage"

// Options are the master options of reactions, named as in Salt's config.
type Options struct {
	Rules         []Rule // reactor
	Renderer      string // renderer: the pipeline of files without a shebang
	ID            string // of the master
	Grains, Opts  value.Map
	WorkerThreads int // reactor_worker_threads: runner, wheel and caller functions at the same time
	// reactor_worker_hwm: the functions that may wait; more are dropped, counted and logged
	WorkerHWM int
}

// Deps is what reactions use of other packages. All of it is called from several goroutines.
type Deps struct {
	Bus      *event.Bus
	Renderer Renderer
	Host     render.Host // for templates
	// File reads a file of file_roots.
	File func(saltenv, path string) (abs string, data []byte, found bool, err error)
	// Changes returns the operators' changes to the option; it is called for each fired event.
	Changes func() Changes
	// Publish sends a job to minions and does not wait for their returns.
	Publish func(ctx context.Context, j Job) error
	// Run runs a runner or wheel function as the user Reactor, and returns when it has ended.
	Run func(ctx context.Context, client string, c Call)
	// Caller runs an execution function on this master.
	Caller func(ctx context.Context, c Call) error
	// Signature returns the parameters of a runner or wheel function; false for an unknown one.
	Signature func(client, fun string) (function.Signature, bool)
}

// Renderer runs render pipelines.
type Renderer interface {
	Render(ctx context.Context, src render.Source, defaultPipe string, c render.Context,
		h render.Host) (any, error)
}

// Reactor reacts to the events of one master.
type Reactor struct {
	deps  Deps
	opts  Options
	log   *slog.Logger
	m     *metrics
	queue chan task
}

// task is a function of this master in the queue.
type task struct {
	chunk chunk
	call  Call
}

// publishLimit is the longest time for sending one job; later events wait.
const publishLimit = 20 * time.Second

// renderLimit is the longest time for the SLS files of one event; later events wait.
const renderLimit = time.Minute

// New makes a reactor. Log nil discards, reg nil keeps no metrics.
func New(deps Deps, o Options, log *slog.Logger, reg prometheus.Registerer) *Reactor {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	o.WorkerThreads, o.WorkerHWM = max(o.WorkerThreads, 1), max(o.WorkerHWM, 1)
	return &Reactor{deps: deps, opts: o, log: log.With("component", "reactor"), m: newMetrics(reg),
		queue: make(chan task, o.WorkerHWM)}
}

// Rules returns the rules in force; those that operators added come last.
func (r *Reactor) Rules() []Rule { return effective(r.opts.Rules, r.deps.Changes()) }

// Configured reports whether the option reactor has a tag.
func (r *Reactor) Configured(tag string) bool {
	for _, rule := range r.opts.Rules {
		if rule.Tag == tag {
			return true
		}
	}
	return false
}

// Available reports whether the option reactor is set: otherwise operators can't add any.
func (r *Reactor) Available() bool { return len(r.opts.Rules) > 0 }

// wants reports whether a rule matches a tag.
func (r *Reactor) wants(tag string) bool {
	c := r.deps.Changes()
	return !c.Off && !strings.Contains(tag, manageTags) &&
		len(matching(effective(r.opts.Rules, c), tag)) > 0
}

// Run reacts until ctx ends. It handles events in order, one after the other. If more wait than the
// bus keeps for a subscriber, the oldest are lost, which it logs.
func (r *Reactor) Run(ctx context.Context) error {
	if !r.Available() {
		return nil
	}
	sub := r.deps.Bus.SubscribeWhere(r.wants)
	defer sub.Close()
	var workers sync.WaitGroup
	for range r.opts.WorkerThreads {
		workers.Go(func() { r.work(ctx) })
	}
	defer workers.Wait()
	r.log.Info("reactor runs", "n", len(r.Rules()))
	for {
		select {
		case e, ok := <-sub.C:
			if !ok {
				return errors.New("react: the bus ended the subscription")
			}
			r.react(ctx, e)
		case <-sub.Lost():
			r.log.Error("events came faster than reactions to them: the oldest were dropped; make SLS files of reactors cheaper or their tags narrower", "n", sub.Dropped())
		case <-ctx.Done():
			if n := len(r.queue); n > 0 {
				r.log.Warn("the master stops: waiting reactions are dropped", "n", n)
			}
			return nil
		}
	}
}

// work takes functions from the queue.
func (r *Reactor) work(ctx context.Context) {
	for {
		select {
		case t := <-r.queue:
			r.m.queued.Dec()
			if ctx.Err() != nil {
				return
			}
			r.ended(t.chunk, r.carryOut(ctx, t))
		case <-ctx.Done():
			return
		}
	}
}

// carryOut runs a function that was queued.
func (r *Reactor) carryOut(ctx context.Context, t task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.crashed(p, "fun", t.call.Fun)
			err = fmt.Errorf("%s crashed: %v", t.call.Fun, p)
		}
	}()
	if t.chunk.state == "caller" {
		return r.deps.Caller(ctx, t.call)
	}
	r.deps.Run(ctx, t.chunk.state, t.call) // reports its outcome by an event
	return nil
}

// crashed logs a panic. It must not end the master: the next leader reacts to the same events.
func (r *Reactor) crashed(p any, what ...any) {
	r.log.Error("reaction panicked; please report this",
		append(what, "err", fmt.Sprint(p), "stack", string(debug.Stack()))...)
}

// react carries out the reactions to one event.
func (r *Reactor) react(ctx context.Context, e event.Event) {
	defer func() {
		if p := recover(); p != nil {
			r.crashed(p, "tag", e.Tag)
		}
	}()
	data, err := e.Map()
	if err != nil || data.String("user") == User {
		return
	}
	rules := r.Rules()
	files := matching(rules, e.Tag)
	if len(files) == 0 {
		return
	}
	began := time.Now()
	chunks := r.reactions(ctx, e.Tag, data, files)
	r.m.seconds.Observe(time.Since(began).Seconds())
	for _, c := range chunks {
		r.dispatch(ctx, c)
	}
}

// reactions renders the files that react to an event.
func (r *Reactor) reactions(ctx context.Context, tag string, data value.Map, files []any) []chunk {
	ctx, cancel := context.WithTimeout(ctx, renderLimit)
	defer cancel()
	var high value.Map
	for _, f := range files {
		path, ok := f.(string)
		if !ok {
			r.m.wrong.Inc()
			r.log.Error("reactor file is not a path; nothing reacts to this event", "tag", tag,
				"file", fmt.Sprint(f))
			return nil
		}
		high = merge(high, r.file(ctx, path, tag, data))
	}
	if len(high) == 0 {
		return nil
	}
	chunks, faults, err := compile(ctx, high)
	if err != nil {
		faults = []string{err.Error()}
	}
	if len(faults) > 0 {
		r.m.wrong.Inc()
		r.log.Error(fmt.Sprintf("Unable to render reactions for event %s due to errors (%s) in one or more of the sls files (%s)", tag, strings.Join(faults, "; "), fmt.Sprint(files...)))
		return nil
	}
	return chunks
}

// publish sends a job.
func (r *Reactor) publish(ctx context.Context, j Job) error {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	return r.deps.Publish(ctx, j)
}
