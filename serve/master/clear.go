package master

import (
	"context"
	"net/netip"
	"time"

	"clustermaster/serve/origin"
	"clustermaster/value"
	"clustermaster/wire"
)

// clear answers the commands that come unsealed: sign-ins, pings, and the orders of users (publish,
// runner, wheel, mk_token, get_token). Without enable_clear_commands orders are answered as to a
// caller whom Salt does not know.
func (m *Master) clear(ctx context.Context, env wire.Envelope, remote netip.AddrPort) ([]byte,
	error) {
	cmd := env.Clear.String("cmd")
	switch cmd {
	case "_auth":
		return m.signIn(ctx, env, remote)
	case "ping":
		return wire.ClearReply(env.Clear)
	}
	order, known := clearOrders[cmd]
	if !known || !m.opts.ClearCommands {
		m.refused.note("clear_command", "", remote)
		return wire.ClearReply(switchedOff(cmd, env.Clear))
	}
	began := time.Now()
	reply, refusal := order(m, ctx, &clearOrder{cmd: cmd, load: env.Clear, remote: remote})
	m.metrics.requests.WithLabelValues(cmd).Observe(time.Since(began).Seconds())
	if refusal != nil {
		return m.refuse(refusal, "", remote), nil
	}
	return wire.ClearReply(reply)
}

// clearOrder is one order of a user as it came.
type clearOrder struct {
	cmd    string
	load   value.Map
	remote netip.AddrPort
}

// source is the machine that an order comes from: an address, of IPv6 its network of 64 bits.
func (o *clearOrder) source() string {
	addr := o.remote.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if net, err := addr.Prefix(64); err == nil {
			return net.String()
		}
	}
	return addr.String()
}

// clearOrders are the commands that enable_clear_commands switches on. A refusal answers a load
// that Salt's handler fails at.
var clearOrders = map[string]func(*Master, context.Context, *clearOrder) (any, *wire.Refusal){
	"publish": (*Master).clearPublish, "runner": (*Master).clearRunner,
	"wheel":    (*Master).clearWheel,
	"mk_token": (*Master).makeToken, "get_token": (*Master).getToken,
}

// malformed is the answer to an order that lacks what Salt's handler reads.
func malformed() *wire.Refusal { return wire.Failed("clear_malformed") }

// switchedOff is the answer to a command that is not served.
func switchedOff(cmd string, load value.Map) any {
	switch cmd {
	case "publish":
		return notAuthenticated
	case "runner", "wheel":
		return kindOf(load).refusal(load)
	case "mk_token":
		return ""
	case "get_token":
		if !has(load, "token") {
			return false
		}
	}
	return value.Map{}
}

func has(m value.Map, key string) bool {
	_, ok := m.Get(key)
	return ok
}

// makeToken is mk_token.
func (m *Master) makeToken(ctx context.Context, o *clearOrder) (any, *wire.Refusal) {
	if m.deps.Auth == nil {
		m.refuseOrder(o, "clear_credentials", userOf(o.load), nil)
		return "", nil
	}
	// Whoever gets as far as a token has proved the name that he gives.
	by := origin.Origin{User: userOf(o.load), Eauth: o.load.String("eauth"), From: o.source(),
		Order: o.cmd}
	token, err := m.deps.Auth.MakeToken(origin.With(ctx, by), o.source(), o.load)
	if err != nil {
		m.refuseOrder(o, "clear_credentials", userOf(o.load), nil)
		return "", nil
	}
	m.accepted(o, kindEauth)
	return token, nil
}

// getToken is get_token.
func (m *Master) getToken(ctx context.Context, o *clearOrder) (any, *wire.Refusal) {
	v, given := o.load.Get("token")
	if !given {
		return false, nil
	}
	text, _ := v.(string)
	if m.deps.Auth != nil {
		if token, ok := m.deps.Auth.Token(ctx, text); ok {
			m.accepted(o, kindToken)
			return token, nil
		}
	}
	m.refuseOrder(o, "clear_token", "", nil)
	return value.Map{}, nil
}
