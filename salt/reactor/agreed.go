package reactor

import (
	"context"
	"sync/atomic"
	"time"

	"clustermaster/cluster/fsm"
)

// Cluster is what the masters agree on; *cluster.Node is one.
type Cluster interface {
	State() *fsm.State
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	// ConfirmEverywhere returns when every serving master has applied an index, or did not in time.
	ConfirmEverywhere(ctx context.Context, index uint64) (unconfirmed []string)
	Now() time.Time
}

// Agreed is what operators changed of the option reactor, on all masters.
type Agreed struct {
	cluster Cluster
	changed atomic.Pointer[changes]
}

// NewAgreed reads and makes changes in the replicated state.
func NewAgreed(c Cluster) *Agreed { return &Agreed{cluster: c} }

// changes are those of an index.
type changes struct {
	index uint64
	Changes
}

// Changes is asked for with each event, so it is made once per index.
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
