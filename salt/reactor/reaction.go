package reactor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"clustermaster/salt/function"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// Job is a local reaction: a job for minions, sent without waiting for returns.
type Job struct {
	Tgt          any
	TgtType, Fun string
	Args         []any // keywords as the last map, marked __kwarg__
	Ret, JID     string
	Kwargs       value.Map // the SLS file's other keys: metadata, delimiter, ret_config, ...
}

// Call is a runner, wheel or caller reaction.
type Call struct {
	Fun    string
	Args   []any
	Kwargs value.Map
}

// errFormat is the error for an empty or wrong `args`.
var errFormat = errors.New("Incorrect argument format, check the Reactor System documentation for the correct format.") // Salt's text

// errNoFunction is the error for an unknown function of the master.
var errNoFunction = errors.New("function not available")

// call reads a runner, wheel or caller reaction.
func (r *Reactor) call(c chunk) (Call, error) {
	sig, ok := function.Signature{}, true
	if c.state != "caller" {
		sig, ok = r.deps.Signature(c.state, c.fun)
	}
	if !ok {
		return Call{}, errNoFunction
	}
	args, kwargs, err := r.arguments(c, sig)
	if err != nil {
		return Call{}, err
	}
	positional, err := iterate(args)
	return Call{c.fun, positional, kwargs}, err
}

// job reads a local reaction.
func (r *Reactor) job(c chunk) (Job, error) {
	j := Job{Fun: c.fun, TgtType: "glob", Ret: c.String("ret"), JID: c.String("jid")}
	tgt, ok := c.Get("tgt")
	if !ok {
		return Job{}, errors.New("local takes at least 2 arguments (1 given); add tgt")
	}
	j.Tgt = tgt
	if t, ok := c.Get("tgt_type"); ok {
		j.TgtType = value.Str(t)
	}
	args, kwargs, err := r.arguments(c, function.Signature{})
	if err != nil {
		return Job{}, err
	}
	if j.Args, err = iterate(args); err != nil {
		return Job{}, err
	}
	for i, a := range j.Args { // a jid is always text
		if digits, ok := value.Int(a); ok && len(digits) == 20 {
			j.Args[i] = digits
		}
	}
	if len(kwargs) > 0 {
		j.Args = append(j.Args, append(value.Map{{Key: "__kwarg__", Value: true}}, kwargs...))
	}
	for _, p := range c.Map {
		switch p.Key {
		case "state", "fun", "tgt", "tgt_type", "arg", "kwarg", "args", "ret", "jid", "name",
			"order", "__id__", "__sls__":
		default:
			j.Kwargs = append(j.Kwargs, p)
		}
	}
	return j, nil
}

// arguments reads the arguments of a function: `args`, or `arg` and `kwarg`, or for functions of
// the master, with this signature, the keys themselves.
func (r *Reactor) arguments(c chunk, sig function.Signature) (args any, kwargs value.Map,
	err error) {
	if given, ok := c.Get("args"); ok {
		for _, item := range []string{"arg", "kwarg"} {
			if v, ok := c.Get(item); ok {
				r.log.Warn(fmt.Sprintf("Reactor '%s' is ignoring '%s' param %s due to presence of 'args' param. Check the Reactor System documentation for the correct argument format.",
					c.id, item, value.Str(v)))
			}
		}
		if list, ok := given.([]any); ok && c.state == "caller" && !isDictList(list) {
			return list, nil, nil
		}
		m, ok := given.(value.Map)
		if !ok {
			if m = repack(given); len(m) == 0 {
				return nil, nil, errFormat
			}
		}
		return nil, m, nil
	}
	arg, hasArg := c.Get("arg")
	kwarg, hasKwarg := c.Get("kwarg")
	var called Call
	if (c.state == "runner" || c.state == "wheel") && !(hasArg && hasKwarg) {
		called.Args, called.Kwargs, err = sig.Format(c.Map,
			func(key string) bool { return slices.Contains(internal, key) })
		if err != nil {
			return nil, nil, err
		}
	}
	if args = any(called.Args); hasArg {
		args = arg
	}
	if kwargs = called.Kwargs; hasKwarg {
		m, ok := kwarg.(value.Map)
		if !ok && kwarg != nil {
			return nil, nil, fmt.Errorf("kwarg is %s; write a map", value.Repr(kwarg))
		}
		kwargs = m
	}
	return args, kwargs, nil
}

// internal are keys of low data that are not arguments.
var internal = []string{"__id__", "__sls__", "name", "order", "fun", "key", "state"}

// iterate lists the values of Python's *value.
func iterate(v any) ([]any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		return slices.Clone(v), nil
	case string:
		var out []any
		for _, c := range v {
			out = append(out, string(c))
		}
		return out, nil
	case value.Map:
		var out []any
		for _, p := range v {
			out = append(out, p.Key)
		}
		return out, nil
	}
	return nil, fmt.Errorf("arg is %s; write a list", value.Repr(v))
}

func isDictList(list []any) bool {
	return !slices.ContainsFunc(list, func(e any) bool {
		m, ok := e.(value.Map)
		return !ok ||
			len(m) != 1
	})
}

// repack joins a list of maps of one key into one map; nil if v is not such a list.
func repack(v any) value.Map {
	if text, ok := v.(string); ok {
		parsed, err := yaml11.Load([]byte(text))
		if err != nil {
			return nil
		}
		v = parsed
	}
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	var out value.Map
	for _, e := range list {
		switch e := e.(type) {
		case value.Map:
			if len(e) != 1 {
				return nil
			}
			out = put(out, e[0].Key, e[0].Value)
		case string, int64, bool, float64:
			out = put(out, e, nil)
		default:
			return nil
		}
	}
	return out
}

// put is Set for a key of any type.
func put(m value.Map, key, v any) value.Map {
	if name, ok := key.(string); ok {
		return m.Set(name, v)
	}
	return append(m, value.Pair{Key: key, Value: v})
}

// dispatch carries one reaction out, or queues it. It only logs errors.
func (r *Reactor) dispatch(ctx context.Context, c chunk) {
	var err error
	switch c.state {
	case "local":
		var j Job
		if j, err = r.job(c); err == nil {
			err = r.publish(ctx, j)
		}
	case "runner", "wheel", "caller":
		var call Call
		if call, err = r.call(c); err != nil {
			break
		}
		select {
		case r.queue <- task{c, call}:
			r.m.queued.Inc()
			return
		default:
			r.m.reaction(c.state, "dropped")
			r.log.Error(fmt.Sprintf("Reactor '%s' failed to execute %s '%s': TaskPool queue is full! Consider tuning reactor_worker_threads and/or reactor_worker_hwm", c.id, c.state, c.fun))
			return
		}
	default:
		err = fmt.Errorf("ReactWrap is missing a wrapper function for '%s'; there are local, runner, wheel and caller", c.state)
	}
	r.ended(c, err)
}

// ended counts a reaction, and logs its error.
func (r *Reactor) ended(c chunk, err error) {
	if err != nil {
		r.m.reaction(c.state, "failed")
		r.log.Error(fmt.Sprintf("Reactor '%s' failed to execute %s '%s'", c.id, c.state, c.fun),
			"sls", c.String("__sls__"), "err", err)
		return
	}
	r.m.reaction(c.state, "done")
}
