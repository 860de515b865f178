package master

import (
	"context"
	"net/netip"
	"time"

	"clustermaster/serve/origin"
	"clustermaster/value"
	"clustermaster/wire"
)

// clear answers unsealed commands: sign-ins, pings, and users' orders (publish, runner, wheel,
// mk_token, get_token). Without enable_clear_commands it answers orders as Salt answers an unknown
// caller.
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
	reply, refusal := order(m, ctx, &clearOrder{cmd: cmd, load: env.Clear, remote: remote,
		at: time.Now()})
	m.metrics.requests.WithLabelValues(cmd).Observe(time.Since(began).Seconds())
	if refusal != nil {
		return m.refuse(refusal, "", remote), nil
	}
	return wire.ClearReply(reply)
}

// clearOrder is one order of a user as received.
type clearOrder struct {
	cmd    string
	load   value.Map
	remote netip.AddrPort
	at     time.Time // of its arrival
}

// source returns the machine that an order comes from: its address, or with IPv6 its /64 network.
func (o *clearOrder) source() string {
	addr := o.remote.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if net, err := addr.Prefix(64); err == nil {
			return net.String()
		}
	}
	return addr.String()
}

// clearOrders are the commands that enable_clear_commands enables. They answer a load that makes
// Salt's handler fail with a refusal.
var clearOrders = map[string]func(*Master, context.Context, *clearOrder) (any, *wire.Refusal){
	"publish": (*Master).clearPublish, "runner": (*Master).clearRunner,
	"wheel":    (*Master).clearWheel,
	"mk_token": (*Master).makeToken, "get_token": (*Master).getToken,
}

// malformed returns the answer to an order without something that Salt's handler reads.
func malformed() *wire.Refusal { return wire.Failed("clear_malformed") }

// switchedOff returns the answer to a command that is not enabled.
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

// makeToken implements mk_token.
func (m *Master) makeToken(ctx context.Context, o *clearOrder) (any, *wire.Refusal) {
	if m.deps.Auth == nil {
		m.refuseOrder(o, "clear_credentials", userOf(o.load), nil)
		return "", nil
	}
	// A caller that gets a token has proved the name that it gives.
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

// getToken implements get_token.
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
