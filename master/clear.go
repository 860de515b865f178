package master

import (
	"context"
	"net/netip"

	"clustermaster/wire"
)

// clear answers the commands that come unsealed. publish, runner, wheel and the tokens need enable_clear_commands, which
// in turn needs the access control of the operator's commands; until that is asked they answer as to a caller whom Salt does
// not know.
func (m *Master) clear(ctx context.Context, env wire.Envelope, remote netip.AddrPort) ([]byte, error) {
	cmd := env.Clear.String("cmd")
	var reply any = wire.Map{}
	switch cmd {
	case "_auth":
		return m.signIn(ctx, env, remote)
	case "ping":
		return wire.ClearReply(env.Clear)
	case "publish":
		reply = refusedBy("AuthenticationError", "Authentication error occurred.")
	case "runner", "wheel":
		switch {
		case has(env.Clear, "token"):
			reply = refusedBy("TokenAuthenticationError", `Authentication failure of type "token" occurred.`)
		case has(env.Clear, "eauth"):
			reply = refusedBy("EauthAuthenticationError", `Authentication failure of type "eauth" occurred for user `+userOf(env.Clear)+".")
		default:
			reply = refusedBy("UserAuthenticationError", `Authentication failure of type "user" occurred`)
		}
	case "mk_token":
		reply = ""
	case "get_token":
		if !has(env.Clear, "token") {
			reply = false
		}
	}
	m.refused.note("clear_command", "", remote)
	return wire.ClearReply(reply)
}

func has(m wire.Map, key string) bool {
	_, ok := m.Get(key)
	return ok
}

// userOf is the name that a caller gives himself, which goes back to nobody but him.
func userOf(m wire.Map) string {
	if user := m.String("username"); user != "" && len(user) <= 64 {
		return user
	}
	return "UNKNOWN"
}

func refusedBy(name, message string) wire.Map {
	return wire.Map{{Key: "error", Value: wire.Map{{Key: "name", Value: name}, {Key: "message", Value: message}}}}
}
