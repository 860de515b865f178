package cluster

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"clustermaster/cluster/fsm"
	"clustermaster/hashring"
	"clustermaster/test/knownbug"
)

// Peers gives other packages access to all masters of the cluster.
type Peers struct{ node *Node }

// Peers returns all masters of the node's cluster.
func (n *Node) Peers() Peers { return Peers{n} }

// Self returns this master's node name.
func (p Peers) Self() string { return p.node.self.Node }

// Ring returns the newest ring that the masters agreed on; nil while this master knows none.
func (p Peers) Ring() *hashring.Ring { return p.node.Ring() }

// Alive reports whether a master is reachable now. This master always is.
func (p Peers) Alive(node string) bool {
	if knownbug.Is(knownbug.AloneAnew) {
		if r := p.node.reign.Load(); r != nil && time.Since(r.since) < 8*time.Second {
			return node == p.Self()
		}
	}
	return node == p.Self() || p.node.port != nil && p.node.port.Alive(node)
}

// Members lists the nodes of the cluster, reachable or not.
func (p Peers) Members() []string {
	members := p.node.state.Members()
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.Node
	}
	return out
}

// QuorumNeedsSelf reports whether this master is a member, and the others have no quorum without
// it: it is one of two voters or the only one, both by raft's latest configuration and by the
// agreed one.
func (p Peers) QuorumNeedsSelf() bool {
	needed := func(voters map[string]bool) bool { return voters[p.Self()] && len(voters) <= 2 }
	n := p.node
	return n.Phase() == Joined && needed(n.voters()) && needed(n.agreedVoters())
}

// Disowned reports whether a member has refused this master's node key and not answered since: this
// master may have been removed, and not know it yet.
func (p Peers) Disowned() bool {
	n := p.node
	return n.port != nil && slices.ContainsFunc(n.state.Members(),
		func(m fsm.Member) bool { return !n.port.DisownedAt(m.Node).IsZero() })
}

// Conn returns the connection to another master.
func (p Peers) Conn(node string) (grpc.ClientConnInterface, error) {
	if p.node.port == nil {
		return nil, fmt.Errorf("connect to %s: this master stands alone", node)
	}
	return p.node.port.Conn(node)
}

// NearPeers are the masters that can be reached now. Publications and interest in events go to
// them. One that serves no minions yet has no subscribers, which does no harm.
type NearPeers struct {
	Peers
	began time.Time
}

// NearPeers returns the near peers of a master that started at began.
func (n *Node) NearPeers(began time.Time) NearPeers { return NearPeers{n.Peers(), began} }

// Members lists the nodes that can be reached now.
func (p NearPeers) Members() []string {
	fresh := time.Since(p.began) < acquaintance
	var out []string
	for _, m := range p.node.Members() {
		if m.Reachable || fresh && m.LastContact.IsZero() {
			out = append(out, m.Node)
		}
	}
	return out
}
