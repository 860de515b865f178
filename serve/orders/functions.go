package orders

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/salt/reactor"
	"clustermaster/salt/runner"
	"clustermaster/salt/schedule"
	"clustermaster/salt/statemodules"
	"clustermaster/serve/master"
	"clustermaster/serve/operator"
	"clustermaster/serve/origin"
	"clustermaster/value"
)

// Functions runs the runner and wheel functions of this master: for the commands' socket, for
// orders on port 4506, for templates, states and the reactor. Set Runners and Wheels before the
// first call.
type Functions struct {
	Runners, Wheels *runner.Runner

	// Life is the context of calls that go on after their caller has left.
	Life   context.Context // see above
	NewJID func() string
	User   string // the option user; for calls by templates and by this master itself
	// Answer gives a secret to the client of an order; see localbus.Server. Set it before the first
	// order.
	Answer func(client netip.AddrPort, asked time.Time, tag string, data value.Map)
}

var (
	_ operator.Runners = (*Functions)(nil)
	_ master.Runners   = (*Functions)(nil)
)

// Wait returns when the asynchronous calls have ended.
func (f *Functions) Wait() {
	f.Runners.Wait()
	f.Wheels.Wait()
}

// of returns the runner or the wheel functions.
func (f *Functions) of(wheel bool) *runner.Runner {
	if wheel {
		return f.Wheels
	}
	return f.Runners
}

// Run implements operator.Runners.
func (f *Functions) Run(ctx context.Context, r operator.RunRequest,
	out func(kind string, v any)) (operator.RunResult, error) {
	req := runner.Request{Fun: r.Fun, Args: r.Args, Kwargs: r.Kwargs, JID: r.JID, User: r.User}
	run := f.Runners
	if runner.OrchestrateWithJID(req.Fun) {
		if req.JID == "" {
			req.JID = f.NewJID()
		}
		if _, given := req.Kwargs.Get("orchestration_jid"); !given {
			req.Kwargs = append(slices.Clip(req.Kwargs),
				value.Pair{Key: "orchestration_jid", Value: req.JID})
		}
	}
	if fun, ok := strings.CutPrefix(r.Fun, "wheel."); ok {
		run, req.Fun = f.Wheels, fun
	}
	if r.Async {
		jid, err := run.Start(origin.Hand(f.Life, ctx), req)
		return operator.RunResult{JID: jid, Return: run.Tag(jid), Success: err == nil}, err
	}
	res := run.Run(ctx, req, out)
	return operator.RunResult{
		JID: res.JID, Return: res.Return, Success: res.Success, Retcode: res.Retcode,
		Outputter: res.Outputter, NotRun: res.NotRun,
	}, ctx.Err()
}

// StartRunner implements master.Runners.
func (f *Functions) StartRunner(ctx context.Context, o master.RunOrder) (jid, tag string,
	err error) {
	req := runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs, ByName: o.ByName, User: o.User}
	known, _ := f.Runners.Lookup(o.Fun)
	if known.Reveals {
		req.Reveal = func(tag string, data value.Map) { f.Answer(o.Client, o.At, tag, data) }
	}
	jid, ended, err := f.Runners.Begin(origin.Hand(f.Life, ctx), req)
	if err == nil && known.Reveals {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
	return jid, f.Runners.Tag(jid), err
}

// RunWheel implements master.Runners.
func (f *Functions) RunWheel(ctx context.Context, o master.RunOrder) master.Ran {
	res := f.Wheels.Run(ctx, runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs,
		ByName: o.ByName, User: o.User}, nil)
	return master.Ran{JID: res.JID, Tag: f.Wheels.Tag(res.JID), Return: res.Return,
		Success: res.Success, Refused: res.Refused}
}

// Docs implements operator.Runners.
func (f *Functions) Docs(prefix string) value.Map { return f.Runners.Docs(prefix) }

// ForTemplate runs a runner function for a template. A function that raises, or can't begin, is an
// error.
func (f *Functions) ForTemplate(ctx context.Context, fun string, args []any,
	kwargs value.Map) (v any, success bool, err error) {
	done := f.asMaster(ctx, runner.Request{Fun: fun, Args: args, Kwargs: kwargs, ForTemplate: true})
	if done.Raised || done.Refused != "" {
		return nil, false, failure(fun, done)
	}
	return done.Return, done.Success, nil
}

// ForMinion runs a runner function for a minion (peer_run). One that failed is an error beside its
// return.
func (f *Functions) ForMinion(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	done := f.asMaster(ctx, runner.Request{Fun: fun, Args: args, Kwargs: kwargs})
	if !done.Success {
		return done.Return, failure(fun, done)
	}
	return done.Return, nil
}

func (f *Functions) asMaster(ctx context.Context, req runner.Request) runner.Result {
	req.User = f.User
	done := f.Runners.Run(ctx, req, nil)
	if told, ok := done.Return.(runner.Told); ok {
		done.Return = told.Value
	}
	return done
}

func failure(fun string, done runner.Result) error {
	return fmt.Errorf("runner %s: %v", fun, done.Return)
}

// Signature returns the parameters of a runner function, or with client "wheel" of a wheel
// function.
func (f *Functions) Signature(client, fun string) (function.Signature, bool) {
	known, ok := f.of(client == "wheel").Lookup(fun)
	return known.Signature(), ok
}

// React runs a function as the user Reactor, and returns when it has ended.
func (f *Functions) React(ctx context.Context, client string, c reactor.Call) {
	ctx = origin.With(ctx, origin.Origin{
		User: reactor.User, From: "reactor", Order: client + "." + c.Fun, Automatic: true,
	})
	f.of(client == "wheel").Run(ctx, runner.Request{
		Fun: c.Fun, Args: c.Args, Kwargs: c.Kwargs, User: reactor.User, Low: true,
	}, nil)
}

// Scheduled runs an entry of the schedule.
func (f *Functions) Scheduled(ctx context.Context, jid, fun string, args []any,
	kwargs value.Map) schedule.Outcome {
	ctx = origin.With(ctx, origin.Origin{From: "schedule", Order: fun, Automatic: true})
	value, code, err := f.Runners.Quiet(ctx, "salt/scheduler/"+jid, jid, fun, args, kwargs)
	return schedule.Outcome{Return: value, Retcode: code, Err: err}
}

// ForStates provides the functions to states.
type ForStates struct{ *Functions }

var _ statemodules.Runners = ForStates{}

func (s ForStates) Takes(wheel bool, fun, param string) bool {
	return s.of(wheel).Takes(fun,
		param)
}

func (s ForStates) Check(o statemodules.Order) (statemodules.Order, error) {
	req, err := s.of(o.Wheel).Check(runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs,
		User: o.User})
	o.Args, o.Kwargs = req.Args, req.Kwargs
	return o, err
}

func (s ForStates) Run(ctx context.Context, o statemodules.Order) (statemodules.Outcome, error) {
	run := s.of(o.Wheel)
	if f, ok := run.Lookup(o.Fun); ok && f.Unbound && f.VarKwargs { // they see their caller
		o.Kwargs = append(slices.Clip(o.Kwargs), value.Pair{Key: "__pub_user", Value: o.User})
	}
	res := run.Run(ctx, runner.Request{Fun: o.Fun, Args: o.Args, Kwargs: o.Kwargs, User: o.User,
		Shown: true}, nil)
	return statemodules.Outcome{JID: res.JID, Return: res.Return, Success: res.Success}, ctx.Err()
}
