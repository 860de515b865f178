package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
	"clustermaster/test/knownbug"
)

// handGap is how long a leader that should hand over waits between attempts.
const handGap = 5 * time.Second

// handTries is for how many election timeouts a leader without an order tries to hand over at a
// time; meanwhile it takes few commands.
const handTries = 3

// handPause is how long a leader takes commands again between tries.
const handPause = 2 * retryPause

// handLook is how often a leader that hands over looks how far its successor is.
const handLook = 10 * time.Millisecond

// raftProtocol is the protocol that Raft speaks with other masters.
var raftProtocol = raft.ProtocolVersion(level.FormatAt("raft", level.Base))

// errHandingOver refuses a command, or another order to hand over, meanwhile.
var errHandingOver = fmt.Errorf("%w: %w", errElsewhere, raft.ErrLeadershipTransferInProgress)

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
	ctx, cancel := context.WithTimeout(ctx, handTries*n.cfg.ElectionTimeout)
	defer cancel()
	_, err := n.transferHere(ctx, "", n.self.Node)
	return err
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

// transferHere, on the leader, hands leadership to a node, or to the best one other than not. It
// tries until ctx or orderTimeout ends: a successor may need longer than its election timeout, as
// when its disk hangs for a moment.
func (n *Node) transferHere(ctx context.Context, to, not string) (string, error) {
	if !n.IsLeader() {
		return "", errElsewhere
	}
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	best, said := to == "", ""
	for {
		if best {
			to = cmp.Or(n.successor(not), to)
		}
		if to == n.self.Node {
			return to, nil
		}
		m, ok := n.state.MemberByNode(to)
		if !ok || !n.voters()[to] {
			return "", errNoSuccessor
		}
		err := n.letLead(ctx, m)
		if err == nil {
			n.log.Info("leadership handed over", "peer", m.ID, "addr", m.Addr)
			return to, nil
		}
		if !n.IsLeader() || errors.Is(err, errHandingOver) { // whoever leads then is to be asked
			return "", fmt.Errorf("%w: %w", errElsewhere, err)
		}
		if now := m.ID + err.Error(); now != said && ctx.Err() == nil {
			n.log.Info("leadership not handed over yet", "peer", m.ID, "err", err)
			said = now
		}
		select {
		case <-time.After(handPause):
		case <-ctx.Done():
			return "", fmt.Errorf("hand leadership to %s: %w", m.ID, err)
		}
	}
}

// letLead, on the leader, hands leadership to a voter: it takes no more commands, waits until the
// voter has all of them, and tells it to stand for election at once (D. Ongaro, Consensus: Bridging
// Theory and Practice, 3.10). Each of the two waits has one election timeout.
//
// Raft's own LeadershipTransfer may wait forever, if this master loses its leadership while the
// voter does not answer. If it led again, it would then refuse all commands until it is started
// anew (github.com/hashicorp/raft, issue 696).
func (n *Node) letLead(ctx context.Context, m fsm.Member) error {
	if knownbug.Is(knownbug.RaftTransfers) {
		return await(ctx, n.raft.LeadershipTransferToServer(raft.ServerID(m.Node), n.raftAddr(m)))
	}
	if !n.handingOver.CompareAndSwap(false, true) {
		return errHandingOver
	}
	defer n.handingOver.Store(false)
	if err := n.within(ctx, func(ctx context.Context) (bool, error) {
		if !n.port.Alive(m.Node) {
			return false, errors.New("it does not answer")
		}
		return n.applying.Load() == 0 && n.raft.AppliedIndex() >= n.raft.LastIndex() &&
			n.hasCaughtUp(ctx, m, n.machine.applied.Load()), nil
	}); err != nil {
		return fmt.Errorf("it has not caught up: %w", err)
	}
	called := make(chan error, 1)
	// this goroutine ends with the call, which the transport limits
	go func() {
		called <- n.trans.TimeoutNow(raft.ServerID(m.Node), n.raftAddr(m), &raft.TimeoutNowRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raftProtocol, ID: []byte(n.self.Node),
				Addr: n.trans.EncodePeer(raft.ServerID(n.self.Node), n.trans.LocalAddr())},
		}, &raft.TimeoutNowResponse{})
	}()
	if err := n.within(ctx, func(context.Context) (bool, error) {
		select {
		case err := <-called:
			if err != nil {
				return false, err
			}
		default:
		}
		return n.raft.State() != raft.Leader, nil
	}); err != nil {
		return fmt.Errorf("it was not elected: %w", err)
	}
	return nil
}

// within waits until a condition holds or fails, at most one election timeout.
func (n *Node) within(ctx context.Context, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ElectionTimeout)
	defer cancel()
	look := time.NewTicker(handLook)
	defer look.Stop()
	for {
		if ok, err := holds(ctx); ok || err != nil {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
