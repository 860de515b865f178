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
	Queue       int           // event_return_queue: events that wait before a call
	MaxAge      time.Duration // event_return_queue_max_seconds: or so long; 0: for ever
	ExtJobCache string        // ext_job_cache: it gets the jobs, and minions write the returns
	JobCache    string        // master_job_cache: it gets jobs and returns; "" for the cluster's own
	Schedule    []string      // named by entries of the schedule
}

// Needed reports whether any returner is named.
func (o Options) Needed() bool {
	return len(o.Events) > 0 || o.ExtJobCache != "" || o.JobCache != "" || len(o.Schedule) > 0
}

// Source is the returner that jobs are looked up with, or "": minions write what they return to
// that of ext_job_cache.
func (o Options) Source() string { return cmp.Or(o.ExtJobCache, o.JobCache) }

// Session is a process in which returners run; see pythonhost.Session.
type Session interface {
	HandOver(ctx context.Context, returner string, items []any) (taken int, why string, err error)
	Stale() bool
	Close()
}

// Deps is what Returners asks others for.
type Deps struct {
	Box     *outbox.Box
	Session func() Session
	Fire    func(tag string, data value.Map) // nil fires nothing
	Log     *slog.Logger                     // nil discards
}

// Returners keeps what returners are to get, and hands it over while it runs. It is safe for
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

// New makes it. Run hands over.
func New(d Deps, o Options) *Returners {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	d.Log = d.Log.With("component", "returner")
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
			d.Log.Warn("what waits for a returner is not handed over: no option names it any more",
				"queue", name, "waiting", d.Box.Len(name))
		}
	}
	return r
}

func (r *Returners) has(queue string) bool {
	return slices.ContainsFunc(r.workers, func(w *worker) bool { return w.queue == queue })
}

// worker adds one for what a returner gets by an option, and returns the name of its queue.
func (r *Returners) worker(option, returner string, least int, age time.Duration) string {
	queue := option + "/" + returner
	r.workers = append(r.workers, &worker{r: r, queue: queue, option: option, returner: returner,
		least: max(1, least), age: age, limit: maxItems, old: r.d.Box.Len(queue)})
	return queue
}

// Run hands over what waits until ctx ends, and then waits a little for calls under way.
func (r *Returners) Run(ctx context.Context) error {
	if len(r.events) > 0 && r.d.Fire != nil { // as Salt's
		r.d.Fire("salt/event_listen/start", value.Map{})
	}
	var all sync.WaitGroup
	for _, w := range r.workers {
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
	return nil
}

// Sync returns when all that was kept before is on stable storage.
func (r *Returners) Sync() error { return r.d.Box.Sync() }

// Settle waits until the disk has what is for returners; a failure is logged. No returners have
// nothing to wait for.
func (r *Returners) Settle() {
	if r == nil {
		return
	}
	if err := r.Sync(); err != nil {
		r.d.Log.Error("events of a call may be lost for returners", "err", err)
	}
}

// Wants reports whether an event is kept, by its tag.
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

// Event keeps an event; data is a packed map.
func (r *Returners) Event(tag string, data value.Raw) {
	item, err := packed("event", value.RawPair{Key: "tag", Value: raw(tag)},
		value.RawPair{Key: "data", Value: data})
	for _, queue := range r.events {
		r.keep(queue, item, err)
	}
}

// keep puts an item into a queue, and tells the log of the first that has no room.
func (r *Returners) keep(queue string, item []byte, err error) {
	if err == nil {
		err = r.d.Box.Put(queue, item)
	}
	for _, w := range r.workers {
		if w.queue != queue || w.refuses.Swap(err != nil) == (err != nil) {
			continue
		}
		if err != nil {
			r.d.Log.Error("what is for a returner is not kept any more (option returner_queue_size)",
				"option", w.option, "returner", w.returner, "err", err)
		} else {
			r.d.Log.Info("what is for a returner is kept again", "option", w.option, "returner",
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

// raw packs a text.
func raw(text string) value.Raw {
	b, err := value.Pack(text)
	if err != nil { // a text can always be packed
		panic(err)
	}
	return b
}
