package hosted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"clustermaster/salt/function"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/runner"
	"clustermaster/value"
)

// Runners are the runner functions, or the wheel functions, of a site and of Salt. They are safe
// for concurrent use.
type Runners struct {
	Host      *pythonhost.Host
	Kind      pythonhost.Kind  // Runner or Wheel
	Available func() error     // why there is no interpreter with Salt
	Site      *pythonhost.Site // the site's own
	Log       *slog.Logger
	// Limits are the time limits of some of Salt's functions, by name.
	Limits map[string]Limit

	mu    sync.Mutex // guards known
	known map[string]described
}

// Limit is a time limit and the master's option that sets it.
type Limit struct {
	Time   time.Duration
	Option string
}

// described is a function's description at a modification time of its file.
type described struct {
	f       runner.Function
	file    string
	changed time.Time
	size    int64
}

var _ runner.Others = (*Runners)(nil)

// maxDescribed bounds the descriptions in memory.
const maxDescribed = 2000

// describeTimeout bounds the request for a function's description.
const describeTimeout = time.Minute

// Overrides implements runner.Others.
func (r *Runners) Overrides(fun string) bool {
	module, _, _ := strings.Cut(fun, ".")
	return r.Site.Has(module)
}

// unknown is the error for a function that does not exist; its text is Salt's.
type unknown struct{ text string }

func (u unknown) Error() string        { return u.text }
func (u unknown) Is(target error) bool { return target == runner.ErrUnknown }

// inPython are the runner modules of Salt 3008 without native functions.
var inPython = []string{"net", "network", "queue", "ssh", "survey", "winrepo"}

// Lookup implements runner.Others.
func (r *Runners) Lookup(fun string) (runner.Function, error) {
	missing := unknown{fmt.Sprintf("'%s' is not available.", fun)}
	if strings.Count(fun, ".") != 1 {
		return runner.Function{}, missing
	}
	if err := r.Available(); err != nil {
		if r.Overrides(fun) {
			return runner.Function{}, fmt.Errorf("its module needs Salt: %w", err)
		}
		if module, _, _ := strings.Cut(fun, "."); r.Kind == pythonhost.Runner && slices.Contains(inPython, module) {
			missing.text = fmt.Sprintf("'%s' is not available: %s", fun, err)
		}
		return runner.Function{}, missing
	}
	if f, ok := r.kept(fun); ok {
		return f, nil
	}
	all, err := r.describe(fun)
	switch {
	case errors.Is(err, pythonhost.ErrUnknown):
		return runner.Function{}, unknown{err.Error()}
	case err != nil:
		return runner.Function{}, err
	}
	d, ok := all[fun]
	if !ok {
		return runner.Function{}, missing
	}
	f := r.function(fun, d)
	r.keep(fun, d.File, f)
	return f, nil
}

func (r *Runners) describe(fun string) (map[string]pythonhost.Description, error) {
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	session := r.Host.Job()
	defer session.Close()
	return session.Describe(ctx, r.Kind, fun)
}

// kept returns a stored description that is still valid.
func (r *Runners) kept(fun string) (runner.Function, bool) {
	r.mu.Lock()
	d, ok := r.known[fun]
	r.mu.Unlock()
	if !ok {
		return d.f, false
	}
	info, err := os.Stat(d.file)
	return d.f, err == nil && info.ModTime().Equal(d.changed) && info.Size() == d.size
}

func (r *Runners) keep(fun, file string, f runner.Function) {
	info, err := os.Stat(file)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxDescribed {
		r.known = map[string]described{}
	}
	r.known[fun] = described{f, file, info.ModTime(), info.Size()}
}

// Forget drops all descriptions, for example after modules were added or removed.
func (r *Runners) Forget() {
	r.Site.Forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = nil
}

// All implements runner.Others.
func (r *Runners) All() []runner.Function {
	if r.Available() != nil {
		return nil
	}
	all, err := r.describe("")
	if err != nil {
		r.Log.Error("functions of Salt and of the site can't be listed", "err", err)
		return nil
	}
	out := make([]runner.Function, 0, len(all))
	for fun, d := range all {
		out = append(out, r.function(fun, d))
	}
	slices.SortFunc(out, func(a, b runner.Function) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (r *Runners) function(fun string, d pythonhost.Description) runner.Function {
	f := runner.Function{Name: fun, Doc: d.Doc, Usage: d.Usage, VarArgs: d.VarArgs,
		VarKwargs: d.VarKwargs, Unbound: true,
		Run: func(ctx context.Context, c *runner.Call) (any, error) { return r.run(ctx, fun, c) }}
	for _, p := range d.Params {
		f.Params = append(f.Params, function.Param{Name: p.Name, Required: p.Required,
			Default: p.Default})
	}
	return f
}

// raised is an exception of a runner function: its text is the traceback, as Salt has it.
type raised struct{ err *pythonhost.Error }

func (r raised) Error() string {
	if r.err.Shown == "" {
		return r.err.Error()
	}
	return r.err.Shown
}

func (r raised) Unwrap() error { return r.err }

func (r *Runners) run(ctx context.Context, fun string, c *runner.Call) (any, error) {
	session := r.Host.Job()
	defer session.Close()
	args, kwargs := c.Raw()
	limit := r.Limits[fun]
	if r.Overrides(fun) {
		limit = Limit{}
	}
	v, err := session.Call(ctx, pythonhost.Call{
		Kind: r.Kind, Fun: fun, Args: args, Kwargs: kwargs, JID: c.JID, User: c.User, Tag: c.Tag,
		Limit: limit.Time, LimitOption: limit.Option,
		Logged: func(level int, text string) {
			if level >= levelError { // as Salt's salt-run shows it, in whose process the function runs
				c.Error(text)
			}
		},
		Output: func(kind string, v any) {
			switch v := v.(type) {
			case string:
				c.Write(v, kind == "warning")
			case value.Map:
				data, _ := v.Get("data")
				m, ok := data.(value.Map)
				if suffix := v.String("suffix"); ok && suffix != "" {
					c.Event(suffix, m)
				}
			}
		},
	})
	var failed *pythonhost.Error
	if errors.As(err, &failed) {
		if failed.Raised("NotImplemented") { // what a driver lacks: Salt shows no traceback
			return runner.Ended{Return: failed.Text, Retcode: 1}, nil
		}
		return nil, raised{failed}
	}
	if err != nil {
		return nil, err
	}
	m, _ := v.(value.Map)
	ret, _ := m.Get("return")
	success, _ := m.Get("success")
	code, _ := m.Get("retcode")
	n, _ := code.(int64)
	return runner.Ended{Return: ret, Success: success == true, Retcode: int(n)}, nil
}
