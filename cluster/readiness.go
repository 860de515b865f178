package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// watch keeps the facts that readiness depends on: membership, a known leader, and catching up at
// start.
func (n *Node) watch(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	// current: has had what the leader had, though it may not know the time
	// away: was removed, so that only a leader can tell what has changed since
	caughtUp, current, away, serving, compared := false, false, false, false, false
	led := *n.began.Load() // when a leader was known last
	var asked, refreshed time.Time
	for {
		moved := n.moved.next()
		now := time.Now()
		leader, leaderID := n.raft.LeaderWithID()
		if leader != "" {
			led = now
			n.leaderless.Store(0)
			n.noteLeader(string(leaderID), now)
		} else {
			n.leaderless.CompareAndSwap(0, now.UnixNano())
		}
		_, member := n.state.MemberByNode(n.self.Node)
		was := n.joined()
		n.membership.note(func(f *facts) { f.listed, f.admitted = member, len(n.pins.known()) > 0 })
		if was && !member {
			n.noteRemoved("")
		}
		n.noteDisowned()
		phase := n.Phase()
		if phase == Removed {
			away, caughtUp, current = true, false, false
		}
		begins := phase == Syncing && n.mayBegin()
		// The state lists this master by now, so proposers ask it to confirm changes before it asks
		// the leader. One that began without a leader has yet to compare its secret.
		if (begins || phase == Joined && !compared) && !caughtUp && leader != "" &&
			now.Sub(asked) > 500*time.Millisecond {
			asked = now
			short, cancel := context.WithTimeout(ctx, time.Second)
			if n.ReadIndex(short) == nil {
				current, caughtUp = true, n.knowsTime(short, string(leaderID))
			}
			cancel()
		}
		if begins {
			alone := !away && (n.inVain(leader != "", led) || current && n.ran(n.cfg.ServeWithout))
			if (caughtUp || alone) && n.mayBegin() {
				if err := n.refreshSecrets(); err != nil {
					return err
				}
				if now,
					_ := n.membership.note(func(f *facts) { f.caughtUp = true }); now == Joined {
					if !isClosed(n.serving) {
						close(n.serving)
					}
					n.log.Info("serving", "index", n.state.AppliedIndex(), "leader_heard", caughtUp)
				}
			}
		}
		if !compared && caughtUp && n.joined() {
			compared = true
			n.compareSecret()
		}
		if s := n.Serving(); s != serving {
			serving = s
			n.served.beat()
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

// ran reports whether Run began at least so long ago.
func (n *Node) ran(limit time.Duration) bool {
	began := n.began.Load()
	return began != nil && time.Since(*began) >= limit
}

// inVain reports whether a starting master has waited for Config.ServeWithout for a leader, or for
// an answer of the leader that it hears. Once a leader has told it what it lacks, it waits for that
// while it hears one. Led is when it heard one last.
func (n *Node) inVain(hears bool, led time.Time) bool {
	if !hears {
		return time.Since(led) >= n.cfg.ServeWithout
	}
	return time.Since(n.reign.Load().since) >= n.cfg.ServeWithout &&
		n.told.Load() <= n.machine.applied.Load()
}

// compareSecret warns of a cluster_secret that is not the cluster's. Only a caught-up state says
// which one is: this master may have been away while the secret was rotated.
func (n *Node) compareSecret() {
	c, ok := n.state.Cluster()
	if ok && n.port != nil && !n.standsAlone() && !slices.Equal(c.JoinKey, n.cfg.JoinKey) {
		n.log.Warn("cluster_secret in the configuration is an old one; this master stays a member; " +
			"write the one there that the last cluster.rotate_secret or cluster.remove printed")
	}
}

// mayBegin reports whether the state knows this master as a member with its share of the data.
func (n *Node) mayBegin() bool {
	_, member := n.state.MemberByNode(n.self.Node)
	return member && !n.Founding() && slices.Contains(n.state.Ring().Members, n.self.Node)
}

// knowsTime reports whether this master's clock was compared with those of most members. It asks
// the leader for that.
func (n *Node) knowsTime(ctx context.Context, leader string) bool {
	if !n.clockJudged.Load() {
		if leader != n.self.Node {
			n.ask(ctx, leader)
		}
		n.followClocks()
	}
	return n.clockJudged.Load()
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// LeaderHeard returns when this master last heard the leader or, as the leader, a majority; the
// zero time if never since its start. While a write of its log is under way it learns nothing that
// a heartbeat tells, so what it knows is from the beginning of that write.
func (n *Node) LeaderHeard() time.Time {
	heard := n.raft.LastContact()
	if v := n.verified.Load(); v != 0 {
		if t := time.Unix(0, v); t.After(heard) {
			heard = t
		}
	}
	if began := n.logs.since.Load(); began != nil && began.Before(heard) {
		return *began
	}
	return heard
}

// Serving reports whether the minion ports should be open: this master is a member and in the ring,
// and at start it caught up with the leader or looked for one in vain for Config.ServeWithout. It
// stops serving when it is removed, or cut off for longer than Config.IsolatedServe.
func (n *Node) Serving() bool {
	if n.Phase() != Joined {
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

// NotServing says, for an operator, why this master does not serve; "" if it does.
func (n *Node) NotServing() string {
	_, led := n.Leader()
	phase, f := n.membership.is()
	switch {
	case n.Serving():
		return ""
	case f.barred || f.joined && !f.listed:
		return "it was removed from its cluster"
	case f.disowned:
		return "the members of its cluster refuse its node key: it was removed, or its disk is an old copy"
	case phase == Joined:
		return "it has not heard its leader for longer than cluster_isolated_serve_seconds"
	case !f.joined:
		return "it has not joined its cluster: none of cluster_peers has let it in, and a new one is founded only " +
			"when all of them run"
	case !led:
		return "it hears no leader of its cluster"
	}
	return "it has not caught up with the leader of its cluster"
}

// reign is the last leader that this master has known, and since when it has known no other one.
type reign struct {
	node  string
	since time.Time
}

// noteLeader notes the leader. One that is lost and found again goes on with its reign, so that
// readiness does not come and go with it.
func (n *Node) noteLeader(node string, now time.Time) {
	if r := n.reign.Load(); r == nil || r.node != node {
		n.reign.Store(&reign{node, now})
	}
}

// leaderAnswers reports whether the last known leader has answered this master's heartbeats within
// Config.StaleLimit, or has not led for that long. A leader that can't be called may still be
// heard: then this master learns of all changes and can make none.
func (n *Node) leaderAnswers() bool {
	r := n.reign.Load()
	if r == nil || n.port == nil || r.node == n.self.Node {
		return true
	}
	answered := n.port.LastHeard(r.node)
	if answered.Before(r.since) {
		answered = r.since
	}
	return time.Since(answered) <= n.cfg.StaleLimit
}

// Apart says, for an operator, why this master is no member of the cluster that its configuration
// names; "" if it is one, or if the configuration names none. Its last attempt names the masters
// that are silent or refuse it.
func (n *Node) Apart() string {
	if n.port == nil {
		return ""
	}
	if n.Phase() == Removed {
		return n.NotServing()
	}
	if _, listed := n.state.MemberByNode(n.self.Node); listed && !n.standsAlone() {
		return ""
	}
	if why := n.hindrance.Load(); why != nil {
		return *why
	}
	return "it has not asked the masters of cluster_peers yet"
}

// Ready reports whether this master serves, is not being drained, has a state no older than
// Config.StaleLimit and a leader that answered it within that time, and is fit (Config.Unfit).
func (n *Node) Ready() bool {
	if n.cfg.Unfit != nil && n.cfg.Unfit() != nil {
		return false
	}
	m, _ := n.state.MemberByNode(n.self.Node)
	return n.Serving() && !m.Draining && time.Since(n.LeaderHeard()) <= n.cfg.StaleLimit &&
		n.leaderAnswers()
}

// WaitServing returns when this master has begun to serve, even if it was removed since.
func (n *Node) WaitServing(ctx context.Context) error {
	select {
	case <-n.serving:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until the cluster serves: %w", context.Cause(ctx))
	}
}

// Leader returns the leader's node as far as this master knows it.
func (n *Node) Leader() (node string, ok bool) {
	_, id := n.raft.LeaderWithID()
	return string(id), id != ""
}

// IsLeader reports whether this master is the leader and has applied everything that earlier
// leaders acknowledged.
func (n *Node) IsLeader() bool {
	term := n.established.Load()
	return term != 0 && n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}
