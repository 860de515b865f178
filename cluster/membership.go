package cluster

import (
	"slices"
	"sync"
)

// Phase is how far a master is on its way into its cluster and out of it.
type Phase uint8

// The phases. They are shown, never stored or sent: each master derives them from what it knows.
const (
	New      Phase = iota // no member has let it in, and it has founded nothing
	Founding              // it founds the cluster; what it brings is not imported yet
	Admitted              // a member let it in; the replicated state that says so is on its way
	// a member that catches up, and whose share of the ring is not its own yet
	Syncing
	Joined // a member that has begun to serve
	// it must not serve: removed, or every member that it reaches refuses its key
	Removed
)

// String is the word that salt-run cluster.members shows.
func (p Phase) String() string {
	return [...]string{"new", "founding", "admitted", "syncing", "member", "removed"}[p]
}

// facts are what the phase follows from.
type facts struct {
	listed   bool // the replicated state lists this master
	joined   bool // it did so once since this process began
	founding bool // founded by this master, and OnFounded has not succeeded yet
	admitted bool // a member has named the others
	// it may serve: its share of the ring is its own, and it knows what the leader knows
	caughtUp bool
	barred   bool // a member said that it was removed
	disowned bool // no member answers, and one refuses this master's node key
}

// next is the phase that follows. A master that has begun to serve goes on without a leader; one
// that was out begins again with catching up.
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

// note changes facts and moves to the phase that follows; changed says whether a fact did.
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

// Phase is this master's own.
func (n *Node) Phase() Phase {
	p, _ := n.membership.is()
	return p
}

// founding says that this master founds, and has not ended it.
func (n *Node) founding() bool {
	_, f := n.membership.is()
	return f.founding
}

// disowned says that every member that this master reaches refuses its node key.
func (n *Node) disowned() bool {
	_, f := n.membership.is()
	return f.disowned
}

// barred says that this master was removed, and no member has admitted it again.
func (n *Node) barred() bool {
	_, f := n.membership.is()
	return f.barred
}

// joined says that the state has listed this master since the process began.
func (n *Node) joined() bool {
	_, f := n.membership.is()
	return f.joined
}

// phaseOf is the phase of another master that the state lists. Nothing is sent for it: one that
// answers says whether it serves; one that is silent had caught up if the ring gave it its share.
func (n *Node) phaseOf(node string, reachable, serving bool) Phase {
	caughtUp := serving || !reachable && slices.Contains(n.state.Ring().Members, node)
	return next(New, facts{listed: true, joined: true, caughtUp: caughtUp})
}
