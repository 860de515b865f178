package cluster

import (
	"context"

	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
	"clustermaster/serve/origin"
)

// audited records in an audited command who ordered it, as ctx says. Without an order in ctx it
// names this master. Below the level that has the audit trail it adds nothing.
func (n *Node) audited(ctx context.Context, c fsm.Command) (fsm.Command, error) {
	if n.state.Level() < level.OfCommand(uint8(fsm.OpAudited)) {
		return c, nil
	}
	o, ordered := origin.Of(ctx)
	if !ordered {
		o = origin.Origin{From: "the master itself", Automatic: true}
	}
	a, ok, err := fsm.NewAudited(fsm.Orderer{
		At: n.utc(), Master: n.self.ID, User: o.User, Eauth: o.Eauth, From: o.From, Order: o.Order,
		Automatic: o.Automatic,
	}, c)
	if err != nil || !ok {
		return c, err
	}
	return a, nil
}
