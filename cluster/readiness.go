package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// watch keeps the facts that readiness follows from: membership, a known leader, and catching up at start.
func (n *Node) watch(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	begun, caughtUp := false, false
	var asked, refreshed time.Time
	for {
		moved := n.moved.next()
		now := time.Now()
		_, leader := n.raft.LeaderWithID()
		if leader != "" {
			n.leaderless.Store(0)
		} else {
			n.leaderless.CompareAndSwap(0, now.UnixNano())
		}
		_, member := n.state.MemberByNode(n.self.Node)
		if member {
			n.left.Store(false)
			n.noteJoined()
		} else if isClosed(n.joined) && !n.left.Swap(true) {
			n.log.Warn("this master is no longer a member of the cluster; remove its data directory to join again", "peer", n.self.ID)
		}
		if !begun && member {
			n.answerable.Store(true) // before the question below, so that no change slips in between
		}
		if !begun && member && !n.founding.Load() && slices.Contains(n.state.Ring().Members, n.self.Node) {
			if !caughtUp && leader != "" && now.Sub(asked) > 500*time.Millisecond {
				asked = now
				short, cancel := context.WithTimeout(ctx, time.Second)
				caughtUp = n.ReadIndex(short) == nil
				cancel()
			}
			alone := now.Sub(n.started) >= n.cfg.ServeWithout
			if caughtUp || alone {
				if err := n.refreshSecrets(); err != nil {
					return err
				}
				begun = true
				close(n.serving)
				n.log.Info("serving", "index", n.state.AppliedIndex(), "leader_heard", caughtUp)
			}
		}
		if now.Sub(refreshed) > time.Second {
			refreshed = now
			if err := n.refreshSecrets(); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-moved:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Node) noteJoined() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !isClosed(n.joined) {
		close(n.joined)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// LeaderHeard is when this master last heard the leader, or as the leader a majority; the zero time if never since
// it was started.
func (n *Node) LeaderHeard() time.Time {
	heard := n.raft.LastContact()
	if v := n.verified.Load(); v != 0 {
		if t := time.Unix(0, v); t.After(heard) {
			heard = t
		}
	}
	return heard
}

// Serving says whether the minion ports should be open: this master is a member and in the ring, and at start it had
// caught up with the leader or looked for one in vain for Config.ServeWithout. Cut off for longer than
// Config.IsolatedServe, or removed, it serves no more.
func (n *Node) Serving() bool {
	if !isClosed(n.serving) || n.left.Load() || n.barred.Load() {
		return false
	}
	if n.cfg.IsolatedServe <= 0 {
		return true
	}
	heard := n.LeaderHeard()
	if heard.Before(n.started) {
		heard = n.started
	}
	return time.Since(heard) <= n.cfg.IsolatedServe
}

// NotServing says in an operator's words why this master does not serve; "" if it does.
func (n *Node) NotServing() string {
	_, led := n.Leader()
	switch {
	case n.Serving():
		return ""
	case n.left.Load() || n.barred.Load():
		return "it was removed from its cluster"
	case isClosed(n.serving):
		return "it has not heard its leader for longer than cluster_isolated_serve_seconds"
	case !isClosed(n.joined):
		return "it has not joined its cluster: none of cluster_peers has let it in, and it may not found one alone"
	case !led:
		return "it hears no leader of its cluster"
	}
	return "it has not caught up with the leader of its cluster"
}

// Ready says whether this master serves, is not being drained, and its state is no older than Config.StaleLimit.
func (n *Node) Ready() bool {
	m, _ := n.state.MemberByNode(n.self.Node)
	return n.Serving() && !m.Draining && time.Since(n.LeaderHeard()) <= n.cfg.StaleLimit
}

// WaitServing returns when this master begins to serve.
func (n *Node) WaitServing(ctx context.Context) error {
	select {
	case <-n.serving:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until the cluster serves: %w", context.Cause(ctx))
	}
}

// Leader names the leader as far as this master knows.
func (n *Node) Leader() (node string, ok bool) {
	_, id := n.raft.LeaderWithID()
	return string(id), id != ""
}

// IsLeader says whether this master is the leader and has applied all that earlier leaders acknowledged.
func (n *Node) IsLeader() bool {
	term := n.established.Load()
	return term != 0 && n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}
