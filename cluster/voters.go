package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
)

// handGap is how long a leader that should hand over waits between attempts.
const handGap = 5 * time.Second

// mayVote reports whether a member may get a vote: no order forbids it, and it did not just lose
// one.
func (n *Node) mayVote(m fsm.Member) bool {
	return !m.Learner && (m.Demoted.IsZero() || n.Now().Sub(m.Demoted) >= n.cfg.DemoteCooldown ||
		n.foreseen(m.Demoted))
}

// demote takes the vote of members that should have none. The leader itself hands over first.
func (n *Node) demote(ctx context.Context) error {
	voters := n.voters()
	for _, m := range n.state.Members() {
		if !m.Learner || !voters[m.Node] || len(voters) == 1 {
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
	return nil
}

// yield hands leadership over while this master is being drained, if another can take it.
func (n *Node) yield(ctx context.Context) error {
	if m, ok := n.state.MemberByNode(n.self.Node); !ok || !m.Draining {
		return nil
	}
	if n.successor("") == "" {
		return nil // no other voter can lead: better this leader than none
	}
	return n.handOver(ctx)
}

func (n *Node) handOver(ctx context.Context) error {
	if time.Since(n.handing) < handGap {
		return nil
	}
	n.handing = time.Now()
	_, err := n.transferHere(ctx, "", n.self.Node)
	return err
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

// errNoSuccessor says that no other voter could lead.
var errNoSuccessor = errors.New("no other voter in contact could lead; start another master first, see salt-run " +
	"cluster.members")

// successor picks the voter that should lead next: in contact, not drained, with the longest log;
// "" if there is none.
func (n *Node) successor(not string) string {
	voters := n.voters()
	best, far := "", uint64(0)
	for _, m := range n.state.Members() {
		if !voters[m.Node] || m.Node == n.self.Node || m.Node == not || m.Draining || m.Learner ||
			n.port == nil || !n.near(m.Node) {
			continue
		}
		n.mu.Lock()
		applied := n.contacts[m.Node].applied
		n.mu.Unlock()
		if best == "" || applied > far {
			best, far = m.Node, applied
		}
	}
	return best
}

// transferTries is how often a leader tries to hand over. Raft gives the successor one election
// timeout for its election, and a busy machine may need longer.
const transferTries = 3

// transferHere, on the leader, hands leadership to a node, or to the best one other than not.
func (n *Node) transferHere(ctx context.Context, to, not string) (string, error) {
	if !n.IsLeader() {
		return "", errElsewhere
	}
	if to == "" {
		to = n.successor(not)
	}
	if to == n.self.Node {
		return to, nil
	}
	m, ok := n.state.MemberByNode(to)
	if !ok || !n.voters()[to] {
		return "", errNoSuccessor
	}
	for try := 1; ; try++ {
		err := await(ctx, n.raft.LeadershipTransferToServer(raft.ServerID(to), n.raftAddr(m)))
		if err == nil {
			break
		}
		if try == transferTries || ctx.Err() != nil || !n.IsLeader() {
			return "", fmt.Errorf("hand leadership to %s: %w", m.ID, err)
		}
		n.log.Info("leadership not handed over yet", "peer", m.ID, "try", try, "err", err)
	}
	n.log.Info("leadership handed over", "peer", m.ID, "addr", m.Addr)
	return to, nil
}
