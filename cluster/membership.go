package cluster

import (
	"slices"
	"sync"
)

// Phase is how far a master is on its way into its cluster and out of it.
type Phase uint8

// The phases. They are shown, never stored or sent: each master derives them from what it knows.
const (
	New      Phase = iota // no member has admitted it, and it has founded nothing
	Founding              // it founds the cluster; what it brings is not imported yet
	Admitted              // a member admitted it; the replicated state that says so has not arrived
	// a member that is catching up, and has no share of the ring yet
	Syncing
	Joined // a member that has begun to serve
	// it must not serve: removed, or every member that it reaches refuses its key
	Removed
)

// String is the word that salt-run cluster.members shows.
func (p Phase) String() string {
	return [...]string{"new", "founding", "admitted", "syncing", "member", "removed"}[p]
}

// facts are what determines the phase.
type facts struct {
	listed   bool // the replicated state lists this master
	joined   bool // the state has listed it at some time since this process began
	founding bool // this master founded, and OnFounded has not succeeded yet
	admitted bool // a member has named the others
	// it may serve: it has its share of the ring and knows what the leader knows
	caughtUp bool
	barred   bool // a member said that it was removed
	disowned bool // no member answers, and one refuses this master's node key
}

// next returns the phase that follows. A master that has begun to serve goes on without a leader.
// One that was removed begins again with catching up.
func next(p Phase, f facts) Phase {
	switch {
	case f.barred, f.disowned, f.joined && !f.listed:
		return Removed
	case f.listed && (p == Joined || f.caughtUp && !f.founding):
		return Joined
	case f.founding:
		return Founding
	case f.listed:
		return Syncing
	case f.admitted:
		return Admitted
	}
	return New
}

// membership is this master's phase with the facts behind it. Safe for concurrent use.
type membership struct {
	mu    sync.Mutex // guards all below
	facts facts
	phase Phase
}

// note changes facts and moves to the phase that follows. Changed reports whether a fact changed.
func (m *membership) note(change func(*facts)) (now Phase, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.facts
	change(&m.facts)
	m.facts.joined = m.facts.joined || m.facts.listed
	m.phase = next(m.phase, m.facts)
	m.facts.caughtUp = false // it holds for this step only
	return m.phase, m.facts != before
}

// is returns the phase and the facts.
func (m *membership) is() (Phase, facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.phase, m.facts
}

// Phase returns this master's own phase.
func (n *Node) Phase() Phase {
	p, _ := n.membership.is()
	return p
}

// Founding reports whether this master is founding: it has decided to, and Config.OnFounded has not
// succeeded yet.
func (n *Node) Founding() bool {
	_, f := n.membership.is()
	return f.founding
}

// disowned reports whether every member that this master reaches refuses its node key.
func (n *Node) disowned() bool {
	_, f := n.membership.is()
	return f.disowned
}

// barred reports whether this master was removed and no member has admitted it again.
func (n *Node) barred() bool {
	_, f := n.membership.is()
	return f.barred
}

// joined reports whether the state has listed this master since the process began.
func (n *Node) joined() bool {
	_, f := n.membership.is()
	return f.joined
}

// phaseOf returns the phase of another master that the state lists. It needs no message of its own:
// a master that answers says whether it serves, and a silent one had caught up if the ring gave it
// a share.
func (n *Node) phaseOf(node string, reachable, serving bool) Phase {
	caughtUp := serving || !reachable && slices.Contains(n.state.Ring().Members, node)
	return next(New, facts{listed: true, joined: true, caughtUp: caughtUp})
}
