package cluster

import (
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
)

// Member describes a master of the cluster as this master sees it now.
type Member struct {
	ID, Addr, Node, Version string
	SPKI                    [32]byte
	Voter                   bool
	Leader                  bool
	Self                    bool
	Serving                 bool
	Ready                   bool
	Reachable               bool
	Draining                bool
	Learner                 bool          // stays without a vote, by order
	Demoted                 time.Time     // when it last lost its vote; zero: never
	Index                   uint64        // Raft index of its admission
	ClockAhead              time.Duration // ahead of most members' clocks, as of the last contact
	ClockKnown              bool          // it reported its clock, and most clocks agree
	// the highest level that it supports, by the last contact; 0: unknown
	Level       int
	Applied     uint64    // Raft index it had applied at the last contact
	LastContact time.Time // zero: never since this process began
	Sync        SyncState // as of the last contact
	// Raft index at which its state was last compared with this master's; 0: never
	Compared uint64
	// what needs an operator's attention there, as of the last contact
	Alarms []string
	// digest of its extension_modules, as of the last contact; "none": no files; "": unknown
	Extensions string
	Since      time.Time
	// of another master: by what it reports, or by the ring if it is silent
	Phase Phase
}

// Self describes this master, whether it is a member or not.
func (n *Node) Self() Member {
	m, ok := n.state.MemberByNode(n.self.Node)
	if !ok {
		m = n.self
	}
	return n.view(m, n.agreedVoters(), n.judgeClocks())
}

// Members lists the members sorted by id; empty before founding.
func (n *Node) Members() []Member {
	voters, clocks := n.agreedVoters(), n.judgeClocks()
	all := n.state.Members()
	out := make([]Member, len(all))
	for i, m := range all {
		out[i] = n.view(m, voters, clocks)
	}
	return out
}

func (n *Node) view(m fsm.Member, voters map[string]bool, clocks judgement) Member {
	leader, _ := n.Leader()
	v := Member{
		ID: m.ID, Addr: m.Addr, Node: m.Node, Version: m.Version, SPKI: m.SPKI, Since: m.Since,
		Voter: voters[m.Node], Leader: m.Node == leader, Draining: m.Draining, Learner: m.Learner,
		Demoted: m.Demoted, Index: m.Index,
	}
	if ahead, ok := clocks.ahead[m.Node]; ok && clocks.decided {
		v.ClockAhead, v.ClockKnown = ahead-clocks.median, true
	}
	if m.Node == n.self.Node {
		v.Self, v.Reachable, v.LastContact = true, true, time.Now()
		v.Phase = n.Phase()
		v.Serving, v.Ready, v.Applied = n.Serving(), n.Ready(), n.machine.applied.Load()
		v.Sync, v.Level, v.Alarms = n.syncState(), level.Supported(), n.Alarms()
		v.Extensions = n.extensions()
		return v
	}
	if n.port == nil {
		return v
	}
	v.Reachable, v.LastContact = n.port.Alive(m.Node), n.port.LastHeard(m.Node)
	n.mu.Lock()
	c := n.contacts[m.Node]
	n.mu.Unlock()
	v.Compared = c.compared
	v.Applied, v.Sync, v.Level = c.applied, c.sync, c.level
	if v.Reachable {
		v.Alarms, v.Extensions = c.alarms, c.extensions
		// the report may be older than the order to drain
		v.Serving, v.Ready = c.serving, c.ready && !m.Draining
	}
	v.Phase = n.phaseOf(m.Node, v.Reachable, v.Serving)
	return v
}

// voters returns the nodes with a vote in raft's latest configuration, which a new leader may undo.
// Raft uses this one for its majorities.
func (n *Node) voters() map[string]bool { return votersOf(n.servers()) }

// agreedVoters returns the nodes with a vote by what is committed and applied here. Operators see
// this one.
func (n *Node) agreedVoters() map[string]bool {
	if s := n.machine.servers.Load(); s != nil {
		return votersOf(*s)
	}
	return n.voters()
}

// Voters lists the nodes with a vote, by what is committed and applied here, sorted.
func (n *Node) Voters() []string { return slices.Sorted(maps.Keys(n.agreedVoters())) }

func votersOf(servers []raft.Server) map[string]bool {
	out := make(map[string]bool)
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			out[string(s.ID)] = true
		}
	}
	return out
}

func (n *Node) servers() []raft.Server {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// Level returns the cluster's level. No member writes anything above it.
func (n *Node) Level() int { return n.state.Level() }

// Term returns raft's current term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// UnhealthyVoters lists the ids of voters that this master has not heard for longer than
// Config.VoterTimeout, sorted. For one that it never heard, the time counts from this master's own
// start, so the list includes a voter that died before any election.
func (n *Node) UnhealthyVoters() []string {
	var out []string
	for _, m := range n.Members() {
		if m.Voter && n.silent(m.Node) > n.cfg.VoterTimeout {
			out = append(out, m.ID)
		}
	}
	return out
}

// RecentlyDemoted lists the ids of members that lost their vote less than Config.DemoteCooldown
// ago.
func (n *Node) RecentlyDemoted() []string {
	var out []string
	for _, m := range n.state.Members() {
		if !m.Demoted.IsZero() && n.Now().Sub(m.Demoted) < n.cfg.DemoteCooldown &&
			!n.foreseen(m.Demoted) {
			out = append(out, m.ID)
		}
	}
	return out
}

// silent returns how long ago a member was last heard; 0 while it answers.
func (n *Node) silent(node string) time.Duration {
	if node == n.self.Node || n.port == nil || n.port.Alive(node) {
		return 0
	}
	heard := n.port.LastHeard(node)
	if heard.Before(n.started) {
		heard = n.started
	}
	return time.Since(heard)
}

// acquaintance is how long after this master's start, or after a member came, the member's first
// answer may still be on its way.
const acquaintance = 3 * time.Second

// near reports whether a member answers, or is likely to as soon as it is asked.
func (n *Node) near(node string) bool {
	if n.silent(node) == 0 {
		return true
	}
	m, ok := n.state.MemberByNode(node)
	since := n.started
	if m.Since.After(since) && !m.Since.After(n.Now()) {
		since = m.Since
	}
	return ok && n.port.LastHeard(node).Before(since) && time.Since(since) < acquaintance
}
