package orders

import (
	"context"
	"fmt"
	"slices"

	"clustermaster/salt/pythonhost"
	"clustermaster/salt/runner"
	"clustermaster/salt/saltpython"
	"clustermaster/value"
)

// Database gives the runner family jobs access to a returner's jobs.
type Database struct {
	Host     *pythonhost.Host
	Returner string
	// Ring, if not nil, is asked first for one job, and its jobs are listed too: the returner may
	// not have them yet.
	Ring runner.JobReader
}

// Databases gives access to the jobs of returners and of the ring.
type Databases struct {
	Host        *pythonhost.Host
	Interpreter string // python_host
	Ring        runner.JobReader
}

// Reader returns the jobs of a returner and of the ring; with "" of the ring alone.
func (d Databases) Reader(returner string) runner.JobReader {
	if returner == "" {
		return d.Ring
	}
	return Database{Host: d.Host, Returner: returner, Ring: d.Ring}
}

// Other returns the jobs of a returner that ext_source names.
func (d Databases) Other(returner string) (runner.JobReader, error) {
	if _, err := saltpython.Find(d.Interpreter); err != nil {
		return nil, fmt.Errorf("ext_source %s is a returner in Python: %w", returner, err)
	}
	return Database{Host: d.Host, Returner: returner}, nil
}

func (d Database) call(ctx context.Context, fun string, args ...any) (value.Map, error) {
	session := d.Host.Session(pythonhost.Minion{})
	defer session.Close()
	v, err := session.Call(ctx, pythonhost.Call{Kind: pythonhost.Returner,
		Fun: d.Returner + "." + fun, Args: args})
	if err != nil {
		return nil, fmt.Errorf("returner %s: %w", d.Returner, err)
	}
	if v == nil {
		return nil, nil
	}
	m, ok := v.(value.Map)
	if !ok {
		return nil, fmt.Errorf("returner %s: %s returned %T, not a map", d.Returner, fun, v)
	}
	return m, nil
}

// Job implements runner.JobReader.
func (d Database) Job(ctx context.Context, jid string) (runner.JobRecord, bool, error) {
	if d.Ring != nil {
		if rec, found, err := d.Ring.Job(ctx, jid); found && err == nil {
			return rec, true, nil
		}
	}
	load, err := d.call(ctx, "get_load", jid)
	rec := runner.JobRecord{JID: jid, Load: load}
	for _, key := range []string{"Minions", "minions"} {
		v, _ := load.Get(key)
		if list, _ := v.([]any); len(list) > 0 && rec.Minions == nil {
			rec.Minions = plain(list)
			slices.Sort(rec.Minions)
		}
	}
	return rec, len(load) > 0, err
}

// Returns implements runner.JobReader.
func (d Database) Returns(ctx context.Context, jid string) (map[string]runner.JobReturn, error) {
	if d.Ring != nil {
		if got, err := d.Ring.Returns(ctx, jid); len(got) > 0 && err == nil {
			return got, nil
		}
	}
	m, err := d.call(ctx, "get_jid", jid)
	out := make(map[string]runner.JobReturn, len(m))
	for _, p := range m {
		id, _ := p.Key.(string)
		one, ok := p.Value.(value.Map)
		if !ok {
			one = value.Map{{Key: "return", Value: p.Value}}
		}
		r := runner.JobReturn{Out: one.String("out")}
		r.Return, _ = one.Get("return")
		r.Retcode, _ = one.Get("retcode")
		r.Success, _ = one.Get("success")
		out[id] = r
	}
	return out, err
}

// Returned implements runner.JobReader.
func (d Database) Returned(ctx context.Context, jid string) ([]string, error) {
	returns, err := d.Returns(ctx, jid)
	out := make([]string, 0, len(returns))
	for id := range returns {
		out = append(out, id)
	}
	slices.Sort(out)
	return out, err
}

// EachLoad implements runner.JobReader.
func (d Database) EachLoad(ctx context.Context,
	fn func(jid string, load value.Raw) error) (incomplete string, err error) {
	known := map[string]bool{}
	if d.Ring != nil {
		if incomplete, err = d.Ring.EachLoad(ctx, func(jid string, load value.Raw) error {
			known[jid] = true
			return fn(jid, load)
		}); err != nil {
			return "", err
		}
	}
	m, err := d.call(ctx, "get_jids")
	for _, p := range m {
		shown, _ := p.Value.(value.Map)
		jid := value.Str(p.Key)
		if known[jid] {
			continue
		}
		load, err := value.Pack(loadOf(shown))
		if err == nil {
			err = fn(jid, load)
		}
		if err != nil {
			return "", err
		}
	}
	return incomplete, err
}

// loadOf returns the load of a job that a returner describes in the form in which Salt shows jobs.
func loadOf(shown value.Map) value.Map {
	var load value.Map
	for _, f := range [][2]string{{"Function", "fun"}, {"Arguments", "arg"}, {"Target", "tgt"},
		{"Target-type", "tgt_type"}, {"User", "user"}, {"Metadata", "metadata"}} {
		if v, ok := shown.Get(f[0]); ok {
			load = append(load, value.Pair{Key: f[1], Value: v})
		}
	}
	return load
}
