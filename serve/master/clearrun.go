package master

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"clustermaster/serve/acl"
	"clustermaster/serve/origin"
	"clustermaster/value"
	"clustermaster/wire"
)

// RunOrder asks for one call of a runner or wheel function.
type RunOrder struct {
	Fun    string // without "wheel."
	Args   []any
	Kwargs value.Map
	// ByName says that Kwargs holds the parameters by name, among keys that are not for the
	// function.
	ByName bool
	User   string
	Client netip.AddrPort // the client's end of the connection by which the order came
	At     time.Time      // when it came

	eauth string // the back end that knows User, or ""
}

// origin returns what the audit trail records of an order received as o.
func (r RunOrder) origin(o *clearOrder, fun string) origin.Origin {
	return origin.Origin{User: r.User, Eauth: r.eauth, From: o.source(), Order: fun}
}

// Ran is the outcome of a wheel function.
type Ran struct {
	JID, Tag string
	Return   any
	Success  bool
	Refused  string // why it was not called: an unknown function, or an unknown parameter
}

// clearRunner implements runner: it starts a function on this master, which goes on after the
// reply.
func (m *Master) clearRunner(ctx context.Context, o *clearOrder) (any, *wire.Refusal) {
	kwarg, ok := optionalMap(o.load, "kwarg")
	if !ok {
		return nil, malformed()
	}
	order := RunOrder{Kwargs: kwarg, ByName: true}
	if args, kwargs, both := argAndKwarg(kwarg); both {
		order = RunOrder{Args: args, Kwargs: kwargs}
	}
	reply, leave, refusal := m.mayRun(ctx, o, &order, (*acl.Rights).AllowRunner)
	if reply != nil || refusal != nil {
		return reply, refusal
	}
	defer leave()
	jid, tag, err := m.deps.Runners.StartRunner(origin.With(ctx, order.origin(o, order.Fun)), order)
	if err != nil {
		m.refuseOrder(o, "clear_busy", order.User, order.Fun)
		return errorMap("SaltClientError", err.Error()), nil
	}
	m.log.Info("runner function called for a user", "user", order.User, "fun", order.Fun, "jid",
		jid, "addr", o.remote)
	return value.Map{{Key: "tag", Value: tag}, {Key: "jid", Value: jid}}, nil
}

// clearWheel implements wheel: the reply waits for the function.
func (m *Master) clearWheel(ctx context.Context, o *clearOrder) (any, *wire.Refusal) {
	order := RunOrder{Kwargs: o.load.Without("fun", "user", "key", "username", "password", "token"),
		ByName: true}
	if args, kwargs, both := argAndKwarg(o.load); both {
		order = RunOrder{Args: args, Kwargs: kwargs}
	}
	reply, leave, refusal := m.mayRun(ctx, o, &order, (*acl.Rights).AllowWheel)
	if reply != nil || refusal != nil {
		return reply, refusal
	}
	defer leave()
	m.log.Info("wheel function called for a user", "user", order.User, "fun", order.Fun, "addr",
		o.remote)
	ran := m.deps.Runners.RunWheel(origin.With(ctx, order.origin(o, "wheel."+order.Fun)), order)
	if ran.Refused != "" {
		ran.Return = "Exception occurred in wheel " + order.Fun + ": CommandExecutionError: " +
			ran.Refused
	}
	return value.Map{{Key: "tag", Value: ran.Tag}, {Key: "data", Value: value.Map{
		{Key: "fun", Value: "wheel." + order.Fun}, {Key: "jid", Value: ran.JID},
		{Key: "tag", Value: ran.Tag}, {Key: "user", Value: order.User},
		{Key: "return", Value: ran.Return}, {Key: "success", Value: ran.Success},
	}}}, nil
}

// argAndKwarg returns the arguments in the newer form of low data. Both is false if the data is in
// another form.
func argAndKwarg(low value.Map) (args []any, kwargs value.Map, both bool) {
	arg, hasArg := low.Get("arg")
	kwarg, hasKwarg := low.Get("kwarg")
	if !hasArg || !hasKwarg {
		return nil, nil, false
	}
	args, _ = arg.([]any)
	kwargs, _ = kwarg.(value.Map)
	return args, kwargs, true
}

// allows asks acl about runners or about wheels.
type allows func(r *acl.Rights, fun string, args []any, kwargs value.Map) (bool, error)

// mayRun fills in function and user of an order, or answers it. A user of publisher_acl may run
// nothing here, because that option is about minions. Salt's master does not check the rights of
// users with a key.
func (m *Master) mayRun(ctx context.Context, o *clearOrder, order *RunOrder,
	allow allows) (reply any, leave func(), refusal *wire.Refusal) {
	fun, _ := o.load.Get("fun")
	name, isText := fun.(string)
	if !isText || len(name) > maxFunction || m.deps.Runners == nil {
		return nil, nil, malformed()
	}
	who, err := m.identify(ctx, o, o.load, nil)
	if err != nil {
		m.refuseOrder(o, reasonOf(who.kind, err), o.load.String("user"), fun)
		if errors.Is(err, acl.ErrBlacklisted) {
			return who.kind.unauthorized(who.user), nil, nil
		}
		return who.kind.refusal(o.load), nil, nil
	}
	order.Fun, order.User, order.eauth, order.Client = name, who.user, who.eauth, o.remote
	order.At = o.at
	may := who.rights == nil
	switch {
	case who.kind != kindUser:
		var args []any
		var kwargs value.Map
		if !order.ByName { // conditions on arguments need the form that separates them
			args, kwargs = order.Args, order.Kwargs
		}
		if may, err = allow(who.rights, name, args, kwargs); err != nil {
			return errorMap("SaltInvocationError", err.Error()), nil, nil
		}
	case strings.HasPrefix(who.user, sudoPrefix):
		order.User = m.opts.MasterUser
	}
	if !may {
		m.refuseOrder(o, "clear_rights", who.user, fun)
		return who.kind.unauthorized(who.user), nil, nil
	}
	leave, ok := m.orders.enter(who.user)
	if !ok {
		m.refuseOrder(o, "clear_busy", who.user, fun)
		return tooManyOrders, nil, nil
	}
	m.accepted(o, who.kind)
	return nil, leave, nil
}
