package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/salt/hosted"
	"clustermaster/salt/modules"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/runner"
	"clustermaster/salt/saltpython"
	"clustermaster/value"
)

// openPython joins the functions of templates with those that Salt has in Python. It starts
// nothing.
func (r *process) openPython() {
	o := r.opts
	find := pythonFinder(o)
	po := pythonOptions(o)
	po.Python, po.Answer = find, r.answerPython
	po.Natives = map[string][]string{"module": slices.DeleteFunc(slices.Clone(hosted.Answered),
		func(fun string) bool { return !r.modules.Has(fun) })}
	r.python = pythonhost.New(po, r.log, r.reg)
	values, _ := settings.Value(o.Values()).(value.Map)
	site := func(kind, own string) *pythonhost.Site {
		return pythonhost.NewSite(values.String("extension_modules"), texts(values, "module_dirs"),
			texts(values, own), kind)
	}
	own := site("modules", "module_dirs")
	r.pythonAdmin = pythonAdmin{host: r.python, find: find, modules: own}
	r.hosted = hosted.New(hosted.Deps{
		Native: r.modules, Host: r.python, Available: func() error { _, err := find(); return err },
		Modules: own, Pillars: site("pillar", "pillar_dirs"),
		Renderers: site("renderers", "render_dirs"), Log: r.log,
	})
}

// texts is an option that is a list of texts.
func texts(m value.Map, name string) []string {
	v, _ := m.Get(name)
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// findPause is how long a search for an interpreter without success is believed.
const findPause = time.Minute

// pythonFinder looks for the interpreter when it is first needed, and again a minute after it found
// none.
func pythonFinder(o *config.Options) func() (string, error) {
	var mu sync.Mutex
	var path string
	var err error
	var until time.Time
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if path == "" && time.Now().After(until) {
			path, err = saltpython.Find(o.PythonHost)
			until = time.Now().Add(findPause)
		}
		return path, err
	}
}

// ofSalt are the options that Salt is told as this master has them; the others it reads from the
// configuration itself.
var ofSalt = []string{
	"cachedir", "cython_enable", "enable_zip_modules", "extension_modules", "extmod_blacklist",
	"extmod_whitelist", "file_roots",
	"id", "module_dirs", "optimization_order",
	"pillar_roots", "pki_dir", "render_dirs", "root_dir", "sock_dir", "user", "utils_dirs",
}

// pythonOptions is what the host takes from the options.
func pythonOptions(o *config.Options) pythonhost.Options {
	opts := pythonhost.Options{
		ConfFile:  o.ConfFile,
		Timeout:   o.PythonTimeout,
		Memory:    int64(o.PythonMemory),
		Output:    int64(o.PythonOutput),
		Processes: o.PythonProcesses,
		Children:  o.PythonChildren,
		Idle:      o.PythonIdle,
	}
	values, _ := settings.Value(o.Values()).(value.Map)
	for _, name := range ofSalt {
		if v, ok := values.Get(name); ok && v != nil {
			opts.Opts = append(opts.Opts, value.Pair{Key: name, Value: v})
		}
	}
	return opts
}

// answerPython does what Python code asks of this master.
func (r *process) answerPython(ctx context.Context, q pythonhost.Question) (any, error) {
	switch q.What {
	case "module":
		m := modules.Minion{ID: q.Minion.ID, Grains: q.Minion.Grains, Pillar: q.Minion.Pillar,
			Saltenv: q.Minion.Saltenv, Pillarenv: q.Minion.Pillarenv}
		opts, _ := settings.Value(r.opts.Extra).(value.Map)
		m.Opts = opts.Set("id", r.opts.ID)
		v, err := r.modules.Call(ctx, m, q.Fun, q.Args, q.Kwargs)
		if errors.Is(err, modules.ErrUnknown) {
			return nil, fmt.Errorf("function %s can't be called on this master", q.Fun)
		}
		return v, err
	}
	return nil, fmt.Errorf("this master does not answer questions about %s", q.What)
}

// pythonAdmin shows the Python host to operators, and runs Salt's own runners that need no minions.
type pythonAdmin struct {
	host    *pythonhost.Host
	find    func() (string, error)
	modules *pythonhost.Site
}

// Status implements runner.PythonHost.
func (p pythonAdmin) Status() runner.PythonStatus {
	s := p.host.Status()
	out := runner.PythonStatus{Python: s.Python, Salt: s.Salt, PID: s.PID, Children: s.Started,
		Modules: p.modules.Names()}
	var err error
	if out.Interpreter, err = p.find(); err != nil {
		out.Problem = err.Error()
	}
	for _, c := range s.Calls {
		out.Calls = append(out.Calls, runner.PythonCall(c))
	}
	return out
}

// Runner implements runner.PythonHost.
func (p pythonAdmin) Runner(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	if _, err := p.find(); err != nil {
		return nil, fmt.Errorf("%s needs Salt: %w", fun, err)
	}
	session := p.host.Session(pythonhost.Minion{})
	defer session.Close()
	defer p.modules.Forget()
	return session.Call(ctx, pythonhost.Call{Kind: pythonhost.Runner, Fun: fun, Args: args,
		Kwargs: kwargs})
}
