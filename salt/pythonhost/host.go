package pythonhost

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/value"
)

//go:embed host.py
var program string

// Defaults of Options.
const (
	DefaultTimeout   = 60 * time.Second
	DefaultMemory    = 1 << 30
	DefaultOutput    = 64 << 20
	DefaultProcesses = 64
	DefaultPillars   = 100
	DefaultIdle      = 5 * time.Minute
)

// spareFor is how long a child without work is kept for the next minion.
const spareFor = 5 * time.Second

// Options of a Host. A zero number means the default.
type Options struct {
	// Python returns the interpreter that has Salt. It is called on the host's first use.
	Python func() (string, error)
	// ConfFile is the master's configuration, which Salt reads itself; Opts override it.
	ConfFile string
	Opts     value.Map
	// Natives are the functions that Answer runs when Python code calls them, by kind: "module",
	// "runner".
	Natives map[string][]string
	// Answer carries out what Python code asks of the master. The context is the call's.
	Answer func(ctx context.Context, q Question) (any, error)

	Timeout   time.Duration // of one call
	Runner    time.Duration // of a runner or wheel function of a job; 0 is none
	Memory    int64         // of a child's address space, in bytes
	Output    int64         // of one message of a child, in bytes
	Processes int           // for a child and the processes that it starts
	Children  int           // at once that count, see Counts; by default two per core, at least four
	Pillars   int           // sessions that a child serves, one after the other
	Idle      time.Duration // after this time without children the fork server ends

	program string // instead of host.py, in tests
}

func (o *Options) fill() {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Output = cmp.Or(o.Output, DefaultOutput)
	o.Processes = cmp.Or(o.Processes, DefaultProcesses)
	o.Children = cmp.Or(o.Children, max(4, 2*runtime.GOMAXPROCS(0)))
	o.Pillars = cmp.Or(o.Pillars, DefaultPillars)
	o.Idle = cmp.Or(o.Idle, DefaultIdle)
	if o.program == "" {
		o.program = program
	}
}

// Minion is the minion that a child's modules see.
type Minion struct {
	ID                 string
	Grains, Pillar     value.Map
	Saltenv, Pillarenv string // "" for none
	PillarRoots        value.Map
	Opts               value.Map // replace the master's
	States             bool      // it is the master, whose states run: options as Salt's MasterMinion has
}

// Question is a request of Python code to the master.
type Question struct {
	What   string // "module", "runner"
	Fun    string
	Args   []any
	Kwargs value.Map
	Minion Minion // the minion that the code runs for
}

// Kind says which loader has a function.
type Kind string

// The kinds.
const (
	Module Kind = "module" // execution modules
	Pillar Kind = "pillar" // ext_pillars
	// Renderer takes one argument, what is rendered, and the keywords argline, saltenv, sls, path
	// and keywords, which are passed on to the renderer.
	Renderer Kind = "render"
	Runner   Kind = "runner"
	Wheel    Kind = "wheel"
	Top      Kind = "top"  // master_tops; the keywords are opts and grains
	Auth     Kind = "auth" // back ends of external_auth
	// Returner are the functions of returners; HandOver passes waiting items to one.
	Returner Kind = "returner"
	// Engine are functions that run until they are stopped, such as logstash.start.
	Engine Kind = "engine"
	// Roster lists the targets of the master's roster; the arguments are target and target type.
	Roster Kind = "roster"
	// State are the functions of states, for sessions of Host.States. Grains, without arguments,
	// are those that Salt finds on this machine.
	State    Kind = "state"
	Grains   Kind = "grains"
	handOver Kind = "hand over"
	has      Kind = "has"
	describe Kind = "describe"
)

// Call is one call.
type Call struct {
	Kind   Kind
	Fun    string // module.function; an ext_pillar's name
	Args   []any
	Kwargs value.Map
	// For an ext_pillar: its arguments as configured, the pillar so far, the pillar before all
	// ext_pillars, which functions see as of Salt 3008, and the extra data that the minion sent.
	Given          any
	Pillar, Before value.Map
	Extra          value.Map
	// For a runner or wheel function: the job, and the receiver of its output while it runs. Kinds
	// are "print" and "warning" (text for standard output and error), and "event" (a map of suffix
	// and data, for an event below Tag). Nil drops all.
	JID, User, Tag string
	Output         func(kind string, v any)
	// Started is called once there is a child that Lease acts on, before the function begins. An
	// error ends the call. May be nil.
	Started func() error
	// State is for a state function.
	State *StateCall
	// Retcode gets what a function of kind Module leaves in __context__["retcode"]. May be nil.
	Retcode *int
	// Limit replaces Options.Timeout, or Options.Runner for runner and wheel functions of a job.
	// LimitOption is the master's option that sets it.
	Limit       time.Duration
	LimitOption string
	// Logged gets each log record: its level, a number of Python's logging, and its text. May be
	// nil.
	Logged func(level int, text string)
}

// StateCall is what a state function sees of its orchestration.
type StateCall struct {
	Test         bool
	Env, JID     string // __env__ and __orchestration_jid__
	Instance     string // __instance_id__: the run
	User         string
	Umask        int // -1 for none
	Low, Running value.Map
	Lowstate     []any
}

// Host runs functions of Python. It is safe for concurrent use.
type Host struct {
	opts Options
	log  *slog.Logger
	m    *metrics
	// One token per session that may have a child. Whoever has one waits for no other, nor for
	// anything that is held by those who wait for one; package render says for what.
	free chan struct{}

	guards guards

	mu      sync.Mutex // guards the fields below
	server  *server    // nil while none runs
	failed  error      // of the last start
	retry   time.Time  // when to try again
	closed  bool
	busy    map[*child]bool
	spare   []*child // idle children, in the order in which they became idle
	started uint64
	idle    *time.Timer
	tidy    *time.Timer
}

// retryPause is the time between a failed start and the next attempt.
const retryPause = 10 * time.Second

// New returns a Host. It starts no process before the first call.
func New(o Options, log *slog.Logger, reg prometheus.Registerer) *Host {
	o.fill()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &Host{opts: o, log: log.With("component", "python"), m: newMetrics(reg),
		free: make(chan struct{}, o.Children), busy: map[*child]bool{}}
	for range o.Children {
		h.free <- struct{}{}
	}
	return h
}

// Native adds functions that Answer runs, before the first call.
func (h *Host) Native(kind string, names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := maps.Clone(h.opts.Natives)
	if all == nil {
		all = map[string][]string{}
	}
	all[kind] = names
	h.opts.Natives = all
}

// Close ends the fork server and its children, including busy ones.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	s := h.server
	h.server = nil
	for c := range h.busy {
		c.kill()
	}
	h.mu.Unlock()
	h.endSpare(nil)
	if s != nil {
		s.end()
	}
	return nil
}

// Session keeps one child for the calls of one minion, such as those of one pillar. It is safe for
// concurrent use; calls run one after the other.
type Session struct {
	h      *Host
	minion Minion
	job    bool                        // an operator's: no time limit, takes no token
	guard  func(context.Context) error // of an engine; nil: no check
	at     atomic.Pointer[child]       // of the running call

	mu     sync.Mutex // held during a call
	child  *child
	token  bool // it holds one of Host.free, from its first call until Close
	used   bool
	reload bool // before the next call
}

// Session returns a Session. It starts no process before the first call; Close ends its child.
func (h *Host) Session(m Minion) *Session { return &Session{h: h, minion: m} }

// Job begins a session of the master itself for a runner or wheel function. Such a function may run
// until its context ends; its child does not count towards Options.Children.
func (h *Host) Job() *Session { return &Session{h: h, job: true} }

// States begins a session for the states of one orchestration on the master itself, which m
// describes. Its child lives until Close and does not count towards Options.Children; state
// functions have no time limit.
func (h *Host) States(m Minion) *Session { return &Session{h: h, minion: m, job: true} }

// Description describes a runner, wheel or state function: its parameters and its documentation.
type Description struct {
	Params             []Param
	VarArgs, VarKwargs bool
	Doc, Usage         string // the documentation as Salt shows it, and as in the file
	File               string
	// of a state function: whether its module reads __running__ and __lowstate__
	Running, Lowstate bool
}

// Param is a parameter of a function.
type Param struct {
	Name     string
	Required bool
	Default  any
}

// Describe describes functions of a kind: the named one, or all for an empty name.
func (s *Session) Describe(ctx context.Context, kind Kind, fun string) (map[string]Description,
	error) {
	v, err := s.Call(ctx, Call{Kind: describe, Fun: fun, Args: []any{string(kind)}})
	if err != nil {
		return nil, err
	}
	all, _ := v.(value.Map)
	out := make(map[string]Description, len(all))
	for _, p := range all {
		name, _ := p.Key.(string)
		m, _ := p.Value.(value.Map)
		d := Description{VarArgs: truth(m, "varargs"), VarKwargs: truth(m, "varkw"),
			Doc: m.String("doc"), Usage: m.String("usage"), File: m.String("file"),
			Running: truth(m, "running"), Lowstate: truth(m, "lowstate")}
		params, _ := m.Get("params")
		list, _ := params.([]any)
		for _, e := range list {
			p, _ := e.(value.Map)
			fallback, _ := p.Get("default")
			d.Params = append(d.Params, Param{Name: p.String("name"),
				Required: truth(p, "required"), Default: fallback})
		}
		out[name] = d
	}
	return out, nil
}

func truth(m value.Map, key string) bool {
	v, _ := m.Get(key)
	return v == true
}

// Used reports whether the session has called Python.
func (s *Session) Used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Close ends the session's child, or keeps it for the next minion.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	if s.token {
		s.token = false
		s.h.free <- struct{}{}
	}
}

// Rebind has the session serve another minion, or the same one with another pillar.
func (s *Session) Rebind(m Minion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	s.minion = m
}

type tokenKey struct{}

// Counts reports whether ctx belongs to a session that counts towards Options.Children. Others may
// wait for its end.
func Counts(ctx context.Context) bool { return ctx.Value(tokenKey{}) != nil }

// Context returns ctx for what is done between the session's calls: Counts if the session does.
func (s *Session) Context(ctx context.Context) context.Context {
	if Counts(ctx) {
		return ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.token {
		return ctx
	}
	return context.WithValue(ctx, tokenKey{}, true)
}

// Reload has the next call load all modules again, with other grains and another pillar.
func (s *Session) Reload(grains, pillar value.Map) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minion.Grains, s.minion.Pillar, s.reload = grains, pillar, true
}

func (s *Session) drop() {
	if s.child != nil {
		s.h.put(s.child, !s.job)
		s.child = nil
	}
}

// Has reports whether Salt's loader has an execution function; a name that ends with a dot stands
// for any function of that module. The error means that the host can't run.
func (s *Session) Has(ctx context.Context, name string) (bool, error) {
	v, err := s.Call(ctx, Call{Kind: has, Fun: name})
	found, _ := v.(bool)
	return found, err
}

// Keeper begins a session of the master itself that may stay open for long; its child does not
// count towards Options.Children.
func (h *Host) Keeper() *Session { return &Session{h: h, job: true} }

// HandOver passes items to a returner, and returns how many it has accepted; why is the reason why
// it did not accept more, or "". It begins no further item after a time: then it has accepted fewer
// without a reason. An item is a map with a kind: event (tag, data), load (jid, load, minions),
// minions (jid, minions, syndic), return (jid, load, end) or result (load). Events in a row are one
// call of the returner. The error means that the call failed; how many were accepted is then
// unknown.
func (s *Session) HandOver(ctx context.Context, returner string, items []any,
	within time.Duration) (taken int, why string, err error) {
	v, err := s.Call(ctx, Call{Kind: handOver, Fun: returner, Args: items,
		Kwargs: value.Map{{Key: "within", Value: within.Seconds()}}})
	if err != nil {
		return 0, "", err
	}
	m, _ := v.(value.Map)
	taken = integer(m, "done")
	if taken < 0 || taken > len(items) {
		return 0, "", fmt.Errorf("returner %s: its process says that it took %d of %d", returner,
			taken, len(items))
	}
	return taken, m.String("error"), nil
}

// Stale reports whether the session's child belongs to a fork server that is no longer in use.
func (s *Session) Stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return s.child != nil && s.child.of != s.h.server
}

// Call runs a function. Errors of the call are *Error; other errors mean that the host can't run,
// or are the context's.
func (s *Session) Call(ctx context.Context, c Call) (any, error) {
	began := time.Now()
	v, err := s.call(ctx, c)
	if err == nil && c.Retcode != nil {
		m, _ := v.(value.Map)
		v, _ = m.Get("return")
		code, _ := m.Get("retcode")
		n, _ := code.(int64)
		*c.Retcode = int(n)
	}
	result := "ok"
	if e, ok := err.(*Error); ok { //nolint:errorlint // it is not wrapped here
		result = e.Reason
	} else if err != nil {
		result = reasonDied
	}
	s.h.m.calls.WithLabelValues(string(c.Kind), result).Inc()
	s.h.m.seconds.WithLabelValues(string(c.Kind)).Observe(time.Since(began).Seconds())
	return v, err
}

func (s *Session) call(ctx context.Context, c Call) (any, error) {
	if outer := conversationOf(ctx); outer != nil && outer.session == s {
		return outer.nested(ctx, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
	m := c.message()
	if s.child == nil {
		if err := s.takeToken(ctx); err != nil {
			return nil, err
		}
		var err error
		if s.child, err = s.h.take(ctx, s.job); err != nil {
			return nil, err
		}
		if s.guard != nil {
			s.h.guards.add(s.child.pid, s.guard)
		}
		m = append(m, value.Pair{Key: "bind", Value: s.minion.message()})
	} else if s.reload {
		m = append(m, value.Pair{Key: "reload", Value: value.Map{
			{Key: "grains", Value: s.minion.Grains}, {Key: "pillar", Value: s.minion.Pillar}}})
	}
	s.reload = false
	s.at.Store(s.child)
	defer s.at.Store(nil)
	if c.Started != nil {
		if err := c.Started(); err != nil {
			s.drop()
			return nil, err
		}
	}
	talk := &conversation{session: s, child: s.child, call: c, limit: s.h.opts.Timeout,
		option: "python_timeout"}
	if c.Limit > 0 {
		talk.limit, talk.option = c.Limit, c.LimitOption
	} else if s.job && (c.Kind == Runner || c.Kind == Wheel) && s.h.opts.Runner > 0 {
		talk.limit, talk.option = s.h.opts.Runner, "python_runner_timeout"
	} else {
		talk.endless = s.job && slices.Contains([]Kind{Runner, Wheel, Engine, State}, c.Kind)
	}
	talk.left = talk.limit
	v, err := talk.run(ctx, m)
	if s.child.reason != "" || errors.Is(err, errPack) { // then it lacks what came with the call
		s.drop()
	}
	return v, err
}

func (m Minion) message() value.Map {
	return value.Map{
		{Key: "id", Value: m.ID}, {Key: "grains", Value: m.Grains},
		{Key: "pillar", Value: m.Pillar}, {Key: "saltenv", Value: m.Saltenv},
		{Key: "pillarenv", Value: m.Pillarenv}, {Key: "pillar_roots", Value: m.PillarRoots},
		{Key: "opts", Value: m.Opts}, {Key: "states", Value: m.States},
	}
}

func (c Call) message() value.Map {
	out := value.Map{
		{Key: "op", Value: "call"}, {Key: "kind", Value: string(c.Kind)},
		{Key: "fun", Value: c.Fun}, {Key: "args", Value: c.Args}, {Key: "kwargs", Value: c.Kwargs},
	}
	if c.Kind == Pillar {
		out = append(out, value.Pair{Key: "given", Value: c.Given},
			value.Pair{Key: "pillar", Value: c.Pillar}, value.Pair{Key: "before", Value: c.Before},
			value.Pair{Key: "extra", Value: c.Extra})
	}
	if s := c.State; s != nil {
		out = append(out, value.Pair{Key: "test", Value: s.Test},
			value.Pair{Key: "env", Value: s.Env}, value.Pair{Key: "jid", Value: s.JID},
			value.Pair{Key: "instance", Value: s.Instance}, value.Pair{Key: "user", Value: s.User},
			value.Pair{Key: "umask", Value: s.Umask},
			value.Pair{Key: "low", Value: s.Low}, value.Pair{Key: "running", Value: s.Running},
			value.Pair{Key: "lowstate", Value: s.Lowstate})
	}
	if c.Retcode != nil {
		out = append(out, value.Pair{Key: "retcode", Value: true})
	}
	if c.Tag != "" {
		out = append(out, value.Pair{Key: "jid", Value: c.JID},
			value.Pair{Key: "user", Value: c.User}, value.Pair{Key: "tag", Value: c.Tag})
	}
	return out
}

// takeToken waits for a token, unless the session has one: if its child was lost, the next child
// needs no other. A call for somebody with a child needs none, because all holders of tokens may
// wait for such calls. Nor does a job, because pillars must not wait for it.
func (s *Session) takeToken(ctx context.Context) error {
	if s.token || s.job || conversationOf(ctx) != nil || Counts(ctx) {
		return nil
	}
	select {
	case <-s.h.free:
		s.token = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take returns a child for a session; a job's has served no minion.
func (h *Host) take(ctx context.Context, job bool) (*child, error) {
	var c *child
	if !job {
		c = h.again()
	}
	if c == nil {
		var err error
		if c, err = h.fork(ctx); err != nil {
			return nil, err
		}
	}
	c.served++
	return c, nil
}

// again returns a spare child, or nil.
func (h *Host) again() *child {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, c := range slices.Backward(h.spare) {
		if !h.closed && c.of == h.server && c.fit() {
			h.spare = slices.Delete(h.spare, i, i+1)
			h.busy[c] = true
			return c
		}
	}
	return nil
}

func (h *Host) fork(ctx context.Context) (*child, error) {
	s, err := h.running(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c, err := s.fork(ctx)
	if err != nil {
		return nil, err
	}
	c.of = s
	h.m.fork.Observe(time.Since(began).Seconds())
	h.m.started.Inc()
	h.m.children.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started++
	h.busy[c] = true
	if h.closed {
		c.kill()
	}
	return c, nil
}

// put ends a child whose session ends, or keeps it for another minion.
func (h *Host) put(c *child, minions bool) {
	h.mu.Lock()
	delete(h.busy, c)
	keep := minions && c.served < h.opts.Pillars && !h.closed && c.of == h.server && c.fit()
	if keep {
		c.since = time.Now()
		h.spare = append(h.spare, c)
		if h.tidy == nil {
			h.tidy = time.AfterFunc(spareFor, h.tidyUp)
		}
	}
	if len(h.busy) == 0 && h.idle != nil {
		h.idle.Reset(h.opts.Idle)
	}
	h.mu.Unlock()
	if !keep {
		h.end(c)
	}
}

// end ends a child that is neither busy nor spare.
func (h *Host) end(c *child) {
	c.end()
	h.m.children.Dec()
}

// endSpare ends the children without work that which chooses; nil chooses all.
func (h *Host) endSpare(which func(*child) bool) {
	var ended []*child
	h.mu.Lock()
	h.spare = slices.DeleteFunc(h.spare, func(c *child) bool {
		gone := which == nil || which(c)
		if gone {
			ended = append(ended, c)
		}
		return gone
	})
	h.mu.Unlock()
	for _, c := range ended {
		h.end(c)
	}
}

// tidyUp ends children that had no work for a while, and comes again while some are spare.
func (h *Host) tidyUp() {
	h.endSpare(func(c *child) bool { return time.Since(c.since) >= spareFor })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tidy = nil; len(h.spare) > 0 {
		h.tidy = time.AfterFunc(spareFor-time.Since(h.spare[0].since), h.tidyUp)
	}
}

// running returns the fork server, and starts it if needed.
func (h *Host) running(ctx context.Context) (*server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if h.server != nil {
		select {
		case <-h.server.gone:
			h.log.Warn("fork server of the Python host ended; the next one is started")
			h.server = nil
		default:
			return h.server, nil
		}
	}
	if time.Now().Before(h.retry) {
		return nil, h.failed
	}
	s, err := h.startServer(ctx)
	if err != nil {
		if ctx.Err() == nil {
			h.failed, h.retry = err, time.Now().Add(retryPause)
			h.log.Error("Python host can't be started", "err", err)
		}
		return nil, err
	}
	h.server = s
	h.m.servers.Inc()
	if h.idle == nil {
		h.idle = time.AfterFunc(h.opts.Idle, h.retire)
	} else {
		h.idle.Reset(h.opts.Idle)
	}
	return s, nil
}

// retire ends an idle fork server.
func (h *Host) retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.busy) > 0 || h.server == nil || h.closed {
		return
	}
	h.log.Debug("fork server of the Python host ends: it was idle")
	go h.endSpare(nil)
	go h.server.end()
	h.server = nil
}

// Status is the host's state for operators.
type Status struct {
	Python, Salt string // versions; "" while no fork server runs
	PID          int
	Started      uint64 // children started so far
	Calls        []Running
}

// Running is a running call.
type Running struct {
	PID       int
	Fun, File string
	Since     time.Time
}

// Status returns the host's state.
func (h *Host) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := Status{Started: h.started}
	if s := h.server; s != nil {
		out.Python, out.Salt, out.PID = s.python, s.salt, s.cmd.Process.Pid
	}
	for c := range h.busy {
		if r, ok := c.running(); ok {
			out.Calls = append(out.Calls, r)
		}
	}
	return out
}

// level returns the lowest level of records to forward, as a number of Python's logging.
func level(log *slog.Logger) int {
	for _, l := range []struct {
		slog   slog.Level
		python int
	}{{slog.LevelDebug, 10}, {slog.LevelInfo, 20}, {slog.LevelWarn, 30}} {
		if log.Enabled(context.Background(), l.slog) {
			return l.python
		}
	}
	return 40
}

// record writes a Python module's log record.
func (h *Host) record(m value.Map, more ...any) {
	h.m.records.Inc()
	python := integer(m, "level")
	at := slog.LevelDebug
	switch {
	case python >= 40:
		at = slog.LevelError
	case python >= 30:
		at = slog.LevelWarn
	case python >= 20:
		at = slog.LevelInfo
	}
	h.log.Log(context.Background(), at, fmt.Sprint(m.String("text")),
		append([]any{"module", m.String("module")}, more...)...)
}
