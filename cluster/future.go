//go:build future

package cluster

import (
	"context"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
)

// Force proposes a command whatever the cluster's level is, as a defective release would.
func (n *Node) Force(ctx context.Context, c fsm.Command) error {
	entry, err := fsm.Encode(c)
	if err != nil {
		return err
	}
	return n.withLeader(ctx, func(leader string) error {
		if leader == n.self.Node {
			_, _, err := n.applyHere(ctx, entry)
			return err
		}
		client, err := n.client(leader)
		if err == nil {
			_, err = client.Propose(ctx, &clusterpb.ProposeRequest{Command: entry})
		}
		return err
	})
}
