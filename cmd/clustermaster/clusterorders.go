package main

import (
	"context"

	"clustermaster/cluster"
	"clustermaster/salt/runner"
)

// clusterOrders passes operators' orders to the cluster.
type clusterOrders struct{ *cluster.Node }

var _ runner.ClusterOrders = clusterOrders{}

// Remove implements runner.ClusterMembership.
func (o clusterOrders) Remove(ctx context.Context, peer string, keepSecret bool) (runner.RemovalView, error) {
	r, err := o.Node.Remove(ctx, peer, keepSecret)
	return runner.RemovalView{ID: r.Member.ID, Secret: r.Secret, Unconfirmed: r.Unconfirmed, Warnings: r.Warnings}, err
}
