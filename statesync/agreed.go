package statesync

import (
	"context"
	"fmt"

	"clustermaster/cluster/fsm"
)

// Cluster is the replicated state; *cluster.Node implements it.
type Cluster interface {
	State() *fsm.State
	Propose(ctx context.Context, c fsm.Command) (fsm.Result, uint64, error)
	ReadIndex(ctx context.Context) error
	Leader() (node string, ok bool)
	InRing() bool
}

// Agreed implements Heads with the replicated state.
type Agreed struct{ Cluster Cluster }

var _ Heads = Agreed{}

func (h Agreed) Head(t Tree) (Head, bool) {
	head, ok := h.Cluster.State().RootsHead(uint8(t))
	return Head{
		Tree: t, Seq: head.Seq, Manifest: head.Manifest, Size: head.Size, Source: head.Source,
		Force: head.Force, At: head.At,
	}, ok
}

func (h Agreed) Publish(ctx context.Context, head Head) error {
	r, _, err := h.Cluster.Propose(ctx, &fsm.SetRootsHead{Head: fsm.RootsHead{
		Tree: uint8(head.Tree), Seq: head.Seq, Manifest: head.Manifest, Size: head.Size,
		Source: head.Source, Force: head.Force, At: head.At,
	}})
	switch {
	case err != nil:
		return err
	case r.Refused == fsm.RefusedStale:
		return ErrStale
	case r.Refused != "":
		return fmt.Errorf("refused: %s", r.Refused)
	}
	return nil
}

func (h Agreed) Refresh(ctx context.Context) error { return h.Cluster.ReadIndex(ctx) }
func (h Agreed) Leader() (node string, ok bool)    { return h.Cluster.Leader() }
func (h Agreed) InRing() bool                      { return h.Cluster.InRing() }
