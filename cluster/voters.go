package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
)

// mayVote reports whether a member may get a vote: no order forbids it, and it did not just lose
// one.
func (n *Node) mayVote(m fsm.Member) bool {
	return !m.Learner && (m.Demoted.IsZero() || n.Now().Sub(m.Demoted) >= n.cfg.DemoteCooldown ||
		n.foreseen(m.Demoted))
}

// demote takes the vote of members that should have none. The leader itself hands over first. A
// member keeps its vote while too few of the others answer: they would have to agree to the loss of
// it, and until they do, raft commits nothing else.
func (n *Node) demote(ctx context.Context) error {
	voters := n.voters()
	var kept []string
	for _, m := range n.state.Members() {
		if !m.Learner || !voters[m.Node] || len(voters) == 1 {
			continue
		}
		if reachable, left, _ := n.answering(ctx, m.Node); reachable <= left/2 {
			kept = append(kept, m.ID)
			continue
		}
		if m.Node == n.self.Node {
			return n.handOver(ctx)
		}
		if err := await(ctx, n.raft.DemoteVoter(raft.ServerID(m.Node), 0,
			enqueueTimeout)); err != nil {
			return fmt.Errorf("demote %s: %w", m.ID, err)
		}
		delete(voters, m.Node)
		n.log.Info("peer is no longer a voter", "peer", m.ID, "addr", m.Addr)
	}
	if len(kept) > 0 && !slices.Equal(kept, n.kept) {
		n.log.Warn("these masters keep their votes until more of the other voters answer", "peer", kept)
	}
	n.kept = kept
	return nil
}

// replaceVoter takes the vote of one voter that was not heard for longer than VoterTimeout, one at
// a time. A nonvoter that has caught up gets its vote first; without such a nonvoter at least
// MinVoters must remain.
func (n *Node) replaceVoter(ctx context.Context, caughtUp uint64) error {
	if !n.cfg.ReplaceVoters || time.Since(n.checked) < n.cfg.VoterCheck {
		return nil
	}
	n.checked = time.Now()
	voters := n.voters()
	var dead fsm.Member
	for _, m := range n.state.Members() {
		if voters[m.Node] && n.silent(m.Node) > n.cfg.VoterTimeout {
			dead = m
			break
		}
	}
	if dead.Node == "" {
		return nil
	}
	next := ""
	for _, m := range n.state.Members() {
		if voters[m.Node] || m.Draining || !n.mayVote(m) || !n.port.Alive(m.Node) ||
			!n.hasCaughtUp(ctx, m, caughtUp) {
			continue
		}
		if err := await(ctx, n.raft.AddVoter(raft.ServerID(m.Node), n.raftAddr(m), 0,
			enqueueTimeout)); err != nil {
			return fmt.Errorf("promote %s: %w", m.ID, err)
		}
		next = m.ID
		break
	}
	if next == "" && len(voters)-1 < n.cfg.MinVoters {
		return nil
	}
	// Set the mark first: after a crash in between, the next leader must not give the vote back at
	// once.
	if err := n.do(ctx, &fsm.MarkMember{Node: dead.Node, Mark: fsm.MarkDemoted,
		At: n.utc()}); err != nil {
		return err
	}
	if err := await(ctx, n.raft.DemoteVoter(raft.ServerID(dead.Node), 0,
		enqueueTimeout)); err != nil {
		return fmt.Errorf("demote %s: %w", dead.ID, err)
	}
	n.log.Warn("voter silent for too long; it is no longer a voter, and may become one again when it is back",
		"peer", dead.ID, "addr", dead.Addr, "replaced_by", next, "limit", n.cfg.VoterTimeout)
	return nil
}
