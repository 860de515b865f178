package reactor

import (
	"context"
	"sync/atomic"
	"time"

	"clustermaster/cluster/fsm"
)

// Cluster is the replicated state; *cluster.Node implements it.
type Cluster interface {
	State() *fsm.State
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	// ConfirmEverywhere waits until every serving master has applied an index; it returns those
	// that did not in time.
	ConfirmEverywhere(ctx context.Context, index uint64) (unconfirmed []string)
	Now() time.Time
}

// Agreed is the operators' changes to the option reactor, on all masters.
type Agreed struct {
	cluster Cluster
	changed atomic.Pointer[changes]
}

// NewAgreed reads and makes changes in the replicated state.
func NewAgreed(c Cluster) *Agreed { return &Agreed{cluster: c} }

// changes are the changes as of one index.
type changes struct {
	index uint64
	Changes
}

// Changes is needed for each event, so it makes them once per index.
func (a *Agreed) Changes() Changes {
	now := a.cluster.State().Reactors()
	if known := a.changed.Load(); known != nil && known.index == now.Index {
		return known.Changes
	}
	c := &changes{now.Index, Changes{Deleted: now.Deleted, Off: now.Off}}
	for _, added := range now.Added {
		files := make([]any, len(added.Files))
		for i, f := range added.Files {
			files[i] = f
		}
		c.Added = append(c.Added, Rule{Tag: added.Tag, Value: files})
	}
	a.changed.Store(c)
	return c.Changes
}
