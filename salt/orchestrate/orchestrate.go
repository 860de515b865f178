package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/salt/modules"
	"clustermaster/value"
)

// Options are the master options that orchestrations depend on, named as in Salt's config.
type Options struct {
	ID        string   // of the master, as returns name it
	Renderer  string   // renderer; "" is jinja|yaml
	EnvOrder  []string // env_order
	AutoOrder bool     // state_auto_order
	Failhard  bool     // failhard
	Events    bool     // state_events
	// local, which Salt sets for masters: no events for single states, not even with state_events
	// or fire_event
	Local              bool
	Test               bool      // test
	MaxParallel        int       // state_max_parallel; 0 is the bound of this package
	DisabledRequisites []string  // disabled_requisites
	GlobalConditions   value.Map // global_state_conditions
	Saltenv, Pillarenv string    // saltenv and pillarenv; "" for none
	MergeStrategy      string    // pillar_source_merging_strategy
	MergeLists         bool      // pillar_merge_lists
	DecryptRenderers   []string  // decrypt_pillar_renderers
	Opts               value.Map // the master's options, without secrets; read only
}

// Pauses stores the requests to pause or end orchestrations.
type Pauses interface {
	// Pause returns the requests to an orchestration: a map from the id of a state, or __all__, to
	// a map with kill or duration.
	Pause(ctx context.Context, jid string) (value.Map, error)
	// Forget removes the requests to an orchestration that has ended.
	Forget(ctx context.Context, jid string) error
}

// Deps is what orchestrations use of other packages.
type Deps struct {
	Files     Files
	Renderer  Renderer
	Modules   Modules
	Functions Functions
	// Pillar makes the master's own pillar, the request's override on top.
	Pillar func(ctx context.Context, id string, grains value.Map, saltenv, pillarenv string,
		override value.Map) (value.Map, error)
	// Decrypt sends a value through a decrypting renderer.
	Decrypt func(ctx context.Context, v any, renderer string) (any, error)
	Grains  func() value.Map // the master's own; nil: none
	Fire    func(tag string, data value.Map)
	Pauses  Pauses           // nil: pausing is not possible
	Now     func() time.Time // nil: time.Now
}

// Orchestrator runs states on the master. It is safe for concurrent use.
type Orchestrator struct {
	deps    Deps
	opts    Options
	log     *slog.Logger
	metrics *metrics
}

// New makes an Orchestrator. Log nil discards, reg nil keeps no metrics.
func New(deps Deps, o Options, log *slog.Logger, reg prometheus.Registerer) *Orchestrator {
	if o.Renderer == "" {
		o.Renderer = "jinja|yaml"
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Grains == nil {
		deps.Grains = func() value.Map { return nil }
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Orchestrator{deps: deps, opts: o, log: log.With("component", "state"),
		metrics: newMetrics(reg)}
}

// ID returns the master's id in returns.
func (o *Orchestrator) ID() string { return o.opts.ID }

// Request says which states to run, and how.
type Request struct {
	Mods               []string // SLS files, also patterns
	Saltenv, Pillarenv string   // "" for those of the options
	Test               *bool    // nil for the option test
	Exclude            []any
	Pillar             value.Map // merged over the master's own
	PillarEnc          string    // the renderer that decrypts Pillar
	// of the orchestration; "" for one without events, which can't be paused
	JID  string
	User string
}

// tests reports whether the run must change nothing.
func (r *Request) tests(o Options) bool {
	if r.Test == nil {
		return o.Test
	}
	return *r.Test
}

// ErrPillar is returned if the pillar has errors.
var ErrPillar = errors.New("Pillar failed to render") // Salt's text

// SLS runs SLS files. The result is a map from the tags of states to their returns, or a list of
// error texts about the files.
func (o *Orchestrator) SLS(ctx context.Context, req Request) (any, error) {
	began := time.Now()
	v, err := o.sls(ctx, req)
	o.metrics.ended(v, err, time.Since(began))
	return v, err
}

func (o *Orchestrator) sls(ctx context.Context, req Request) (any, error) {
	c, high, who, err := o.render(ctx, &req)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return pillarFaults(who), nil
	}
	defer c.functions.Close()
	if len(c.errors) > 0 {
		return value.Texts(c.errors), nil
	}
	if len(req.Exclude) > 0 {
		high.set("__exclude__", append(high.list("__exclude__"), req.Exclude...))
	}
	return o.high(ctx, c, high, req, who)
}

// Show returns the high data of SLS files, or a list of error texts about them.
func (o *Orchestrator) Show(ctx context.Context, req Request) (any, error) {
	c, high, who, err := o.render(ctx, &req)
	if err == nil && c == nil {
		err = fmt.Errorf("%w: %s", ErrPillar, strings.Join(faultsOf(who), "; "))
	}
	if err != nil {
		return nil, err
	}
	defer c.functions.Close()
	c.high = high
	c.verifyHigh()
	if len(c.errors) > 0 {
		return value.Texts(c.errors), nil
	}
	return value.Map(high.pairs), nil
}

// render makes the high data of a request. It returns a nil compilation if the pillar has errors,
// else one whose functions the caller closes.
func (o *Orchestrator) render(ctx context.Context, req *Request) (*compilation, *dict,
	modules.Minion, error) {
	who, err := o.master(ctx, req)
	if err != nil || len(faultsOf(who)) > 0 {
		return nil, nil, who, err
	}
	c := o.compilation(ctx, who, req.JID)
	r := &reader{
		compilation: c, files: o.deps.Files, renderer: o.deps.Renderer, modules: o.deps.Modules,
		pipe: o.opts.Renderer, envOrder: o.opts.EnvOrder,
		auto: o.opts.AutoOrder, who: who, avail: map[string][]string{}, done: map[string]bool{},
		order: firstOrder,
	}
	high, err := r.read(ctx, req.Saltenv, req.Mods)
	if err != nil {
		c.functions.Close()
	}
	return c, high, who, err
}

func (o *Orchestrator) compilation(ctx context.Context, who modules.Minion,
	jid string) *compilation {
	return &compilation{functions: bind(ctx, o.deps.Functions, who),
		disabled: o.opts.DisabledRequisites, jid: jid}
}

// High runs high data.
func (o *Orchestrator) High(ctx context.Context, data value.Map, req Request) (any, error) {
	who, err := o.master(ctx, &req)
	if err != nil {
		return nil, err
	}
	c := o.compilation(ctx, who, "")
	defer c.functions.Close()
	made, err := c.copyValue(data, 0)
	if err != nil {
		return nil, err
	}
	m, _ := made.(value.Map)
	return o.high(ctx, c, dictOf(m), req, who)
}

func (o *Orchestrator) high(ctx context.Context, c *compilation, high *dict, req Request,
	who modules.Minion) (any, error) {
	g, chunks, faults, err := c.compile(ctx, high)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return value.Texts(faults), nil
	}
	o.metrics.states.Add(float64(len(chunks)))
	x := o.run(req, g, who, c.functions)
	ret, err := x.everything(ctx, chunks)
	o.forgetPauses(ctx, req.JID)
	if err != nil {
		return nil, err
	}
	return ret.wire(), nil
}

// forgetPauses removes the requests to an orchestration that has ended, also if its caller has
// left.
func (o *Orchestrator) forgetPauses(ctx context.Context, jid string) {
	if o.deps.Pauses == nil || jid == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTime)
	defer cancel()
	if err := o.deps.Pauses.Forget(ctx, jid); err != nil {
		o.log.Warn("pause of an ended orchestration not removed; remove it with salt-run cache.flush state_pause",
			"jid", jid, "err", err)
	}
}

const forgetTime = 10 * time.Second

func (o *Orchestrator) run(req Request, g *graph, who modules.Minion, functions Bound) *run {
	return &run{o: o, req: req, test: req.tests(o.opts), graph: g, who: who, ret: newReturns(),
		functions: functions, tried: map[string]value.Map{}, ended: make(chan struct{}, 1)}
}

// Single runs one state function with keywords.
func (o *Orchestrator) Single(ctx context.Context, fun, name string, kwargs value.Map,
	req Request) (any, error) {
	module, short, ok := strings.Cut(fun, ".")
	if !ok {
		return "Invalid function passed", nil
	}
	short, _, _ = strings.Cut(short, ".")
	who, err := o.master(ctx, &req)
	if err != nil {
		return nil, err
	}
	ch := newChunk(append(kwargs.Without("state", "fun", "__id__", "name"), value.Map{
		{Key: "state", Value: module}, {Key: "fun", Value: short}, {Key: "__id__", Value: name},
		{Key: "name", Value: name},
	}...))
	functions := bind(ctx, o.deps.Functions, who)
	defer functions.Close()
	x := o.run(req, newGraph(), who, functions)
	if _, _, wrong := x.verify(ch); len(wrong) > 0 {
		return value.Texts(wrong), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	ret, err := x.call(ctx, ch)
	cancel()
	for _, p := range x.parallel {
		p.wait()
	}
	if err != nil {
		return nil, err
	}
	return value.Map{{Key: ch.tag(), Value: ret}}, nil
}

// master describes the master to its states and templates; it fills in the request's environments.
func (o *Orchestrator) master(ctx context.Context, req *Request) (modules.Minion, error) {
	if req.Saltenv == "" {
		req.Saltenv = o.opts.Saltenv
	}
	if req.Saltenv == "" {
		req.Saltenv = "base"
	}
	if req.Pillarenv == "" {
		req.Pillarenv = o.opts.Pillarenv
	}
	if req.PillarEnc != "" && len(req.Pillar) > 0 {
		req.Pillar = o.decrypted(ctx, req.Pillar, strings.ToLower(req.PillarEnc))
	}
	who := modules.Minion{ID: o.opts.ID, Grains: o.deps.Grains(), Saltenv: req.Saltenv,
		Pillarenv: req.Pillarenv, States: true}
	who.Opts = o.opts.Opts.Without("id", "file_client", "saltenv", "pillarenv", "test", "grains",
		"pillar")
	who.Opts = append(who.Opts, value.Map{
		{Key: "id", Value: o.opts.ID}, {Key: "file_client", Value: "local"},
		{Key: "saltenv", Value: req.Saltenv},
		{Key: "pillarenv", Value: orNil(req.Pillarenv)}, {Key: "test", Value: req.tests(o.opts)},
	}...)
	pillar, err := o.pillar(ctx, *req, who.Grains)
	who.Pillar = pillar
	return who, err
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// pillar makes the master's pillar for a request.
func (o *Orchestrator) pillar(ctx context.Context, req Request, grains value.Map) (value.Map,
	error) {
	made, err := o.deps.Pillar(ctx, o.opts.ID, grains, req.Saltenv, req.Pillarenv, req.Pillar)
	if err != nil {
		return nil, fmt.Errorf("make pillar of %s: %w", o.opts.ID, err)
	}
	if len(req.Pillar) > 0 {
		made = value.Merge(made, req.Pillar, o.opts.MergeStrategy, o.opts.MergeLists)
	}
	return made, nil
}

// decrypted sends a pillar override through its renderer; as in Salt, a value that fails is logged
// and stays unchanged.
func (o *Orchestrator) decrypted(ctx context.Context, over value.Map, renderer string) value.Map {
	allowed := o.opts.DecryptRenderers
	if len(allowed) == 0 {
		allowed = []string{"gpg"}
	}
	err := fmt.Errorf("'%s' is not a valid decryption renderer. Valid choices are: %s", renderer,
		strings.Join(allowed, ", "))
	if slices.Contains(allowed, renderer) {
		var v any
		if v, err = o.deps.Decrypt(ctx, over, renderer); err == nil {
			if m, ok := v.(value.Map); ok {
				return m
			}
			err = errors.New("it is no map")
		}
	}
	o.log.Error("pillar override not decrypted", "err", err)
	return over
}

// faultsOf returns the errors of a pillar.
func faultsOf(who modules.Minion) []string {
	v, _ := who.Pillar.Get("_errors")
	list, _ := v.([]any)
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = value.Str(e)
	}
	return out
}

func pillarFaults(who modules.Minion) any {
	return value.Texts(append([]string{"Pillar failed to render with the following messages:"},
		faultsOf(who)...))
}

// pauseLook is how often a waiting orchestration checks whether it may go on.
const pauseLook = time.Second

// pause waits while there is a request to pause a chunk, or all. kill reports a request to end the
// run before the chunk.
func (x *run) pause(ctx context.Context, ch *chunk) (kill bool, err error) {
	if x.o.deps.Pauses == nil || x.req.JID == "" {
		return false, nil
	}
	began := x.o.deps.Now()
	for {
		asked, err := x.o.deps.Pauses.Pause(ctx, x.req.JID)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil {
			x.o.log.Warn("pauses not read; the orchestration continues", "jid", x.req.JID, "err", err)
			return false, nil
		}
		v, ok := asked.Get(ch.id)
		if !ok {
			if v, ok = asked.Get("__all__"); !ok {
				return false, nil
			}
		}
		what, _ := v.(value.Map)
		if d, ok := what.Get("duration"); ok {
			if n, _ := integer(d); x.o.deps.Now().Sub(began) > time.Duration(min(n,
				1<<31))*time.Second {
				return false, nil
			}
		}
		if _, ok := what.Get("kill"); ok {
			return true, nil
		}
		if err := sleep(ctx, pauseLook); err != nil {
			return false, err
		}
	}
}
