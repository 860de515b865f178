package pillar

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"clustermaster/value"
)

// Env is one environment of pillar_roots: the first root that has a path wins.
type Env struct {
	Name  string
	Roots []string
}

// Options are the master options that pillars depend on, named as in Salt's config.
type Options struct {
	// pillar_roots, in the config's order; an Env "__env__" stands for the requested environment
	Roots                []Env
	StateTop             string // state_top
	Renderer             string // renderer: the pipeline of files without a shebang
	Saltenv, Pillarenv   string // defaults for requests that name none; "" for none
	PillarenvFromSaltenv bool
	EnvOrder             []string  // env_order
	MergeStrategy        string    // pillar_source_merging_strategy
	MergeLists           bool      // pillar_merge_lists
	IncludesOverrideSLS  bool      // pillar_includes_override_sls
	SafeRenderError      bool      // pillar_safe_render_error
	PillarOpts           bool      // pillar_opts: the key master holds the master's options
	MasterOpts           value.Map // the master's options, without secrets; read only
	Release              string    // of Salt, as the master reports it; part of pillar_opts
	Nodegroups           value.Map

	ExtPillar         any      // ext_pillar as configured; nil for none
	ExtPillarFirst    bool     // ext_pillar_first
	ExcludeExtPillar  []string // exclude_ext_pillar
	OnDemandExtPillar []string // on_demand_ext_pillar

	DecryptPillar          any      // decrypt_pillar as configured; nil for none
	DecryptPillarDelimiter string   // decrypt_pillar_delimiter; "" is ":"
	DecryptPillarDefault   string   // decrypt_pillar_default; "" is gpg
	DecryptPillarRenderers []string // decrypt_pillar_renderers; nil is gpg

	GitIncludes bool // git_pillar_includes: SLS files may include those of other remotes

	Cache    bool          // pillar_cache
	CacheTTL time.Duration // pillar_cache_ttl

	MaxSize int           // max_pillar_size: bytes of a packed pillar; 0 is 64 MiB
	Timeout time.Duration // pillar_timeout: of one compile; 0 is one minute
}

// Bounds of one compile, far above what a sensible tree needs.
const (
	maxIncludeDepth = 200
	maxRendered     = 10_000 // files
	maxErrors       = 1_000
	anyEnv          = "__env__"
)

// Files are pillar_roots.
type Files interface {
	// List returns the sorted paths of an environment's files, relative to its roots. Callers must
	// not change the slice.
	List(env string) []string
	// Open returns a file's content and its path on disk. found is false for a file that does not
	// exist or may not be read.
	Open(env, path string) (abs string, data []byte, found bool, err error)
}

// Kept is the store of compiled pillars for pillar_cache.
type Kept interface {
	// Pillar returns the pillar of a minion for a pillarenv ("" for none) and when it was stored.
	Pillar(ctx context.Context, id, pillarenv string) (pillar value.Map, at time.Time, found bool,
		err error)
}

// Deps is what a compiler needs from other packages.
type Deps struct {
	Files     Files
	Renderer  Renderer
	Functions Functions // nil: templates can call nothing. May also be a Binder
	Kept      Kept      // nil: no pillar_cache
	// Matches lists the minions of a compound expression, for file_tree and nodegroups; nil: none
	// match.
	Matches func(ctx context.Context, compound any) ([]string, error)
	// Git lists the folders that one git entry of ext_pillar gives to a request; nil without
	// git_pillar.
	Git func(ctx context.Context, remotes []any, saltenv, pillarenv string) ([]GitFolder, error)
}

// Request says which pillar to make, and for which minion.
type Request struct {
	ID                        string
	Grains                    value.Map
	Saltenv, Pillarenv        string // "" for none
	Override, ExtraMinionData value.Map
	CleanCache                bool
	// on-demand ext_pillar of the minion: a map from name to arguments
	Ext any
}

// Compiler makes pillars. It is safe for concurrent use.
type Compiler struct {
	groups  atomic.Pointer[value.Map] // of SetNodegroups; nil: those of opts
	deps    Deps
	opts    Options
	log     *slog.Logger
	metrics *metrics

	commands *semaphore.Weighted // of ext_pillars
}

// New makes a compiler. Log nil discards, reg nil keeps no metrics.
func New(deps Deps, o Options, log *slog.Logger, reg prometheus.Registerer) *Compiler {
	if o.StateTop = strings.TrimPrefix(o.StateTop, "salt://"); o.StateTop == "" {
		o.StateTop = "top.sls"
	}
	o.StateTop = strings.TrimPrefix(o.StateTop, "/")
	if o.Renderer == "" {
		o.Renderer = "jinja|yaml"
	}
	if o.DecryptPillarDelimiter == "" {
		o.DecryptPillarDelimiter = ":"
	}
	if o.DecryptPillarDefault == "" {
		o.DecryptPillarDefault = "gpg"
	}
	if o.DecryptPillarRenderers == nil {
		o.DecryptPillarRenderers = []string{"gpg"}
	}
	if o.MaxSize <= 0 {
		o.MaxSize = 64 << 20
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Compiler{deps: deps, opts: o, log: log.With("component", "pillar"),
		metrics: newMetrics(reg), commands: semaphore.NewWeighted(commandsAtOnce)}
}

// Made is a pillar, and the part of it that the master keeps.
type Made struct {
	Pillar value.Map
	Keep   value.Map // the pillar without override; nil if there is nothing to store
	Env    string    // pillarenv to store it under; "" for none
}

// Pillar makes a minion's pillar; with pillar_cache it may return one that was made earlier. An
// error means that there is no pillar; faults within a pillar are in its key _errors.
func (c *Compiler) Pillar(ctx context.Context, r Request) (Made, error) {
	if c.opts.PillarenvFromSaltenv && r.Pillarenv == "" {
		r.Pillarenv = r.Saltenv
	}
	env := c.pillarenv(r)
	if !c.opts.Cache || c.deps.Kept == nil || r.Ext != nil {
		made, err := c.compile(ctx, r)
		if err != nil || len(r.Override) > 0 || r.Ext != nil {
			return Made{Pillar: made, Env: env}, err
		}
		return Made{Pillar: made, Keep: made, Env: env}, nil
	}
	if !r.CleanCache {
		kept, at, found, err := c.deps.Kept.Pillar(ctx, r.ID, env)
		if err != nil {
			return Made{}, fmt.Errorf("read kept pillar of %q: %w", r.ID, err)
		}
		if found && len(kept) > 0 && (c.opts.CacheTTL <= 0 || time.Since(at) < c.opts.CacheTTL) {
			c.metrics.compiled.WithLabelValues("kept").Inc()
			return Made{Pillar: c.override(kept, r.Override), Env: env}, nil
		}
	}
	plain := r
	plain.Override = nil
	made, err := c.compile(ctx, plain)
	if err != nil {
		return Made{}, err
	}
	return Made{Pillar: c.override(made, r.Override), Keep: made, Env: env}, nil
}

// OnMaster makes the pillar of states and functions that run on the master itself.
func (c *Compiler) OnMaster(ctx context.Context, id string, grains value.Map, saltenv,
	pillarenv string, over value.Map) (value.Map, error) {
	made, err := c.Pillar(ctx, Request{ID: id, Grains: grains, Saltenv: saltenv,
		Pillarenv: pillarenv, Override: over, CleanCache: true})
	return made.Pillar, err
}

func (c *Compiler) override(pillar, over value.Map) value.Map {
	if len(over) == 0 {
		return pillar
	}
	return c.merge(pillar, over)
}

func (c *Compiler) merge(a, b value.Map) value.Map {
	return value.Merge(a, b, c.opts.strategy(), c.opts.MergeLists)
}

// strategy is the merge strategy in force: smart means recurse, except for the renderer yamlex.
func (o *Options) strategy() string {
	if o.MergeStrategy == "" || o.MergeStrategy == "smart" {
		if pipe := o.Renderer[strings.LastIndexByte(o.Renderer, '|')+1:]; pipe == "yamlex" {
			return "aggregate"
		}
		return "recurse"
	}
	return o.MergeStrategy
}

func (c *Compiler) pillarenv(r Request) string {
	if r.Pillarenv != "" {
		return r.Pillarenv
	}
	return c.opts.Pillarenv
}

// compilation makes one pillar.
type compilation struct {
	*Compiler
	req                Request
	saltenv, pillarenv string
	roots              []Env // in force: __env__ resolved
	grains             value.Map
	seen               value.Map // the options as templates see them
	told               value.Map // the options as functions see them: id is the master's
	pillar             value.Map // as templates and matchers see it
	runs               []any     // ext_pillar
	wellFormed         bool      // the option is a list
	// Something in the pillar gets decrypted. The minion's own texts must not be in it before, or
	// the minion would learn what they decrypt to.
	apart     bool
	given     value.Map // extra data of the minion that is added after that
	avail     map[string][]string
	ignored   map[string][]string // SLS per environment that may be absent without an error
	errors    []string
	rendered  int
	functions Functions // nil: none
}

func (c *Compiler) newCompilation(r Request) *compilation {
	p := &compilation{
		Compiler: c, req: r, grains: r.Grains, pillar: value.Map{}, pillarenv: c.pillarenv(r),
		saltenv: r.Saltenv,
		avail:   make(map[string][]string), ignored: make(map[string][]string),
		functions: c.deps.Functions,
	}
	if p.saltenv == "" {
		p.saltenv = c.opts.Saltenv
	}
	p.resolveEnvs()
	p.seen = p.templateOpts()
	p.told = p.seen
	if id := c.opts.MasterOpts.String("id"); id != "" {
		p.told = slices.Clone(p.seen).Set("id", id)
	}
	return p
}

func (c *Compiler) compile(ctx context.Context, r Request) (value.Map, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	p := c.newCompilation(r)
	defer p.bind()()
	made, err := p.run(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.metrics.compiled.WithLabelValues("failed").Inc()
		return nil, fmt.Errorf("compile pillar of %q: %w", r.ID, err)
	}
	if made, err = p.bounded(made); err != nil {
		return nil, err
	}
	outcome := "made"
	if _, bad := made.Get("_errors"); bad {
		outcome = "errors"
	}
	c.metrics.compiled.WithLabelValues(outcome).Inc()
	c.metrics.took.Observe(time.Since(began).Seconds())
	return made, nil
}

// run is Salt's compile_pillar.
func (p *compilation) run(ctx context.Context) (value.Map, error) {
	p.runs, p.wellFormed = p.extRuns()
	p.apart = p.decrypts()
	top := p.top(ctx)
	topErrors := p.errors
	p.errors = nil
	if p.opts.ExtPillarFirst {
		ext, err := p.extPillars(ctx, p.req.Override)
		if err != nil {
			return nil, err
		}
		p.pillar = value.Update(p.pillar, ext)
		made, err := p.renderMatches(ctx, p.matches(ctx, top))
		if err != nil {
			return nil, err
		}
		p.pillar = value.Update(p.pillar, p.merge(p.pillar, made))
	} else {
		made, err := p.renderMatches(ctx, p.matches(ctx, top))
		if err != nil {
			return nil, err
		}
		p.pillar = value.Update(p.pillar, made)
		ext, err := p.extPillars(ctx, p.pillar)
		if err != nil {
			return nil, err
		}
		p.pillar = value.Update(p.pillar, ext)
	}
	p.errors = append(p.errors, topErrors...)
	made := p.pillar
	if p.opts.PillarOpts {
		made = value.Update(made,
			value.Map{{Key: "master", Value: append(slices.Clip(p.seen),
				value.Pair{Key: "grains", Value: p.grains},
				value.Pair{Key: "saltversion", Value: p.opts.Release})}})
	}
	// Decrypt before adding what the minion gives, so that the minion does not learn what its own
	// texts decrypt to. Salt decrypts last.
	made = p.decrypt(ctx, made)
	if p.opts.ExtPillarFirst {
		made = p.merge(p.given, made)
	} else {
		made = p.override(made, p.given)
	}
	if len(p.errors) > 0 {
		made = value.Update(made, value.Map{{Key: "_errors", Value: anyTexts(p.errors)}})
	}
	return p.override(made, p.req.Override), nil
}

// bounded replaces a pillar that is too large by one that only holds the error.
func (p *compilation) bounded(made value.Map) (value.Map, error) {
	packed, err := value.Pack(made)
	if err != nil {
		return value.Map{{Key: "_errors",
			Value: []any{fmt.Sprintf("Pillar of minion '%s' holds a value that cannot be sent: %s",
				p.req.ID, err)}}}, nil
	}
	if len(packed) <= p.opts.MaxSize {
		return made, nil
	}
	text := fmt.Sprintf("Pillar of minion '%s' has %d bytes, more than max_pillar_size (%d) allows",
		p.req.ID, len(packed), p.opts.MaxSize)
	p.log.Error("pillar too large; make it smaller or raise max_pillar_size", "minion", p.req.ID,
		"n", len(packed))
	return value.Map{{Key: "_errors", Value: []any{text}}}, nil
}

// fault adds an error to the pillar.
func (p *compilation) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.log.Error("pillar has an error", "minion", p.req.ID, "err", text)
	if len(p.errors) < maxErrors {
		p.errors = append(p.errors, text)
	}
}

func anyTexts(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// SetNodegroups changes the nodegroups for pillars that are made from now on.
func (c *Compiler) SetNodegroups(groups value.Map) { c.groups.Store(&groups) }

// nodegroups returns the nodegroups in force.
func (c *Compiler) nodegroups() value.Map {
	if groups := c.groups.Load(); groups != nil {
		return *groups
	}
	return c.opts.Nodegroups
}
