package runner

import (
	"context"

	"clustermaster/wire"
)

// ClusterRescue brings a cluster back that has lost its quorum for good.
type ClusterRescue interface {
	// Recover makes the master asked the whole cluster; confirm is the cluster_id, typed by the operator. It returns the ids given up.
	Recover(ctx context.Context, confirm string) ([]string, error)
}

// Rescue is the part of the family cluster for the days when all else fails.
func Rescue(r ClusterRescue) []Function {
	return []Function{
		{
			Name: "cluster.recover", Params: []Param{Opt("confirm", nil)},
			Doc: "Make this master the whole cluster, after the quorum was lost for good. Only for the case that a majority of the voters' disks is\n" +
				"gone: what only those had acknowledged is lost, and none of them may ever run again with its data directory. The master opens its\n" +
				"cluster anew, and others join it with empty data directories. It is refused while there is a quorum.\n\n" +
				"confirm\n    the cluster_id, as proof that you mean it; without it nothing is done but saying what would be\n\n" +
				"Example:\n\n    salt-run cluster.recover confirm=production",
			Run: func(ctx context.Context, c *Call) (any, error) {
				lost, err := r.Recover(ctx, c.Text("confirm"))
				if err != nil {
					return nil, err
				}
				c.Warn("this master opens its cluster anew now; salt-run cluster.members shows when it is ready. Never start " +
					"the masters given up with their old data directories")
				return wire.Map{{Key: "recovering", Value: true}, {Key: "given_up", Value: texts(lost)}}, nil
			},
		},
	}
}
