package master

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"clustermaster/serve/acl"
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// clearPublish implements publish: a user's job, as requested by Salt's LocalClient.
func (m *Master) clearPublish(ctx context.Context, o *clearOrder) (any, *wire.Refusal) {
	user, given := o.load.Get("user")
	claimed, ok := user.(string)
	funs := functionsOf(o.load)
	kwargs, okKwargs := optionalMap(o.load, "kwargs")
	if !given || !ok || len(claimed) > maxClaimed || !okKwargs || !sensible(funs) ||
		!has(o.load, "tgt") {
		return nil, malformed()
	}
	fun, _ := o.load.Get("fun")
	if m.deps.ACL.Blocked(claimed, funs) { // before the credentials, as in Salt
		m.refuseOrder(o, "clear_blacklist", claimed, fun)
		return notAuthorized, nil
	}
	who, err := m.identify(ctx, o, kwargs, funs)
	if err != nil {
		reply := notAuthenticated
		if errors.Is(err, acl.ErrBlacklisted) {
			reply = notAuthorized
		} else if has(o.load, "jid") {
			if m.strangers.take(m.steady()) {
				m.tellRefused(o.load, o.load.String("jid"), reply)
			} else {
				m.metrics.orders.WithLabelValues(o.cmd, "untold").Inc()
			}
		}
		m.refuseOrder(o, reasonOf(who.kind, err), claimed, fun)
		return reply, nil
	}
	r, ok := publishRequest(o.load, kwargs)
	if !ok {
		return nil, malformed()
	}
	r.User, r.Rights = who.user, who.rights
	if v, given := kwargs.Get("auth_list"); given {
		// from a syndic that runs as the master's user
		if list, _ := v.([]any); who.super && len(list) > 0 {
			r.Rights = acl.FromList(list)
		}
		r.Kwargs = kwargs.Without("auth_list")
	}
	if who.kind == kindToken { // the job names its user, as jobs of the commands do
		r.Kwargs = acl.Confirmed(r.Kwargs, who.user, who.eauth)
	}
	others, err := m.othersJob(ctx, who, r.JID)
	switch {
	case err != nil:
		m.log.Error("order not carried out", "user", who.user, "fun", fun, "addr", o.remote,
			"err", err)
		return nil, wire.Failed("clear_publish")
	case others:
		m.refuseOrder(o, "clear_jid", who.user, fun)
		return notAuthorized, nil
	}
	leave, ok := m.orders.enter(who.user)
	if !ok {
		m.refuseOrder(o, "clear_busy", who.user, fun)
		return tooManyOrders, nil
	}
	defer leave()
	done, err := m.Publish(ctx, r)
	switch {
	case err != nil:
		m.log.Error("order not carried out", "user", who.user, "fun", fun, "addr", o.remote,
			"err", err)
		return nil, wire.Failed("clear_publish")
	case done.Error == acl.NotAuthorized:
		m.refuseOrder(o, "clear_rights", who.user, fun)
		return notAuthorized, nil
	case done.Error == noJID:
		return value.Map{{Key: "error", Value: done.Error}}, nil
	case done.Error != "":
		return cleared(value.Map{{Key: "jid", Value: nil}, {Key: "minions", Value: []any{}},
			{Key: "error", Value: done.Error}}), nil
	}
	m.accepted(o, who.kind)
	m.log.Info("job published for a user", "user", who.user, "fun", fun, "jid", done.JID, "addr",
		o.remote)
	return cleared(value.Map{{Key: "jid", Value: done.JID},
		{Key: "minions", Value: textual(done.Minions)},
		{Key: "missing", Value: textual(done.Missing)}}), nil
}

// othersJob reports whether a job id belongs to another user's job: a caller that used it would own
// that job's returns. It allows root and the master's user.
func (m *Master) othersJob(ctx context.Context, who orderer, jid string) (bool, error) {
	if who.super || !validJID(jid) {
		return false, nil
	}
	owner, found, err := m.deps.Jobs.Owner(ctx, jid)
	return found && owner != jobcache.Owner{User: who.user, Eauth: who.eauth}, err
}

// cleared returns the envelope of publish's replies.
func cleared(load value.Map) value.Map {
	return value.Map{{Key: "enc", Value: "clear"}, {Key: "load", Value: load}}
}

// publishRequest reads a job. It returns false if something is missing or has a type that no client
// sends.
func publishRequest(load, kwargs value.Map) (PublishRequest, bool) {
	r := PublishRequest{Kwargs: kwargs, Load: load}
	var ok bool
	if r.Tgt, ok = textOrTexts(load, "tgt"); !ok {
		return r, false
	}
	if r.Fun, ok = textOrTexts(load, "fun"); !ok {
		return r, false
	}
	arg, _ := load.Get("arg")
	if r.Arg, ok = arg.([]any); !ok {
		return r, false
	}
	ret, _ := load.Get("ret")
	if r.Ret, ok = ret.(string); !ok {
		return r, false
	}
	kind, _ := load.Get("tgt_type")
	if r.TgtType, ok = kind.(string); !ok {
		return r, false
	}
	switch jid, _ := load.Get("jid"); jid := jid.(type) {
	case nil:
	case string:
		r.JID = jid
	default:
		return r, false
	}
	switch to, _ := load.Get("to"); to := to.(type) {
	case int64:
		if to > 0 && to <= math.MaxInt64/int64(time.Second) {
			r.Timeout = time.Duration(to) * time.Second
		}
	case float64:
		if to > 0 && to < 1e9 {
			r.Timeout = time.Duration(to * float64(time.Second))
		}
	}
	return r, true
}

// Bounds of the texts matched with patterns of the blacklist before the caller is authenticated.
const (
	maxClaimed   = 255 // of a user's name
	maxFunctions = 1000
	maxFunction  = 1024 // of a function's name
)

// sensible reports whether a job's functions are like those that clients send.
func sensible(funs []string) bool {
	return len(funs) > 0 && len(funs) <= maxFunctions &&
		!slices.ContainsFunc(funs, func(fun string) bool { return len(fun) > maxFunction })
}

// functionsOf lists the functions of a job; none if they are not texts.
func functionsOf(load value.Map) []string {
	v, ok := textOrTexts(load, "fun")
	if fun, one := v.(string); one {
		return []string{fun}
	}
	if !ok {
		return nil
	}
	return v.([]string)
}

// textOrTexts reads a text, or a list of texts as []string.
func textOrTexts(load value.Map, key string) (any, bool) {
	v, _ := load.Get(key)
	switch v := v.(type) {
	case string:
		return v, true
	case []any:
		out := names(v)
		return out, len(out) == len(v)
	}
	return nil, false
}

// optionalMap reads a map that may be absent.
func optionalMap(load value.Map, key string) (value.Map, bool) {
	v, given := load.Get(key)
	if !given {
		return nil, true
	}
	inner, ok := v.(value.Map)
	return inner, ok
}

// tellRefused fires the event of a refused job: the request without its secrets, and the error. It
// omits from the tag an id that would turn the event into another one, such as a return.
func (m *Master) tellRefused(load value.Map, jid string, reply value.Map) {
	if !validJID(jid) {
		jid = ""
	}
	m.deps.Bus.Fire(tagify("salt/job", jid, "error"), append(redact(load), reply...))
}
