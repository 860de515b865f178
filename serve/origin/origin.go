// Package origin carries with a context who ordered what is done in it, and from where, so that the
// audit trail can say so.
//
// Lives here: the value and its way through a context. Does not: identify anybody (packages
// operator, master), or keep what was ordered (package cluster/fsm).
package origin

import "context"

// Origin is who ordered something, as the door that he came through identified him.
type Origin struct {
	User  string // "" where nobody is known
	Eauth string // the back end of external_auth that knows the user, or ""
	// the door: the socket with the user of the system, an address, or what acted by itself
	From  string
	Order string // the function or command that was called
	// Automatic says that no operator gave the order: the reactor, the schedule or a minion did.
	Automatic bool
}

type key struct{}

// With returns a context of what o ordered.
func With(ctx context.Context, o Origin) context.Context { return context.WithValue(ctx, key{}, o) }

// Of returns who ordered what is done in ctx; false if nobody said so.
func Of(ctx context.Context) (Origin, bool) {
	o, ok := ctx.Value(key{}).(Origin)
	return o, ok
}

// Hand returns life with the origin of ctx: for what goes on after ctx has ended.
func Hand(life,
	ctx context.Context) context.Context { // the one that it is made from comes first
	if o, ok := Of(ctx); ok {
		return With(life, o)
	}
	return life
}
