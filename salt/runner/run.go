package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sort"
	"sync"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
	"clustermaster/wire"
)

// A Client tells runner and wheel calls apart: they differ only in the words of events and errors.
type Client struct {
	Name   string // runner, wheel
	Prefix string // of event tags: salt/run, salt/wheel
}

// The two clients that Salt has.
var (
	RunnerClient = Client{Name: "runner", Prefix: "salt/run"}
	WheelClient  = Client{Name: "wheel", Prefix: "salt/wheel"}
)

// events receives a call's events. Fire sets _stamp, in its place if the data has the key, else
// last.
type events interface {
	Fire(tag string, data value.Map)
}

// Store stores a finished call as a job.
type Store interface {
	// SaveRun records a call. load holds id, tgt, jid, fun, user and arg; ret is the data of the
	// ret event. It returns when the record is as durable as a minion's return.
	SaveRun(ctx context.Context, jid string, load value.Map, id string, ret value.Map) error
}

// Deps is what a Runner needs from the daemon.
type Deps struct {
	ID        string // the master's id; the target of stored calls
	Events    events
	Store     Store                    // nil: calls are not stored (runner_returns: False)
	Others    Others                   // nil: native functions only
	NewJID    func() string            // makes a new, unique job id
	Now       func() time.Time         // nil: time.Now
	Stamp     func(t time.Time) string // nil: wire.Stamp; the _stamp of progress documents
	StoreTime time.Duration            // how long storing may take; 0 means 10 s
	Settle    func()                   // nil, or waits until the events of a call are on disk
	MaxRuns   int                      // calls at the same time; 0 means 256
	Log       *slog.Logger
	// Trace follows a call until it has ended. What the call orders has the context inner. Nil:
	// calls are not traced.
	Trace func(ctx context.Context, jid, fun, user string) (inner context.Context,
		done func(success bool))
}

// Request asks for one call.
type Request struct {
	Fun    string
	Args   []any
	Kwargs value.Map
	JID    string // "": a new one
	User   string // "": UNKNOWN
	// Low says that the call is low data of a reaction. The sender bounds the number of such calls.
	// Errors about unknown keywords go into the ret event, because there is no other receiver.
	Low bool
	// Shown says that many may see the result: a function that reveals a secret then returns what
	// events have of it.
	Shown bool
	// Reveal gets the ret event of a function that reveals a secret, with the secret, before the
	// event is fired without it. Nil: nobody gets it.
	Reveal func(tag string, data value.Map)
	// ForTemplate says that a template or Python code of this master reads the result, so that
	// pillar values in it are not masked.
	ForTemplate bool
	// ByName says that Kwargs hold the function's parameters by name, with other keys that it
	// ignores, as Salt's clients send them.
	ByName bool
}

// Result is the result of a call. Return is the value to show: a text for an unknown function, the
// function's documentation for wrong keywords.
type Result struct {
	JID     string
	Return  any
	Success bool
	// Retcode is the exit code of salt-run: 1 after an exception, the retcode field of the returned
	// map if it has one, else 0.
	Retcode int
	// Outputter is the outputter that the function chose, or "". Return is then still the whole
	// {"outputter", "data"} map.
	Outputter string
	// NotRun is set if the call never began (unknown function or keywords): Return then goes
	// through the nested outputter.
	NotRun bool
	// Refused says why a call did not begin.
	Refused string
	// Raised is set if the call ended with an exception, of which Return is the text.
	Raised bool
}

// Output receives a function's output while it runs. kind is "print" (v is text for standard
// output, unchanged), "warning" and "error" (text for standard error), "progress" (v is the event's
// data, a value.Map), "show" (text to print in place of the result) or "meter" (a line for the
// terminal that the next output replaces). The goroutine that runs the function calls it; nil drops
// all output.
type Output func(kind string, v any)

// ErrBusy refuses a call because too many are running.
var ErrBusy = errors.New("too many runner calls at the same time; wait for one to end (salt-run jobs.master)")

// Runner runs the functions of a registry. It is safe for concurrent use.
type Runner struct {
	client Client
	reg    *Registry
	deps   Deps
	log    *slog.Logger
	calls  sync.WaitGroup // of Start

	mu      sync.Mutex // guards running
	running map[string]value.Map
}

// New makes a Runner over a registry.
func New(client Client, reg *Registry, deps Deps) *Runner {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Stamp == nil {
		deps.Stamp = wire.Stamp
	}
	if deps.StoreTime == 0 {
		deps.StoreTime = 10 * time.Second
	}
	if deps.MaxRuns == 0 {
		deps.MaxRuns = 256
	}
	log := deps.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Runner{client: client, reg: reg, deps: deps, log: log.With("component", "runner"),
		running: make(map[string]value.Map)}
}

// Docs is Registry.Docs of the runner's functions.
func (r *Runner) Docs(prefix string) value.Map { return r.docs(prefix) }

// Lookup finds a function by its full name.
func (r *Runner) Lookup(fun string) (Function, bool) {
	f, err := r.find(fun)
	return f, err == nil
}

// Tag is the first part of the tags of a call's events.
func (r *Runner) Tag(jid string) string { return r.client.Prefix + "/" + jid }

// Start begins a call in the background and returns its jid at once. ctx must live as long as the
// daemon; Wait waits for calls that Start began.
func (r *Runner) Start(ctx context.Context, req Request) (jid string, err error) {
	jid, _, err = r.Begin(ctx, req)
	return jid, err
}

// Begin is Start, and returns a channel that closes when the call has ended.
func (r *Runner) Begin(ctx context.Context, req Request) (jid string, ended <-chan struct{},
	err error) {
	if req.JID == "" {
		req.JID = r.deps.NewJID()
	}
	r.mu.Lock()
	full := len(r.running) >= r.deps.MaxRuns
	r.mu.Unlock()
	if full {
		return "", nil, ErrBusy
	}
	over := make(chan struct{})
	r.calls.Add(1)
	go func() {
		defer r.calls.Done()
		defer close(over)
		r.Run(ctx, req, nil)
	}()
	return req.JID, over, nil
}

// Wait returns when every call that Start began has ended. End the context given to Start first.
func (r *Runner) Wait() { r.calls.Wait() }

// Takes reports whether a function has a parameter of that name.
func (r *Runner) Takes(fun, param string) bool {
	f, _ := r.find(fun)
	return slices.ContainsFunc(f.Params, func(p function.Param) bool { return p.Name == param })
}

// Check returns a request as others may see it, without the values of secret parameters. It returns
// an error if the call can't begin.
func (r *Runner) Check(req Request) (Request, error) {
	f, err := r.find(req.Fun)
	if err != nil {
		return req, err
	}
	req = f.public(req)
	return req, f.Signature().CheckKeywords(req.Kwargs)
}

// Run makes one call and returns when it has ended and is stored.
func (r *Runner) Run(ctx context.Context, req Request, out Output) Result {
	if out == nil {
		out = func(string, any) {}
	}
	if req.JID == "" {
		req.JID = r.deps.NewJID()
	}
	if req.User == "" {
		req.User = "UNKNOWN"
	}
	f, unknown := r.find(req.Fun)
	if req.ByName {
		// An unknown function has no parameters.
		req.Args, req.Kwargs = f.Signature().ByName(req.Kwargs, clientKeys)
	}
	if unknown != nil {
		return r.refuse(req, unknown.Error())
	}
	public := f.public(req)
	if err := f.Signature().CheckKeywords(public.Kwargs); err != nil && !req.Low {
		res := r.refuse(public, err.Error())
		res.Return = value.Map{{Key: req.Fun, Value: f.shownDoc()}}
		return res
	}
	data := value.Map{
		{Key: "fun", Value: r.client.Name + "." + req.Fun}, {Key: "jid", Value: req.JID},
		{Key: "user", Value: req.User}, {Key: "fun_args", Value: funArgs(public)},
	}
	data = append(data, value.Pair{Key: "_stamp", Value: r.deps.Stamp(r.deps.Now())})
	if !r.enter(req.JID, data, req.Low) {
		res := r.refuse(public, ErrBusy.Error())
		res.Retcode = 1
		return res
	}
	defer r.leave(req.JID)
	r.fire(req.JID, "new", data)

	traced := func(bool) {}
	if r.deps.Trace != nil {
		ctx, traced = r.deps.Trace(ctx, req.JID, r.client.Name+"."+req.Fun, req.User)
	}
	res := r.call(ctx, f, req, out)
	kept := res.Return
	told, secret := res.Return.(Told)
	if secret {
		res.Return, kept = told.Value, told.Kept
		if req.Shown {
			res.Return = told.Kept
		}
	}
	data = append(data.Set("_stamp", r.deps.Stamp(r.deps.Now())),
		value.Pair{Key: "return", Value: kept}, value.Pair{Key: "success", Value: res.Success})
	if res.Raised {
		data = append(data, value.Pair{Key: "retcode", Value: int64(res.Retcode)})
	}
	r.store(ctx, req, data)
	if secret && req.Reveal != nil {
		req.Reveal(r.Tag(req.JID)+"/ret",
			append(value.Map(nil), data...).Set("return", told.Value))
	}
	r.fire(req.JID, "ret", data)
	if r.deps.Settle != nil {
		r.deps.Settle()
	}
	traced(res.Success)
	r.log.Info("runner call ended", "fun", data[0].Value, "jid", req.JID, "success", res.Success)
	return res
}

// call runs the function and turns errors into texts.
func (r *Runner) call(ctx context.Context, f Function, req Request, out Output) Result {
	res := Result{JID: req.JID}
	c := &Call{JID: req.JID, User: req.User, forTemplate: req.ForTemplate,
		print: func(text string) { out("print", text) },
		warn:  func(text string) { out("warning", text) },
		show:  func(kind, text string) { out(kind, text) },
		Tag:   r.Tag(req.JID), args: req.Args, kwargs: req.Kwargs,
		event: func(suffix string, data value.Map) {
			data = append(append(value.Map(nil), data...),
				value.Pair{Key: "_stamp", Value: r.deps.Stamp(r.deps.Now())})
			r.fire(req.JID, suffix, data)
			out("progress", data)
		}}
	var val any
	var err error
	if !f.Unbound {
		c.bound, err = f.Signature().Bind(req.Args, req.Kwargs)
	}
	if err == nil {
		val, err = r.guarded(ctx, f, c)
	}
	if done, ok := val.(Ended); ok && err == nil {
		res.Return, res.Success, res.Retcode = done.Return, done.Success, done.Retcode
		_, res.Outputter = envelope(done.Return)
		return res
	}
	var wrong *function.ArgumentError
	switch {
	case errors.As(err, &wrong):
		res.Return = fmt.Sprintf("\nPassed invalid arguments: %s\n\nUsage:\n%s", wrong.Text,
			f.HelpText())
		res.Success = true // as in Salt, because the call did return
	case err != nil:
		res.Return = fmt.Sprintf("Exception occurred in %s %s: %s", r.client.Name, req.Fun, err)
		res.Retcode, res.Raised = 1, true
	default:
		res.Return, res.Success = val, true
		shown := val
		if told, ok := val.(Told); ok {
			shown = told.Value
		}
		res.Retcode, res.Outputter = envelope(shown)
		if res.Retcode != 0 {
			res.Success = false
		}
	}
	return res
}

// guarded turns a panic of one function into an error: a broken function must not stop the master.
func (r *Runner) guarded(ctx context.Context, f Function, c *Call) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("runner function panicked; please report this", "fun", f.Name, "jid", c.JID, "err",
				fmt.Sprint(p), "stack", string(debug.Stack()))
			v, err = nil, fmt.Errorf("function %s crashed: %v; the master's log has the details",
				f.Name, p)
		}
	}()
	return f.Run(ctx, c)
}

// refuse answers a call that can't begin, and fires Salt's one event for it.
func (r *Runner) refuse(req Request, text string) Result {
	r.fire(req.JID, "ret", value.Map{
		{Key: "success", Value: false}, {Key: "return", Value: text},
		{Key: "retcode", Value: int64(254)},
		{Key: "fun", Value: req.Fun}, {Key: "fun_args", Value: funArgs(req)},
		{Key: "jid", Value: req.JID},
	})
	return Result{JID: req.JID, Return: text, NotRun: true, Refused: text}
}

// store keeps the call as a job. It goes on after the caller has left, so that the result can be
// looked up.
func (r *Runner) store(ctx context.Context, req Request, data value.Map) {
	if r.deps.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.deps.StoreTime)
	defer cancel()
	load := value.Map{
		{Key: "id", Value: r.deps.ID}, {Key: "tgt", Value: r.deps.ID},
		{Key: "tgt_type", Value: "list"}, {Key: "jid", Value: req.JID},
		{Key: "fun", Value: r.client.Name + "." + req.Fun}, {Key: "user", Value: req.User},
		{Key: "arg", Value: []any{}},
	}
	if err := r.deps.Store.SaveRun(ctx, req.JID, load, r.deps.ID, data); err != nil {
		r.log.Warn("runner call not stored; its result can't be looked up", "fun", req.Fun, "jid",
			req.JID, "err", err)
	}
}

func (r *Runner) fire(jid, suffix string, data value.Map) {
	if r.deps.Events != nil {
		r.deps.Events.Fire(r.Tag(jid)+"/"+suffix, append(value.Map(nil), data...))
	}
}

func (r *Runner) enter(jid string, data value.Map, bounded bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !bounded && len(r.running) >= r.deps.MaxRuns {
		return false
	}
	r.running[jid] = append(value.Map(nil), data...)
	return true
}

func (r *Runner) leave(jid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, jid)
}

// Running lists the calls that run on this master now, oldest first, as {fun, jid, user, fun_args,
// _stamp}.
func (r *Runner) Running() []value.Map {
	r.mu.Lock()
	defer r.mu.Unlock()
	jids := make([]string, 0, len(r.running))
	for jid := range r.running {
		jids = append(jids, jid)
	}
	sort.Strings(jids)
	out := make([]value.Map, 0, len(jids))
	for _, jid := range jids {
		out = append(out, r.running[jid])
	}
	return out
}

// funArgs makes the argument list of events: the positional arguments, then one map of the
// keywords, if any.
func funArgs(req Request) []any {
	args := append([]any{}, req.Args...)
	if len(req.Kwargs) > 0 {
		args = append(args, req.Kwargs)
	}
	return args
}

// envelope reads the fields of a return that set the retcode and the outputter.
func envelope(v any) (retcode int, outputter string) {
	m, ok := v.(value.Map)
	if !ok {
		return 0, ""
	}
	if rc, ok := m.Get("retcode"); ok {
		switch n := rc.(type) {
		case int64:
			retcode = int(n)
		case int:
			retcode = n
		}
	}
	if _, ok := m.Get("data"); ok {
		outputter = m.String("outputter")
	}
	return retcode, outputter
}
