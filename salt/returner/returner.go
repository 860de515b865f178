package returner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/store/outbox"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// Options are the master options about returners.
type Options struct {
	Events      []string      // event_return: the returners that get events
	Allow, Deny []string      // event_return_whitelist, event_return_blacklist
	Queue       int           // event_return_queue: a call starts when this many wait
	MaxAge      time.Duration // event_return_queue_max_seconds: or after this time; 0: no limit
	ExtJobCache string        // ext_job_cache: gets the jobs; minions write the returns
	JobCache    string        // master_job_cache: gets jobs and returns; "": the cluster's own
	Schedule    []string      // named by entries of the schedule
	Timeout     time.Duration // python_timeout, which ends a call; 0: a minute
}

// Needed reports whether any returner is named.
func (o Options) Needed() bool {
	return len(o.Events) > 0 || o.ExtJobCache != "" || o.JobCache != "" || len(o.Schedule) > 0
}

// Source is the returner in which jobs are looked up, or "". It is that of ext_job_cache if there
// is one, because minions write their returns there.
func (o Options) Source() string { return cmp.Or(o.ExtJobCache, o.JobCache) }

// Session is a process that runs returners; see pythonhost.Session.
type Session interface {
	HandOver(ctx context.Context, returner string, items []any,
		within time.Duration) (taken int, why string, err error)
	Stale() bool
	Close()
}

// Deps are the parts of the master that Returners uses.
type Deps struct {
	Box     *outbox.Box
	Session func() Session
	Fire    func(tag string, data value.Map) // nil: fires nothing
	Log     *slog.Logger                     // nil: discards
}

// Returners keeps what returners are to get, and hands it over while Run runs. It is safe for
// concurrent use.
type Returners struct {
	d       Deps
	o       Options
	workers []*worker
	events  []string // names of queues
	ext     string   // name of a queue, "" for none
	jobs    string
	runs    map[string]string // returner to queue
}

// New returns a Returners. Run hands over.
func New(d Deps, o Options) *Returners {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	d.Log = d.Log.With("component", "returner")
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	r := &Returners{d: d, o: o}
	for _, name := range o.Events {
		r.events = append(r.events, r.worker("event_return", name, o.Queue, o.MaxAge))
	}
	if o.ExtJobCache != "" {
		r.ext = r.worker("ext_job_cache", o.ExtJobCache, 0, 0)
	}
	if o.JobCache != "" {
		r.jobs = r.worker("master_job_cache", o.JobCache, 0, 0)
	}
	r.runs = make(map[string]string, len(o.Schedule))
	for _, name := range o.Schedule {
		r.runs[name] = r.worker("schedule", name, 0, 0)
	}
	for _, name := range d.Box.Queues() {
		if !strings.HasPrefix(name, outbox.Aside("")) && !r.has(name) {
			d.Log.Warn("items wait for a returner that no option names; they stay until one does, or others need the room",
				"queue", name, "waiting", d.Box.Len(name))
			d.Box.Spare(name)
		}
	}
	return r
}

func (r *Returners) has(queue string) bool {
	return slices.ContainsFunc(r.workers, func(w *worker) bool { return w.queue == queue })
}

// worker adds a worker for the returner of an option, and returns the name of its queue.
func (r *Returners) worker(option, returner string, least int, age time.Duration) string {
	queue := option + "/" + returner
	r.workers = append(r.workers, &worker{r: r, queue: queue, option: option, returner: returner,
		least: max(1, least), age: age, limit: firstItems, window: probes,
		old: r.d.Box.Len(queue)})
	return queue
}

// Run hands over waiting items until ctx ends. Then it waits a short time for running calls.
func (r *Returners) Run(ctx context.Context) error {
	if len(r.events) > 0 && r.d.Fire != nil { // as Salt does
		r.d.Fire("salt/event_listen/start", value.Map{})
	}
	var all sync.WaitGroup
	for _, w := range r.workers {
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
	return nil
}

// Sync returns when everything kept before is on stable storage.
func (r *Returners) Sync() error { return r.d.Box.Sync() }

// Settle waits until the disk has everything kept for returners, and logs a failure. On nil it
// returns at once.
func (r *Returners) Settle() {
	if r == nil {
		return
	}
	if err := r.Sync(); err != nil {
		r.d.Log.Error("a crash may lose items for returners: the disk did not confirm them", "err", err)
	}
}

// Wants reports whether events with this tag are kept.
func (r *Returners) Wants(tag string) bool {
	if len(r.events) == 0 {
		return false
	}
	allowed := len(r.o.Allow) == 0
	for _, pattern := range r.o.Allow {
		allowed = allowed || fnmatch.Match(pattern, tag)
	}
	for _, pattern := range r.o.Deny {
		allowed = allowed && !fnmatch.Match(pattern, tag)
	}
	return allowed
}

// Event keeps an event. data is a packed map.
func (r *Returners) Event(tag string, data value.Raw) {
	item, err := packed("event", value.RawPair{Key: "tag", Value: raw(tag)},
		value.RawPair{Key: "data", Value: data})
	for _, queue := range r.events {
		r.keep(queue, item, err)
	}
}

// keep puts an item into a queue. It logs the first item that the queue refuses, and the first that
// it takes again.
func (r *Returners) keep(queue string, item []byte, err error) {
	if err == nil {
		err = r.d.Box.Put(queue, item)
	}
	for _, w := range r.workers {
		if w.queue != queue || w.refuses.Swap(err != nil) == (err != nil) {
			continue
		}
		if err != nil {
			r.d.Log.Error("items for a returner can't be kept and are dropped (option returner_queue_size)",
				"option", w.option, "returner", w.returner, "err", err)
		} else {
			r.d.Log.Info("items for a returner are kept again", "option", w.option, "returner",
				w.returner)
		}
	}
}

// packed makes an item of a kind.
func packed(kind string, fields ...value.RawPair) ([]byte, error) {
	m := append(value.RawMap{{Key: "kind", Value: raw(kind)}}, fields...)
	b, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack %s for a returner: %w", kind, err)
	}
	return b, nil
}

// raw packs a string.
func raw(text string) value.Raw {
	b, err := value.Pack(text)
	if err != nil { // a string can always be packed
		panic(err)
	}
	return b
}
