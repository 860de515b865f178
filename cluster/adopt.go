package cluster

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/transport/peer"
)

// standsAlone reports whether the state is that of a stand-alone master whose configuration now
// names a cluster.
func (n *Node) standsAlone() bool {
	c, founded := n.state.Cluster()
	return founded && c.ClusterID == "" && n.port != nil
}

// claim returns what minions know of this master: a stand-alone master's own state, else the former
// master's keys.
func (n *Node) claim() *clusterpb.Former {
	key := n.ClusterKey()
	if !n.standsAlone() || key == nil {
		return n.former.message()
	}
	m := &clusterpb.Former{Key: keySum(key), From: "the state in " + n.cfg.DataDir}
	keys, _ := n.state.Keys()
	for _, k := range keys {
		if k.State == fsm.KeyAccepted {
			m.Accepted++
		}
	}
	return m
}

// adopt makes this master, which stood alone, the first member of its cluster. It serves its
// minions until then, and goes on serving them if it may not adopt: because a peer already has a
// cluster, or another former master's minions.
func (n *Node) adopt(ctx context.Context) error {
	if err := n.mayAdopt(n.askAll(ctx, n.cfg.set(),
		&clusterpb.JoinRequest{Found: true})); err != nil {
		return fmt.Errorf("not the first member of %s yet: %w", n.cfg.ClusterID, err)
	}
	c := &fsm.AdoptCluster{ClusterID: n.cfg.ClusterID, JoinKey: n.cfg.JoinKey, Member: n.self,
		At: n.utc()}
	r, _, err := n.Propose(ctx, c)
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return err
	}
	n.log.Info("this master stood alone; it is now the first member of its cluster, with all its data",
		"cluster_id", n.cfg.ClusterID)
	n.moved.beat()
	return nil
}

// mayAdopt judges the answers of peers. Peers without state and minions join later. So do those
// that stay absent for JoinTimeout, if this master has minions: without any it may be an empty disk
// that was started without its cluster's options, and the absent ones may be its cluster. An
// operator's order (Config.Found) chooses among masters that have state of their own, but never
// overrides an existing cluster.
func (n *Node) mayAdopt(answers map[string]answer) error {
	mine, _ := n.state.Cluster()
	claim := n.claim()
	fresh := map[string]*clusterpb.Former{n.cfg.Addr: claim}
	var errs, ahead []error
	for addr, a := range answers {
		if a.err != nil && !errors.Is(a.err, peer.ErrSelf) && !n.cfg.Found {
			switch {
			case !holds(claim):
				errs = append(errs, fmt.Errorf("this master has no minions, so it waits for all of cluster_peers, "+
					"which may have a cluster; start them, or, if none of them ever had one, start this one once "+
					"with salt-master --found: %w", a.err))
			case !n.ran(n.cfg.JoinTimeout):
				errs = append(errs,
					fmt.Errorf("waiting up to cluster_join_timeout (%v): this peer may have a "+
						"cluster key or minions of its own: %w", n.cfg.JoinTimeout, a.err))
			}
		}
		if a.err != nil || a.reply.GetUuid() == mine.UUID {
			continue
		}
		if f := a.reply.GetFormer(); f != nil {
			fresh[addr] = f
			ahead = append(ahead, n.ahead(addr, a, claim))
			continue
		}
		errs = append(errs, errors.New(n.otherCluster(n.self.ID, mine.UUID, addr, a.reply.GetUuid())))
	}
	if !n.cfg.Found {
		if err := conflict(fresh); err != nil {
			ahead = []error{err}
		}
		errs = append(errs, ahead...)
	}
	return errors.Join(errs...)
}

// ahead returns an error if a peer without a cluster has a better right than this master, which
// claims mine: it stands alone too and goes first, or only it has a former master's minions.
func (n *Node) ahead(addr string, a answer, mine *clusterpb.Former) error {
	f := a.reply.GetFormer()
	switch {
	case a.reply.GetUuid() != "" && compareFounders(f, a.from.Addr, mine, n.cfg.Addr) < 0:
		return fmt.Errorf("%s stands alone too and goes first: it has %d accepted minions, this master %d, and if "+
			"both or none have any, the lower address counts; to choose this master, start it once with "+
			"salt-master --found", addr, f.GetAccepted(), mine.GetAccepted())
	case a.reply.GetUuid() == "" && holds(f) && !holds(mine):
		return fmt.Errorf("%s holds a former master's key %s and %d accepted minions, which this master would leave "+
			"out: stop this one and move its data directory %s to another place, so that the other founds; or, to "+
			"leave them out, start this one once with salt-master --found",
			addr, f.GetFrom(), f.GetAccepted(), n.cfg.WholeDir)
	}
	return nil
}

// otherCluster explains how to choose between two histories. Each has keys that exist nowhere else.
func (n *Node) otherCluster(id, uuid, addr, other string) string {
	return fmt.Sprintf("%s belongs to cluster %s, and %s to cluster %s: they can't be merged, "+
		"because each has its own key and minions. "+
		"Choose one; on each master of the other, stop it and move its data directory to another place, as a copy of its keys; "+
		"when started again it joins. The data directory of %s is %s", id, uuid, addr, other, n.self.ID, n.cfg.WholeDir)
}

// checkClusterID refuses a cluster_id other than that of the cluster this master is a member of.
func (n *Node) checkClusterID() error {
	c, founded := n.state.Cluster()
	if !founded || c.ClusterID == "" || c.ClusterID == n.cfg.ClusterID {
		return nil
	}
	return fmt.Errorf("cluster_id is %q, but this master is a member of cluster %q, which keeps its name: set cluster_id to %s again. "+
		"Nothing was changed. To make it a member of another cluster, remove it there with salt-run cluster.remove, move %s to another place, "+
		"and start it", n.cfg.ClusterID, c.ClusterID, c.ClusterID, n.cfg.WholeDir)
}
