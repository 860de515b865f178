package runner

import (
	"context"
	"fmt"

	"clustermaster/wire"
)

// Quiet makes a call as Salt's schedule does: without the events of a call and without keeping it as a job. Progress is fired below tag. The value is
// what is told of a failed call, too.
func (r *Runner) Quiet(ctx context.Context, tag, jid, fun string, args []any, kwargs wire.Map) (value any, retcode int, err error) {
	f, ok := r.reg.Lookup(fun)
	if !ok {
		text := fmt.Sprintf("'%s' is not available.", fun)
		return text, 0, fmt.Errorf("%s; salt-run -d lists the functions", text)
	}
	req := f.public(Request{Fun: fun, Args: args, Kwargs: kwargs})
	now := wire.Pair{Key: "_stamp", Value: r.deps.Stamp(r.deps.Now())}
	r.enter(jid, wire.Map{{Key: "fun", Value: r.client.Name + "." + fun}, {Key: "jid", Value: jid}, {Key: "user", Value: "UNKNOWN"}, {Key: "fun_args", Value: funArgs(req)}, now}, true)
	defer r.leave(jid)
	c := &Call{
		JID: jid, User: "UNKNOWN", print: func(string) {}, warn: func(string) {}, show: func(string, string) {},
		progress: func(data wire.Map) {
			if r.deps.Events != nil {
				r.deps.Events.Fire(tag+"/progress", append(wire.Map(nil), data...))
			}
		},
	}
	if c.bound, err = bind(f, args, kwargs); err == nil {
		value, err = r.guarded(ctx, f, c)
	}
	if err != nil {
		return "Unhandled exception running " + fun, 0, err
	}
	if told, ok := value.(Told); ok {
		value = told.Kept
	}
	retcode, _ = envelope(value)
	return value, retcode, nil
}
