package cluster

// HoldCommand counts as a command that is under way, for which a leader waits before it hands over,
// until the caller ends it.
func (n *Node) HoldCommand() (end func()) {
	n.applying.Add(1)
	return func() { n.applying.Add(-1) }
}

// HoldAlign keeps raft's configuration as it is until the caller ends it.
func (n *Node) HoldAlign() (end func()) {
	n.aligning.Lock()
	return n.aligning.Unlock
}

// LeaveOffice lets raft make another voter the leader, without regard to commands.
func (n *Node) LeaveOffice() error { return n.raft.LeadershipTransfer().Error() }
