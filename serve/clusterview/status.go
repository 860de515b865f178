package clusterview

import (
	"context"
	"strings"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/level"
	"clustermaster/salt/runner"
	"clustermaster/store/ringstore"
)

// Status shows members and ring.
type Status struct {
	Node  *cluster.Node
	Store *ringstore.Store

	ID         string // of this master
	Clustered  bool
	ClockLimit time.Duration // the option cluster_clock_limit
}

var _ runner.ClusterStatus = Status{}

// View implements runner.ClusterStatus.
func (s Status) View(ctx context.Context) (runner.ClusterView, error) {
	n := s.Node
	v := runner.ClusterView{ID: s.ID, MembershipIndex: -1, Term: n.Term()}
	if !s.Clustered {
		v.Term = 0
		v.Alarms = alarmsOf(n.Self())
		return v, nil
	}
	v.Note, v.Apart = n.Fresh(ctx), n.Apart()
	v.ClocksDiffer = n.ClocksDiffer()
	v.Differing, v.Odd = n.StatesDiffer()
	v.Level, v.Supported = n.Level(), level.Supported()
	v.MembershipIndex = int64(n.State().MembershipVersion())
	v.Unhealthy, v.Demoted = n.UnhealthyVoters(), n.RecentlyDemoted()
	for _, b := range n.State().Bars() {
		v.Barred = append(v.Barred, b.ID)
	}
	members := n.Members()
	var head uint64
	for _, m := range members {
		head = max(head, m.Applied)
	}
	for _, m := range members {
		p := runner.PeerView{
			ID: m.ID, Addr: m.Addr, Version: m.Version, Level: m.Level, ClockAhead: m.ClockAhead,
			ClockKnown: m.ClockKnown,
			ClockLimit: s.ClockLimit, State: stateOf(m), Phase: m.Phase.String(), Voter: m.Voter,
			Reachable: m.Reachable, Serving: m.Serving, Ready: m.Ready,
			Lag: head - min(head, m.Applied), LastContact: -1, Extensions: m.Extensions, More: rootsMore(m),
		}
		if !m.LastContact.IsZero() {
			p.LastContact = time.Since(m.LastContact)
		}
		if m.Leader {
			v.Leader = m.ID
		}
		v.Peers, v.Alarms = append(v.Peers, p), append(v.Alarms, alarmsOf(m)...)
	}
	return v, nil
}

// alarmsOf puts the member's id before each.
func alarmsOf(m cluster.Member) []string {
	var out []string
	for _, a := range m.Alarms {
		out = append(out, m.ID+": "+a)
	}
	return out
}

// stateOf is the one word that says most of a member.
func stateOf(m cluster.Member) string {
	switch {
	case !m.Reachable:
		return "unreachable"
	case !m.Serving && m.Sync.Joining:
		return "syncing"
	case !m.Serving:
		return "joining"
	case m.Draining:
		return "draining"
	case m.Voter:
		return "voter"
	}
	return "learner"
}

// Ring implements runner.ClusterStatus.
func (s Status) Ring(context.Context) (runner.RingView, error) {
	info := s.Store.Info()
	v := runner.RingView{
		Clustered: s.Clustered, Epoch: info.Epoch, Replicas: info.Replicas,
		Partitions: info.Partitions, VirtualNodes: info.Vnodes,
		Shares: make(map[string]float64), Refusing: make(map[string]string),
		HintsPending: int64(info.HintsPending), UnderReplicated: int64(info.UnderReplicated),
		TransferBytes: int64(info.TransferBytes),
	}
	for _, n := range info.Nodes {
		id, _, _ := strings.Cut(n.Node, "/")
		v.Nodes = append(v.Nodes, id)
		v.Shares[id] = n.Share
		if n.Refilling {
			v.Refilling = append(v.Refilling, id)
		}
		if n.Refuses != "" {
			v.Refusing[id] = n.Refuses
		}
		if n.Pending > 0 {
			v.Transfers = append(v.Transfers, runner.TransferView{
				To: id, Partitions: n.Pending, Fetched: int64(n.Fetched),
				Expected: int64(n.Expected), ETA: n.ETA,
			})
		}
	}
	return v, nil
}
