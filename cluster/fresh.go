package cluster

import (
	"context"
	"time"
)

// freshPatience bounds how long a read waits for the leader.
const freshPatience = 3 * time.Second

// Fresh waits until this master knows what the leader knows. Without a quorum it soon returns a
// note for the operator: a read changes nothing, so the caller may show this master's last state
// with the note.
func (n *Node) Fresh(ctx context.Context) (note string) {
	ctx, cancel := context.WithTimeout(ctx, freshPatience)
	defer cancel()
	err := ErrNotFounded
	if _, member := n.state.Cluster(); member {
		err = n.ReadIndex(ctx)
	}
	if err != nil {
		n.log.Warn("the leader does not answer; this is what this master knew last", "err", err)
		return "this master can't ask the leader and shows its last knowledge: " + err.Error()
	}
	return ""
}
