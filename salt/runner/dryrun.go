package runner

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// DryRuns adds a parameter test to the orders that change the cluster's members or secrets: with it
// they only report what they would do.
func DryRuns(status ClusterStatus, orders []Function) []Function {
	previews := map[string]func(v ClusterView, c *Call) (value.Map, error){
		"cluster.remove": previewRemove, "cluster.demote": previewDemote,
		"cluster.drain": previewDrain, "cluster.transfer_leader": previewTransfer,
		"cluster.rotate_secret": func(ClusterView, *Call) (value.Map, error) {
			return value.Map{{Key: "would_rotate", Value: []any{"cluster_secret"}}}, nil
		},
		"cluster.rotate_keys": func(ClusterView, *Call) (value.Map, error) {
			return value.Map{{Key: "would_rotate", Value: []any{"aes", "session"}}}, nil
		},
	}
	for i, f := range orders {
		preview, ok := previews[f.Name]
		if !ok {
			continue
		}
		run := f.Run
		orders[i].Params = append(slices.Clip(f.Params), function.Opt("test", false))
		_, example, _ := strings.Cut(f.Doc, "\n    salt-run ")
		orders[i].Doc += "\n    salt-run --dry-run " + example
		orders[i].Run = func(ctx context.Context, c *Call) (any, error) {
			if !c.True("test") {
				return run(ctx, c)
			}
			v, err := status.View(ctx)
			if err != nil {
				return nil, err
			}
			if v.Note != "" {
				c.Warn(v.Note)
			}
			return preview(v, c)
		}
	}
	return orders
}

// member finds a peer by id or address; "" is the master that was asked.
func (v ClusterView) member(name string) (PeerView, error) {
	if name == "" {
		name = v.ID
	}
	for _, p := range v.Peers {
		host, _, _ := net.SplitHostPort(p.Addr)
		if name == p.ID || name == p.Addr || name == host {
			return p, nil
		}
	}
	return PeerView{}, fmt.Errorf("peer %s: not in the cluster; see salt-run cluster.members", name)
}

// votersWithout returns the voters that remain when one loses its vote, how many of them are in
// contact, and how many are needed.
func (v ClusterView) votersWithout(id string) (left, inContact, needed int) {
	for _, p := range v.Peers {
		if !p.Voter || p.ID == id {
			continue
		}
		left++
		if p.Reachable {
			inContact++
		}
	}
	return left, inContact, left/2 + 1
}

// warnQuorum warns what the remaining voters can't do.
func warnQuorum(c *Call, left, inContact, needed int) {
	switch {
	case left == 0:
		c.Warn("no voter would be left: the order would be refused")
	case inContact < needed:
		c.Warn(fmt.Sprintf("only %d of the %d voters that are left are in contact, and %d are needed: keys and members could not be changed", inContact, left, needed))
	case left <= 2:
		c.Warn(fmt.Sprintf("%d voters would be left: the death of one would stop changes of keys and members", left))
	}
}

func previewRemove(v ClusterView, c *Call) (value.Map, error) {
	p, err := v.member(c.Text("peer"))
	if err != nil {
		return nil, err
	}
	if p.ID == v.ID {
		return nil, fmt.Errorf("peer %s: a master can't remove itself; ask another master", p.ID)
	}
	left, inContact, needed := v.votersWithout(p.ID)
	warnQuorum(c, left, inContact, needed)
	if p.Reachable {
		c.Warn(p.ID +
			" is running; its minions would have to go elsewhere at once. salt-run cluster.drain " +
			p.ID + " moves them first")
	}
	return value.Map{
		{Key: "would_remove", Value: p.ID}, {Key: "address", Value: p.Addr},
		{Key: "voters_left", Value: int64(left)}, {Key: "in_contact", Value: int64(inContact)},
		{Key: "needed", Value: int64(needed)},
		{Key: "would_rotate_secret", Value: !c.True("keep_secret")},
	}, nil
}

func previewDemote(v ClusterView, c *Call) (value.Map, error) {
	p, err := v.member(c.Text("peer"))
	if err != nil {
		return nil, err
	}
	if !p.Voter {
		return nil, fmt.Errorf("peer %s: has no vote", p.ID)
	}
	left, inContact, needed := v.votersWithout(p.ID)
	warnQuorum(c, left, inContact, needed)
	return value.Map{{Key: "would_demote", Value: p.ID}, {Key: "voters_left", Value: int64(left)},
		{Key: "in_contact", Value: int64(inContact)}, {Key: "needed", Value: int64(needed)}}, nil
}

func previewDrain(v ClusterView, c *Call) (value.Map, error) {
	p, err := v.member(c.Text("peer"))
	if err != nil {
		return nil, err
	}
	ready := []string{}
	for _, o := range v.Peers {
		if o.ID != p.ID && o.Ready {
			ready = append(ready, o.ID)
		}
	}
	if len(ready) == 0 {
		c.Warn("no other master is ready: the balancer would have none to send minions to")
	}
	return value.Map{{Key: "would_drain", Value: p.ID}, {Key: "leads", Value: p.ID == v.Leader},
		{Key: "ready_without_it", Value: value.Texts(ready)}}, nil
}

func previewTransfer(v ClusterView, c *Call) (value.Map, error) {
	to := ""
	if name := c.Text("peer"); name != "" {
		p, err := v.member(name)
		if err != nil {
			return nil, err
		}
		if !p.Voter {
			return nil,
				fmt.Errorf("peer %s: has no vote and can't lead; salt-run cluster.promote %s gives it one", p.ID, p.ID)
		}
		to = p.ID
	}
	return value.Map{{Key: "leader_id", Value: textOrNone(v.Leader)},
		{Key: "would_lead", Value: textOrNone(to)}}, nil
}

func textOrNone(s string) any {
	if s == "" {
		return nil
	}
	return s
}
