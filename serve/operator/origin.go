package operator

import (
	"context"

	"clustermaster/serve/origin"
)

// ordering returns a context that says which caller ordered something.
func ordering(ctx context.Context, order string) context.Context {
	c, _ := callerOf(ctx)
	o := origin.Origin{User: c.Name, From: "socket, " + c.source(), Order: order}
	if id, is := c.external(); is {
		o.User, o.Eauth = id.Name, id.Eauth
	}
	return origin.With(ctx, o)
}
