package simminion

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"clustermaster/value"
)

// Call is one call of an execution function.
type Call struct {
	Fun, JID string
	Args     []any     // positional
	Kwargs   value.Map // keyword arguments, without the mark __kwarg__
}

// Func is an execution function. An error becomes an ERROR text with retcode 1.
type Func func(ctx context.Context, c Call) (any, error)

type outcome struct {
	value, retcode, success any
	out                     string
}

// callFunction splits args into positional and keyword ones and calls the function.
func (m *Minion) callFunction(ctx context.Context, c Call, args []any) outcome {
	for _, a := range args {
		if kw, ok := a.(value.Map); ok {
			if mark, _ := kw.Get("__kwarg__"); mark == true {
				c.Kwargs = append(c.Kwargs, kw.Without("__kwarg__")...)
				continue
			}
		}
		c.Args = append(c.Args, a)
	}
	f := m.cfg.Functions[c.Fun]
	if f == nil {
		f = m.builtin(c.Fun)
	}
	if f == nil {
		return outcome{value: "'" + c.Fun + "' is not available.", retcode: 1, success: false,
			out: "nested"}
	}
	val, err := f(ctx, c)
	if err != nil {
		return outcome{value: "ERROR: " + err.Error(), retcode: 1, success: false, out: "nested"}
	}
	return outcome{value: val, retcode: 0, success: true}
}

func (m *Minion) builtin(fun string) Func {
	switch fun {
	case "test.ping":
		return func(context.Context, Call) (any, error) { return true, nil }
	case "test.echo":
		return func(_ context.Context, c Call) (any, error) { return c.argument(0, "text") }
	case "test.arg":
		return func(_ context.Context, c Call) (any, error) {
			args := c.Args
			if args == nil {
				args = []any{}
			}
			return value.Map{{Key: "args", Value: args},
				{Key: "kwargs", Value: append(value.Map{}, c.Kwargs...)}}, nil
		}
	case "test.sleep":
		return sleep
	case "test.version":
		return func(context.Context, Call) (any, error) { return m.cfg.Release, nil }
	case "grains.items":
		return func(context.Context, Call) (any, error) { return m.grains(), nil }
	case "pillar.items":
		return func(context.Context, Call) (any, error) {
			if p := m.Pillar(); p != nil {
				return p, nil
			}
			return value.Map{}, nil
		}
	case "saltutil.find_job":
		return func(_ context.Context, c Call) (any, error) {
			jid, err := c.argument(0, "jid")
			if err != nil {
				return nil, err
			}
			return m.findJob(fmt.Sprint(jid)), nil
		}
	case "saltutil.running", "saltutil.is_running":
		return func(_ context.Context, c Call) (any, error) { return m.runningJobs(c.JID), nil }
	}
	return nil
}

func (c Call) argument(i int, name string) (any, error) {
	if i < len(c.Args) {
		return c.Args[i], nil
	}
	if v, ok := c.Kwargs.Get(name); ok {
		return v, nil
	}
	return nil, fmt.Errorf("%s: argument %s is missing", c.Fun, name)
}

func sleep(ctx context.Context, c Call) (any, error) {
	v, err := c.argument(0, "length")
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	if err != nil || seconds < 0 {
		return nil, fmt.Errorf("test.sleep: %v is not a number of seconds", v)
	}
	return true, pause(ctx, time.Duration(seconds*float64(time.Second)))
}

// jobRecord is the record of a job for saltutil.running.
func jobRecord(jid string, load value.Map) value.Map {
	record := value.Map{}
	for _, key := range []string{"fun", "arg", "tgt", "tgt_type", "ret", "user"} {
		if v, ok := load.Get(key); ok {
			record = append(record, value.Pair{Key: key, Value: v})
		}
	}
	return append(record, value.Pair{Key: "jid", Value: jid}, value.Pair{Key: "pid", Value: 4242})
}

func (m *Minion) findJob(jid string) value.Map {
	m.mu.Lock()
	defer m.mu.Unlock()
	if load, ok := m.running[jid]; ok {
		return jobRecord(jid, load)
	}
	return value.Map{}
}

func (m *Minion) runningJobs(except string) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	jids := make([]string, 0, len(m.running))
	for jid := range m.running {
		if jid != except {
			jids = append(jids, jid)
		}
	}
	slices.Sort(jids)
	jobs := make([]any, 0, len(jids))
	for _, jid := range jids {
		jobs = append(jobs, jobRecord(jid, m.running[jid]))
	}
	return jobs
}

// grains are only those that targets and pillar tops commonly use.
func (m *Minion) grains() value.Map {
	g := value.Map{{Key: "id", Value: m.cfg.ID}, {Key: "host", Value: m.cfg.ID},
		{Key: "fqdn", Value: m.cfg.ID},
		{Key: "nodename", Value: m.cfg.ID}, {Key: "kernel", Value: "Linux"},
		{Key: "os", Value: "Simulated"},
		{Key: "os_family", Value: "Debian"}, {Key: "osarch", Value: "amd64"},
		{Key: "cpuarch", Value: "x86_64"},
		{Key: "num_cpus", Value: 1}, {Key: "mem_total", Value: 512},
		{Key: "ipv4", Value: []any{"127.0.0.1"}},
		{Key: "saltversion", Value: m.cfg.Release},
		{Key: "pythonversion", Value: []any{3, 11, 0, "final", 0}}}
	for _, p := range m.cfg.Grains {
		if key, ok := p.Key.(string); ok {
			g = g.Set(key, p.Value)
		}
	}
	return g
}
