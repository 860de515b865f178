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
	// Dir is where the embedded Python is unpacked, with mode 0700. It needs about 50 MB and must
	// allow execution.
	Dir string
	// Python is another interpreter (option render_python), "" for the embedded one. It needs no
	// packages.
	Python string
	// Workers is how many processes render at once; by default one per core, at least two. A render
	// that waits for one is bounded by its context.
	Workers int
	// Timeout bounds the time that one render spends in a worker, calls of the Host not counted.
	Timeout time.Duration
	// MemoryLimit bounds a worker's address space, OutputLimit one message from it; in bytes.
	MemoryLimit, OutputLimit int64
	// IdleStop is after how long without work a worker ends.
	IdleStop time.Duration
	// CacheSize bounds the kept renders in bytes of their packed values; below 0 nothing is kept.
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
	// Path is what messages show, and where the names tplpath, tplfile and tpldir come from.
	Path string
	// SLS is the dotted name, "" for a file that has none (a top file).
	SLS     string
	SaltEnv string
	Data    []byte
	// Once says that no render will be like this one, so that its value is not worth keeping.
	Once bool
}

// Context is what a template sees.
type Context struct {
	// ID is the minion's id.
	ID                   string
	Grains, Pillar, Opts value.Map
	// Vars are further names. They win over the names of the source (slspath, tpldir, ...), which
	// need not be given.
	Vars value.Map
}

// Host is what a template may ask for while it renders.
type Host interface {
	// Call runs a function of the template's name salt. ErrUnknownFunction, wrapped, says that
	// there is none of that name. A render may be started with this ctx: it runs in the same
	// worker.
	Call(ctx context.Context, fun string, args []any, kwargs value.Map) (any, error)
	// File reads what a template imports: path is clean, relative, and has no "..".
	File(ctx context.Context, saltenv, path string) (data []byte, found bool, err error)
}

// FunctionLister is implemented by a Host that knows which functions there are.
// A Host that does not has every one that Call does not refuse.
type FunctionLister interface {
	// HasFunction tells whether Call knows a function such as grains.get; a name that ends with a
	// dot asks for any function of that module.
	HasFunction(name string) bool
}

// Overrider is implemented by a Host in which functions of a site stand in place of those that this
// package knows as pure.
type Overrider interface {
	// Overrides reports whether that is so for a function. A render that called one is not kept.
	Overrides(fun string) bool
}

// StageRunner is implemented by a Host that has renderers beside this package's.
type StageRunner interface {
	// HasRenderer reports whether it runs a renderer for a source. It is asked for py too, whose
	// modules may need what this package's Python lacks.
	HasRenderer(name string, src Source) bool
	// RunStage renders what the renderer before made, text or a value. The errors' texts are
	// Salt's.
	RunStage(ctx context.Context, name, args string, val any, src Source) (any, error)
}

// Exception is implemented by errors of functions that are exceptions of Python.
type Exception interface {
	error
	// Raised reports whether the exception is of a class of that name or of one derived from it;
	// ExceptionClass is its own.
	Raised(class string) bool
	ExceptionClass() string
}

// FileNamer is implemented by a Host that knows what messages should call an
// imported file; without it they show the path that the template gave.
type FileNamer interface {
	FileName(saltenv, path string) string
}

// ErrUnknownFunction is returned by a Host's Call for a name that it does not know.
var ErrUnknownFunction = errors.New("no such function")

// Renderer renders files. It is safe for concurrent use.
type Renderer struct {
	opts  Options
	log   *slog.Logger
	m     *metrics
	pool  *pool
	cache *cache
}

// New returns a Renderer. Nothing is unpacked or started before the first render
// that needs it.
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

// Interpreter is the Python that runs the workers, with the flags that keep the environment out.
// The first call may unpack it.
func (r *Renderer) Interpreter() (command []string, err error) {
	py, err := r.pool.interpreter()
	if err != nil {
		return nil, err
	}
	return append([]string{py.exe}, py.flags...), nil
}

// Close ends the workers, busy ones too. Renders fail from then on.
func (r *Renderer) Close() error { return r.pool.close() }

// Render runs src through the renderers that its first line names, else through
// defaultPipe, such as "jinja|yaml". The result is made of wire values, mappings
// being value.Map; an empty file is an empty map. Errors of the file are *Error.
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

// hosted tells whether the Host runs a renderer.
func (j *job) hosted(name string) bool {
	if name == "" || slices.Contains(renderers, name) && name != "py" {
		return false
	}
	s, ok := j.h.(StageRunner)
	return ok && s.HasRenderer(name, j.src)
}

func (j *job) stage(ctx context.Context, s stage, val any) (any, error) {
	if j.hosted(s.name) {
		return j.h.(StageRunner).RunStage(ctx, s.name, s.args, val, j.src)
	}
	if s.name == "gpg" {
		return decryptAll(ctx, val, j.c.Opts)
	}
	text, ok := asText(val)
	if !ok {
		return nil, fmt.Errorf("renderer %s needs text, not what the renderer before it made",
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

// jinja renders a template; a text without template marks is its own result.
func (j *job) jinja(ctx context.Context, text string) (any, error) {
	j.used.addOptions()
	if plainText(text) && !customSyntax(j.c.Opts, j.src.SLS) {
		// Jinja drops a line end at the end, Salt puts back what was a \n.
		text = strings.TrimSuffix(text, "\r")
		return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), nil
	}
	return j.ask(ctx, "jinja", text)
}

// ask has a worker do a stage.
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
	w, err := j.r.pool.take(ctx)
	if err != nil {
		return reply{}, err
	}
	out, err := w.render(ctx, q)
	j.r.pool.put(w)
	return out, err
}

// plainText reports that Jinja would pass the text through as it is.
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

// customSyntax reports that the configuration gives Jinja marks of its own.
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
