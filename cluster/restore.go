package cluster

import (
	"context"
	"fmt"
	"time"

	"clustermaster/cluster/fsm"
)

// Save returns what a backup keeps, as new as the last acknowledged command, and the index that it is of.
func (n *Node) Save(ctx context.Context) (fsm.Saved, uint64, error) {
	if err := n.ReadIndex(ctx); err != nil {
		return fsm.Saved{}, 0, fmt.Errorf("save state: %w", err)
	}
	if _, ok := n.state.Cluster(); !ok {
		return fsm.Saved{}, 0, fmt.Errorf("save state: %w", ErrNotFounded)
	}
	index := n.state.AppliedIndex()
	return n.state.Saved(), index, nil
}

// PutBack brings back what Save returned, here or on another cluster: the cluster key, the secrets of minions'
// sessions and exactly those minion keys. Members stay as they are. It names the masters that did not confirm in time.
func (n *Node) PutBack(ctx context.Context, saved fsm.Saved) (unconfirmed []string, err error) {
	r, index, err := n.Propose(ctx, &fsm.Restore{Saved: saved, At: time.Now().UTC()})
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return nil, fmt.Errorf("put state back: %w", err)
	}
	unconfirmed = n.ConfirmEverywhere(ctx, index)
	if err := n.refreshSecrets(); err != nil {
		return nil, fmt.Errorf("put state back: %w", err)
	}
	n.log.Warn("state of a backup put back", "n", len(saved.Keys), "index", index)
	return unconfirmed, nil
}
