package hosted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/salt/modules"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/runner"
	"clustermaster/value"
)

// Orders carries out what q asks of this master; known is false if it does not know the question.
type Orders func(ctx context.Context, q pythonhost.Question) (v any, known bool, err error)

// NewHost makes the host of Python code. It answers that code's questions to this master with the
// functions in Answered from package modules, and with orders. opts are the master's options,
// including its id. It starts no process.
func NewHost(native *modules.Modules, o pythonhost.Options, opts value.Map, orders Orders,
	log *slog.Logger, reg prometheus.Registerer) *pythonhost.Host {
	o.Natives = map[string][]string{"module": slices.DeleteFunc(slices.Clone(Answered),
		func(fun string) bool { return !slices.Contains(native.Names(), fun) })}
	o.Answer = func(ctx context.Context, q pythonhost.Question) (any, error) {
		ctx = ahead(ctx)
		if q.What != "module" {
			v, known, err := orders(ctx, q)
			if !known && err == nil {
				err = fmt.Errorf("this master does not answer questions about %s", q.What)
			}
			return v, err
		}
		v, err := native.Call(ctx, modules.Minion{
			ID: q.Minion.ID, Grains: q.Minion.Grains, Pillar: q.Minion.Pillar,
			Saltenv: q.Minion.Saltenv, Pillarenv: q.Minion.Pillarenv, Opts: opts,
		}, q.Fun, q.Args, q.Kwargs)
		if errors.Is(err, modules.ErrUnknown) {
			return nil, fmt.Errorf("function %s can't be called on this master", q.Fun)
		}
		return v, err
	}
	return pythonhost.New(o, log, reg)
}

// Folders are the folders of a site's own modules, by the names of the options.
type Folders struct {
	ExtensionModules string
	ModuleDirs       []string
	Own              map[string][]string // of a single kind, such as "runners"
}

// Site returns the site's own modules of a kind.
func (f Folders) Site(kind string) *pythonhost.Site {
	return pythonhost.NewSite(f.ExtensionModules, f.ModuleDirs, f.Own[kind], kind)
}

var _ runner.PythonHost = (*Functions)(nil)

// Status implements runner.PythonHost.
func (f *Functions) Status() runner.PythonStatus {
	s := f.d.Host.Status()
	out := runner.PythonStatus{Python: s.Python, Salt: s.Salt, PID: s.PID, Children: s.Started,
		Modules: f.modules.Names(), Runners: f.Runners.Site.Names(),
		Wheels: f.Wheels.Site.Names(), Engines: value.Map{}}
	if f.d.Engines != nil {
		out.Engines = f.d.Engines()
	}
	var err error
	if out.Interpreter, err = f.d.Find(); err != nil {
		out.Problem = err.Error()
	}
	for _, c := range s.Calls {
		out.Calls = append(out.Calls, runner.PythonCall(c))
	}
	return out
}

// Runner implements runner.PythonHost. The runner may write modules of the site.
func (f *Functions) Runner(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	defer f.changed()
	return f.run(ctx, fun, args, kwargs, nil)
}

// changed makes the lists of the site's modules be read anew.
func (f *Functions) changed() {
	f.modules.Forget()
	f.Runners.Forget()
	f.Wheels.Forget()
	if f.forgetStates != nil {
		f.forgetStates()
	}
	if f.d.Changed != nil {
		f.d.Changed()
	}
}

// run runs one of Salt's own runner functions, with other values for some options.
func (f *Functions) run(ctx context.Context, fun string, args []any, kwargs, opts value.Map) (any,
	error) {
	if err := f.available(); err != nil {
		return nil, fmt.Errorf("%s needs Salt: %w", fun, err)
	}
	session := f.d.Host.Session(pythonhost.Minion{Opts: opts})
	defer session.Close()
	ended, err := session.Call(ctx, pythonhost.Call{Kind: pythonhost.Runner, Fun: fun, Args: args,
		Kwargs: kwargs})
	m, _ := ended.(value.Map)
	ret, _ := m.Get("return")
	return ret, err
}
