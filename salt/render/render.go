package render

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/value"
)

// Defaults of Options.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultMemoryLimit = 1 << 30
	DefaultOutputLimit = 64 << 20
	DefaultIdleStop    = 5 * time.Minute
	DefaultCacheSize   = 32 << 20
)

// Options of a Renderer. A zero number means the default.
type Options struct {
	// Dir holds the unpacked Python, with mode 0700. It needs about 50 MB and must allow execution.
	Dir string
	// Python is the path of another interpreter (option render_python); "" is the embedded one. It
	// needs no extra packages.
	Python string
	// Workers is the number of worker processes, without those of renders that are Ahead; by
	// default one per core, at least two. A render that waits for a worker ends with its context.
	Workers int
	// Timeout bounds the time of one render in a worker, without calls of the Host.
	Timeout time.Duration
	// MemoryLimit bounds a worker's address space, OutputLimit one message from it, both in bytes.
	MemoryLimit, OutputLimit int64
	// IdleStop is the idle time after which a worker ends.
	IdleStop time.Duration
	// CacheSize bounds the estimated memory of cached renders in bytes; below 0 the cache is off.
	CacheSize int64
}

func (o *Options) fill() {
	o.Workers = cmp.Or(o.Workers, max(2, runtime.GOMAXPROCS(0)))
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MemoryLimit = cmp.Or(o.MemoryLimit, DefaultMemoryLimit)
	o.OutputLimit = cmp.Or(o.OutputLimit, DefaultOutputLimit)
	o.IdleStop = cmp.Or(o.IdleStop, DefaultIdleStop)
	o.CacheSize = cmp.Or(o.CacheSize, DefaultCacheSize)
}

// Source is a file to render.
type Source struct {
	// Path is the path for messages and for the variables tplpath, tplfile and tpldir.
	Path string
	// SLS is the dotted name; "" for a file without one (a top file).
	SLS     string
	SaltEnv string
	Data    []byte
	// Once says that no later render will be like this one, so its value is not cached.
	Once bool
}

// Context is what a template sees.
type Context struct {
	// ID is the minion's id.
	ID                   string
	Grains, Pillar, Opts value.Map
	// Vars are further variables. They win over the source's own (slspath, tpldir, ...), which
	// the caller need not set.
	Vars value.Map
}

// Host serves a template's requests while it renders.
type Host interface {
	// Call runs a function of the template's variable salt. An unknown name is ErrUnknownFunction,
	// wrapped. A function may start a render with this ctx: it runs in the same worker.
	Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error)
	// File reads a file for a template. path is clean and relative and has no "..".
	File(ctx context.Context, saltenv, path string) (data []byte, found bool, err error)
}

// FunctionLister is implemented by a Host that knows its functions. Without it, templates see a
// function under every name with a dot.
type FunctionLister interface {
	// HasFunction reports whether Call knows a function such as grains.get. A name that ends with a
	// dot asks for any function of that module.
	HasFunction(ctx context.Context, name string) bool
}

// Explainer is implemented by a Host that may know why functions are missing.
type Explainer interface {
	// WhyMissing returns the reason, with its remedy; "" if there is none.
	WhyMissing() string
}

// WhyMissing asks v, if it is an Explainer.
func WhyMissing(v any) string {
	if e, ok := v.(Explainer); ok {
		return e.WhyMissing()
	}
	return ""
}

// Holder is implemented by a Host that may hold what templates with a worker wait for.
type Holder interface {
	// Ahead returns ctx, made with Ahead if the Host now holds something. It is asked before each
	// stage that needs a worker, because an earlier stage may have begun to hold it.
	Ahead(ctx context.Context) context.Context
}

// Overrider is implemented by a Host whose site can replace functions that
// this package knows as pure.
type Overrider interface {
	// Overrides reports whether the site replaces a function. A render that
	// called it is not cached.
	Overrides(fun string) bool
}

// StageRunner is implemented by a Host with renderers of its own.
type StageRunner interface {
	// HasRenderer reports whether the Host runs a renderer for a source. It is asked about py too,
	// whose modules may need more than this package's Python has.
	HasRenderer(name string, src Source) bool
	// RunStage renders the previous renderer's result, a text or a value. Errors have Salt's texts.
	// vars are the further variables of the Context.
	RunStage(ctx context.Context, name, args string, val any, src Source, vars value.Map) (any,
		error)
}

// Exception is implemented by errors that stand for a Python exception of a function.
type Exception interface {
	error
	// Raised reports whether the exception's class has that name or is derived from that class.
	// ExceptionClass is its own class.
	Raised(class string) bool
	ExceptionClass() string
}

// FileNamer is implemented by a Host that names imported files in messages. Without it, messages
// show the template's path for the file.
type FileNamer interface {
	FileName(saltenv, path string) string
}

// ErrUnknownFunction is returned by a Host's Call for an unknown name.
var ErrUnknownFunction = errors.New("no such function")

// Renderer renders files. It is safe for concurrent use.
type Renderer struct {
	opts  Options
	log   *slog.Logger
	m     *metrics
	pool  *pool
	cache *cache
}

// New returns a Renderer. The first render that needs a worker unpacks Python and starts one.
func New(opts Options, log *slog.Logger, reg prometheus.Registerer) *Renderer {
	opts.fill()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "render")
	m := newMetrics(reg)
	return &Renderer{opts: opts, log: log, m: m, pool: newPool(opts, log, m),
		cache: newCache(opts.CacheSize, m)}
}

// Interpreter returns the command of the workers' Python, with the flags that keep out the
// environment. The first call may unpack it.
func (r *Renderer) Interpreter() (command []string, err error) {
	py, err := r.pool.interpreter()
	if err != nil {
		return nil, err
	}
	return append([]string{py.exe}, py.flags...), nil
}

// Close ends the workers, busy ones too. Later renders fail with ErrClosed if they need a worker.
func (r *Renderer) Close() error { return r.pool.close() }

// Render runs src through the renderers that its first line names, or else through defaultPipe,
// such as "jinja|yaml". The result consists of wire values, with value.Map for mappings; an empty
// file is an empty map. An error in the file is an *Error.
func (r *Renderer) Render(ctx context.Context, src Source, defaultPipe string, c Context,
	h Host) (any, error) {
	began := time.Now()
	defer func() { r.m.seconds.Observe(time.Since(began).Seconds()) }()
	if strings.TrimSpace(string(src.Data)) == "" {
		return value.Map{}, nil
	}
	j := &job{r: r, src: src, c: c, h: h, parts: newParts(src, c)}
	pipe, err := pipeline(src, defaultPipe, c.Opts, j.hosted)
	if err != nil {
		return nil, err
	}
	key, keepable := j.cacheKey(pipe)
	if keepable {
		if v, ok := r.cache.get(ctx, key, j); ok {
			return v, nil
		}
	}
	var val any = string(src.Data)
	for _, s := range pipe {
		if val, err = j.stage(ctx, s, val); err != nil {
			r.m.errors.Inc()
			return nil, j.explain(ctx, s.name, err)
		}
	}
	if keepable {
		r.cache.put(key, j, val)
	}
	return val, nil
}

// job is one render on its way through the pipeline.
type job struct {
	r     *Renderer
	src   Source
	c     Context
	h     Host
	parts *parts
	used  usage // so far
}

// hosted reports whether the Host runs a renderer.
func (j *job) hosted(name string) bool {
	if name == "" || slices.Contains(renderers, name) && name != "py" {
		return false
	}
	s, ok := j.h.(StageRunner)
	return ok && s.HasRenderer(name, j.src)
}

func (j *job) stage(ctx context.Context, s stage, val any) (any, error) {
	if j.hosted(s.name) {
		return j.h.(StageRunner).RunStage(ctx, s.name, s.args, val, j.src, j.c.Vars)
	}
	if s.name == "gpg" {
		return decryptAll(ctx, val, j.c.Opts)
	}
	text, ok := asText(val)
	if !ok {
		return nil, fmt.Errorf("renderer %s needs text, but the renderer before it returned a value",
			s.name)
	}
	switch s.name {
	case "jinja":
		if s.args != "" && s.args != "-s" {
			return nil, fmt.Errorf("Unknown renderer option: %s", s.args) // Salt's text
		}
		return j.jinja(ctx, text)
	case "yaml":
		return j.yaml(ctx, text)
	}
	return j.ask(ctx, s.name, text)
}

func asText(val any) (string, bool) {
	switch v := val.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// jinja renders a template. It returns a text without template marks directly.
func (j *job) jinja(ctx context.Context, text string) (any, error) {
	j.used.addOptions()
	if plainText(text) && !customSyntax(j.c.Opts, j.src.SLS) {
		// Jinja drops a line end at the end, and Salt restores it if it was \n.
		text = strings.TrimSuffix(text, "\r")
		return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), nil
	}
	return j.ask(ctx, "jinja", text)
}

// ask runs a stage in a worker.
func (j *job) ask(ctx context.Context, kind, text string) (any, error) {
	reply, err := j.work(ctx, kind, text)
	if kind == "jinja" && err == nil {
		j.used.add(reply)
	}
	return reply.value, err
}

func (j *job) work(ctx context.Context, kind, text string) (reply, error) {
	q := request{kind: kind, text: text, src: j.src, parts: j.parts, host: j.h}
	if c := nested(ctx); c != nil {
		return c.render(ctx, q)
	}
	if h, ok := j.h.(Holder); ok {
		ctx = h.Ahead(ctx)
	}
	w, err := j.r.pool.take(ctx)
	if err != nil {
		return reply{}, err
	}
	out, err := w.render(ctx, q)
	j.r.pool.put(w)
	return out, err
}

// plainText reports whether Jinja would return the text unchanged.
func plainText(text string) bool {
	for i := 0; ; {
		n := strings.IndexByte(text[i:], '{')
		if n < 0 || i+n+1 >= len(text) {
			break
		}
		i += n + 1
		if c := text[i]; c == '{' || c == '%' || c == '#' {
			return false
		}
	}
	return !strings.Contains(text, "#jinja2:") && validText(text)
}

// customSyntax reports whether the configuration changes Jinja's marks.
func customSyntax(opts value.Map, sls string) bool {
	name := "jinja_env"
	if sls != "" {
		name = "jinja_sls_env"
	}
	v, _ := opts.Get(name)
	env, _ := v.(value.Map)
	return slices.ContainsFunc(env, func(p value.Pair) bool {
		k, _ := p.Key.(string)
		return k != "trim_blocks" && k != "lstrip_blocks"
	})
}
