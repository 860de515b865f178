//go:build !race

package cluster_test

// What changes the address of a member in Raft's configuration can't run under the race detector:
// raft 1.8.0 reads a peer's id without the lock under which it replaces the peer (replication.go,
// updateLastAppended). The id stays the same.

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
)

func TestAMovedMemberIsFound(t *testing.T) {
	t.Parallel()
	var moved string
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		if moved != "" && i == 2 {
			cfg.Addr = moved
		}
	})
	c.WaitVoters(3)
	n := c.Nodes[2]
	n.Stop()
	host, port, err := net.SplitHostPort(n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	moved = net.JoinHostPort(strings.TrimSuffix(host, ".3")+".33", port)
	n.Addr = moved
	n.Start()
	c.WaitAll("the new address", func(o *clustertest.Node) error {
		m, ok := o.State().MemberByID(n.ID)
		if !ok || m.Addr != moved {
			return fmt.Errorf("%s", m.Addr)
		}
		return nil
	})
	c.WaitVoters(3)
	propose(t, n, offer("from the new address"))
}

// All masters get new addresses at once and keep their disks: they find each other by
// cluster_peers, although nobody can change a record before there is a quorum.
func TestAllMastersMove(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	propose(t, c.Leader(), offer("web1"))
	uuid := uuidOf(c.Nodes[0])
	for _, n := range c.Nodes {
		n.Stop()
	}
	for _, n := range c.Nodes {
		n.Addr = movedAddr(t, n.Addr)
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitAll("the new addresses", hasAddresses(c.Nodes))
	c.WaitVoters(3)
	for _, n := range c.Nodes {
		if uuidOf(n) != uuid {
			t.Errorf("%s is in another cluster", n.ID)
		}
	}
	propose(t, c.Nodes[1], offer("web2"))
	c.WaitAll("both keys", hasKey("web1"))
}

// Masters take each other's former addresses: raft's configuration can follow only in the order in
// which they become free, and does.
func TestShiftedAddresses(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 4, clustertest.Founders(3))
	shifted := c.Nodes[:3]
	for _, n := range shifted {
		n.Start()
	}
	c.WaitVoters(3)
	for _, n := range shifted {
		n.Stop()
	}
	shifted[0].Addr, shifted[1].Addr, shifted[2].Addr = shifted[1].Addr, shifted[2].Addr, movedAddr(t, shifted[2].Addr)
	var release []func()
	for _, n := range shifted {
		n.BeforeRun = func(n *clustertest.Node) { release = append(release, n.HoldAlign()) }
		n.Start()
	}
	c.WaitAll("the new addresses", hasAddresses(shifted))
	for _, end := range release {
		end()
	}
	c.Nodes[3].Start()
	c.WaitVoters(4)
}

// hasAddresses reports whether the records of some masters have their present addresses.
func hasAddresses(of []*clustertest.Node) func(*clustertest.Node) error {
	return func(n *clustertest.Node) error {
		for _, moved := range of {
			if m, ok := n.State().MemberByID(moved.ID); !ok || m.Addr != moved.Addr {
				return fmt.Errorf("%s is at %s, should be at %s", moved.ID, m.Addr, moved.Addr)
			}
		}
		return nil
	}
}
