package runner

import (
	"context"
	"fmt"

	"clustermaster/value"
)

// Quiet makes a call as Salt's schedule does: without the events of a call and without keeping it
// as a job. Progress is fired below tag. The value is what is told of a failed call, too.
func (r *Runner) Quiet(ctx context.Context, tag, jid, fun string, args []any,
	kwargs value.Map) (val any, retcode int, err error) {
	f, ok := r.reg.Lookup(fun)
	if !ok {
		text := fmt.Sprintf("'%s' is not available.", fun)
		return text, 0, fmt.Errorf("%s; salt-run -d lists the functions", text)
	}
	req := f.public(Request{Fun: fun, Args: args, Kwargs: kwargs})
	now := value.Pair{Key: "_stamp", Value: r.deps.Stamp(r.deps.Now())}
	r.enter(jid, value.Map{{Key: "fun", Value: r.client.Name + "." + fun}, {Key: "jid", Value: jid},
		{Key: "user", Value: "UNKNOWN"}, {Key: "fun_args", Value: funArgs(req)}, now}, true)
	defer r.leave(jid)
	c := &Call{
		JID: jid, User: "UNKNOWN", print: func(string) {}, warn: func(string) {},
		show: func(string, string) {},
		progress: func(data value.Map) {
			if r.deps.Events != nil {
				r.deps.Events.Fire(tag+"/progress", append(value.Map(nil), data...))
			}
		},
	}
	if c.bound, err = f.Signature().Bind(args, kwargs); err == nil {
		val, err = r.guarded(ctx, f, c)
	}
	if err != nil {
		return "Unhandled exception running " + fun, 0, err
	}
	if told, ok := val.(Told); ok {
		val = told.Kept
	}
	retcode, _ = envelope(val)
	return val, retcode, nil
}
