package runner

import (
	"context"
	"fmt"

	"clustermaster/value"
)

// Quiet makes a call as Salt's schedule does: without the events of a call and without storing it
// as a job. Progress events fire below tag. A failed call, too, returns a value: its error text.
func (r *Runner) Quiet(ctx context.Context, tag, jid, fun string, args []any,
	kwargs value.Map) (val any, retcode int, err error) {
	f, err := r.find(fun)
	if err != nil {
		return err.Error(), 0, fmt.Errorf("%w; salt-run -d lists the functions", err)
	}
	req := f.public(Request{Fun: fun, Args: args, Kwargs: kwargs})
	now := value.Pair{Key: "_stamp", Value: r.deps.Stamp(r.deps.Now())}
	r.enter(jid, value.Map{{Key: "fun", Value: r.client.Name + "." + fun}, {Key: "jid", Value: jid},
		{Key: "user", Value: "UNKNOWN"}, {Key: "fun_args", Value: funArgs(req)}, now}, true)
	defer r.leave(jid)
	val, err = r.quietly(ctx, f, tag, jid, args, kwargs, false)
	if err != nil {
		return "Unhandled exception running " + fun, 0, err
	}
	switch done := val.(type) {
	case Told:
		val = done.Kept
	case Ended:
		return done.Return, done.Retcode, nil
	}
	retcode, _ = envelope(val)
	return val, retcode, nil
}

// quietly calls a function without the events of a call.
func (r *Runner) quietly(ctx context.Context, f Function, tag, jid string, args []any,
	kwargs value.Map, forTemplate bool) (any, error) {
	c := &Call{
		JID: jid, User: "UNKNOWN", Tag: tag, args: args, kwargs: kwargs, forTemplate: forTemplate,
		print: func(string) {}, warn: func(string) {}, show: func(string, string) {},
		event: func(suffix string, data value.Map) {
			if r.deps.Events != nil {
				r.deps.Events.Fire(tag+"/"+suffix, append(value.Map(nil), data...))
			}
		},
	}
	var err error
	if !f.Unbound {
		if c.bound, err = f.Signature().Bind(args, kwargs); err != nil {
			return nil, err
		}
	}
	return r.guarded(ctx, f, c)
}

// Native calls a native function on behalf of another one, without events. It returns the
// function's return alone.
func (r *Runner) Native(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	f, ok := r.reg.Lookup(fun)
	if !ok {
		return nil, fmt.Errorf("'%s' is not available.", fun) // Salt's text
	}
	jid := r.deps.NewJID()
	val, err := r.quietly(ctx, f, r.Tag(jid), jid, args, kwargs, true)
	switch done := val.(type) {
	case Told:
		val = done.Value
	case Ended:
		val = done.Return
	}
	return val, err
}

// NativeNames lists the native functions, sorted. The slice is shared: read only.
func (r *Runner) NativeNames() []string { return r.reg.Names() }
