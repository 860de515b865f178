package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/salt/pythonhost"
	"clustermaster/value"
)

// An engine that ends is started again after firstPause. The pause doubles up to maxPause. It is
// firstPause again after the engine has run for steady.
const (
	firstPause = time.Second
	maxPause   = time.Minute
	steady     = time.Minute
)

// lookAgain is how often missing modules are looked for again.
const lookAgain = time.Second

// Session is a process that runs an engine; see pythonhost.Session.
type Session interface {
	Call(ctx context.Context, c pythonhost.Call) (any, error)
	Lease(d time.Duration) bool
	Close()
}

// Guard returns an error to refuse an engine's order to the master.
type Guard = func(context.Context) error

// Deps are the parts of the master that Engines uses.
type Deps struct {
	// Session starts a process. A nil guard allows every order.
	Session func(guard Guard) Session
	Lead    Lead
	Alone   bool // there is no other master
	// Extensions returns a text that changes with the site's modules.
	Extensions func() string
	ID         string       // of this master
	Log        *slog.Logger // nil: discards
	Reg        prometheus.Registerer
}

// Engines starts engines while Run runs. It is safe for concurrent use.
type Engines struct {
	d       Deps
	log     *slog.Logger
	all     []*run
	running *prometheus.GaugeVec
	starts  *prometheus.CounterVec
}

// run is an engine and its present state.
type run struct {
	Engine
	e *Engines

	mu      sync.Mutex // guards the fields below
	session Session    // nil while the engine does not run
	state   string
	since   time.Time
	last    string // why it last ended
	starts  int
}

// States of an engine.
const (
	Starting  = "is not started yet"
	Elsewhere = "runs on the leader" // the leader is another master, or this one takes over
	Running   = "runs"
	Waiting   = "waits to be started again"
	Missing   = "its module is missing"
)

// Status is an engine's state, as operators see it.
type Status struct {
	Name, Module, State string
	Since               time.Time // start of the state
	Starts              int       // in this process
	Error               string    // of its last end
}

// New returns an Engines. Run starts them.
func New(engines []Engine, d Deps) *Engines {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engines{d: d, log: d.Log.With("component", "engine"),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "clustermaster_engine_running",
			Help: "Whether an engine runs on this master.",
		}, []string{"engine"}),
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clustermaster_engine_starts_total",
			Help: "Starts of an engine on this master.",
		}, []string{"engine"}),
	}
	for _, one := range engines {
		r := &run{Engine: one, e: e, state: Elsewhere, since: time.Now()}
		if one.Everywhere {
			r.state = Starting
		}
		e.all = append(e.all, r)
		e.running.WithLabelValues(one.Name)
		e.starts.WithLabelValues(one.Name)
	}
	if d.Reg != nil {
		d.Reg.MustRegister(e.running, e.starts)
	}
	return e
}

// Status returns the state of all engines, in the order of the option.
func (e *Engines) Status() []Status {
	out := make([]Status, len(e.all))
	for i, r := range e.all {
		r.mu.Lock()
		out[i] = Status{r.Name, r.Module, r.state, r.since, r.starts, r.last}
		r.mu.Unlock()
	}
	return out
}

// Run keeps engines running until ctx ends: those of every master always, the others while this one
// leads.
func (e *Engines) Run(ctx context.Context) error {
	var all sync.WaitGroup
	led := false
	for _, r := range e.all {
		if r.Everywhere {
			all.Go(func() { r.keep(ctx, nil) })
		}
		led = led || !r.Everywhere
	}
	if led {
		e.follow(ctx)
	}
	all.Wait()
	return nil
}

// keep starts an engine, and restarts it whenever it ends, until ctx ends.
func (r *run) keep(ctx context.Context, held *reign) {
	pause, said := firstPause, ""
	for ctx.Err() == nil {
		if !held.good() {
			sleep(ctx, beat) // until the lease is extended or ctx ends
			continue
		}
		seen, began := r.e.d.Extensions(), time.Now()
		err := r.once(ctx, held)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, pythonhost.ErrUnknown) {
			r.become(Missing, err)
			if text := err.Error(); text != said {
				said = text
				r.e.log.Error("engine not started: its module is missing; put it into the folder engines of "+
					"extension_modules, or into salt://_engines and run salt-run saltutil.sync_engines",
					"engine", r.Name, "err", err)
			}
			for ctx.Err() == nil && r.e.d.Extensions() == seen {
				sleep(ctx, lookAgain)
			}
			continue
		}
		if time.Since(began) >= steady {
			pause = firstPause
		}
		r.become(Waiting, err)
		r.tell(err, pause)
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
	r.become(Elsewhere, nil)
}

// tell logs why an engine ended.
func (r *run) tell(err error, pause time.Duration) {
	log := r.e.log.With("engine", r.Name, "again_in", pause)
	var failed *pythonhost.Error
	switch {
	case err == nil:
		log.Warn("engine ended by itself; it is started again")
	case errors.As(err, &failed) && failed.Class != "":
		log.Error("engine raised an exception; it is started again", "file", failed.File,
			"err", failed.Class+": "+failed.Text, "trace", failed.Trace)
	default:
		log.Error("engine ended; it is started again", "err", err)
	}
}

// once runs an engine until it ends.
func (r *run) once(ctx context.Context, held *reign) error {
	session := r.e.d.Session(held.guard(ctx, r.Name))
	defer session.Close()
	r.mu.Lock()
	r.session = session
	r.starts++
	r.mu.Unlock()
	r.become(Running, nil)
	r.e.log.Info("engine is started", "engine", r.Name)
	r.e.starts.WithLabelValues(r.Name).Inc()
	r.e.running.WithLabelValues(r.Name).Set(1)
	defer func() {
		r.e.running.WithLabelValues(r.Name).Set(0)
		r.mu.Lock()
		r.session = nil
		r.mu.Unlock()
	}()
	_, err := session.Call(ctx, pythonhost.Call{Kind: pythonhost.Engine, Fun: r.Module + ".start",
		Kwargs: r.Options, Started: func() error { return held.lease(r) }})
	return err
}

func (r *run) become(state string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.since = state, time.Now()
	if err != nil {
		r.last = err.Error()
	}
}

// lease lets the engine run for d. It reports whether there is an engine.
func (r *run) lease(d time.Duration) bool {
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	return session != nil && session.Lease(d)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// View is the state of all engines in the form that runner functions show.
func (e *Engines) View() value.Map {
	out := value.Map{}
	for _, s := range e.Status() {
		one := value.Map{{Key: "state", Value: s.State},
			{Key: "seconds", Value: time.Since(s.Since).Round(time.Millisecond).Seconds()},
			{Key: "starts", Value: int64(s.Starts)}}
		if s.Error != "" {
			one = append(one, value.Pair{Key: "last_error", Value: s.Error})
		}
		out = append(out, value.Pair{Key: s.Name, Value: one})
	}
	return out
}
