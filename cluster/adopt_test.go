package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

// standAlone gives a node of the kit the disk of a master that stood alone, with one accepted
// minion unless that is "".
func standAlone(t *testing.T, node *clustertest.Node, minion string) (key *wire.PrivateKey,
	uuid string) {
	t.Helper()
	n, err := cluster.Open(cluster.Config{ID: node.ID, DataDir: node.Dir}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	stop := running(t, n)
	serving(t, n)
	if minion != "" {
		if _, _, err := n.Propose(t.Context(), accept(minion)); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := n.State().Cluster()
	key = n.ClusterKey()
	stop()
	return key, c.UUID
}

// A master that stood alone becomes the first member of the cluster that its configuration names,
// with all that it has, in every order of starts.
func TestAStandAloneMasterBecomesTheFirstMember(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"it starts last": {0, 2, 1}, "first": {1, 0, 2},
		"in between": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Prepare(t, 3)
			key, uuid := standAlone(t, c.Nodes[1], "web1")
			for _, i := range order {
				c.Nodes[i].Start()
			}
			c.WaitVoters(3)
			hasClusterKey(t, c, key)
			for _, n := range c.Nodes {
				cl, _ := n.State().Cluster()
				k, _ := n.State().Key("web1")
				if cl.UUID != uuid || cl.ClusterID != clustertest.ClusterID ||
					k.State != fsm.KeyAccepted {
					t.Errorf("%s: cluster %q %s, was %s; key %+v", n.ID, cl.ClusterID, cl.UUID,
						uuid, k)
				}
			}
			// It is an ordinary member by now: it survives a restart, and the others a restart
			// without it.
			c.Nodes[1].Stop()
			propose(t, c.Nodes[0], offer("web2"))
			c.Nodes[1].Start()
			c.WaitVoters(3)
		})
	}
}

// It becomes one although a peer is away for long; that one joins later.
func TestAStandAloneMasterWaitsNotForEver(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 3)
	key, _ := standAlone(t, c.Nodes[1], "web1")
	c.Nodes[1].Start()
	c.Nodes[2].Start()
	c.WaitVoters(2)
	c.Nodes[0].Start()
	c.WaitVoters(3)
	hasClusterKey(t, c, key)
}

// One without minions may be an empty disk that was started without its cluster's options. However
// long its peers are silent, it waits for all of them or for an order.
func TestAStandAloneMasterWithoutMinionsWaits(t *testing.T) {
	t.Parallel()
	ordered := false
	c := clustertest.Prepare(t, 3, func(i int, cfg *cluster.Config) {
		cfg.Found, cfg.JoinTimeout = ordered && i == 1, time.Millisecond
	})
	key, _ := standAlone(t, c.Nodes[1], "")
	c.Nodes[1].Start()
	c.Nodes[2].Start()
	c.Wait("it says whom it waits for", says(c.Nodes[1], "this master has no minions, so it waits for all"))
	if cl, _ := c.Nodes[1].State().Cluster(); cl.ClusterID != "" {
		t.Errorf("it became the first member of %s", cl.ClusterID)
	}
	c.Nodes[1].Stop()
	ordered = true
	c.Nodes[1].Start()
	c.WaitVoters(2)
	c.Nodes[0].Start()
	c.WaitVoters(3)
	hasClusterKey(t, c, key)
}

// Two masters that stood alone are two histories: neither becomes a member until one is chosen,
// both go on serving, and no line advises to destroy what only one of them has.
func TestTwoStandAloneMastersRefuseUntilOneIsChosen(t *testing.T) {
	t.Parallel()
	ordered := -1
	c := clustertest.Prepare(t, 3, func(i int, cfg *cluster.Config) {
		cfg.Found,
			cfg.JoinTimeout = i == ordered, time.Minute
	})
	key, _ := standAlone(t, c.Nodes[0], "web1")
	standAlone(t, c.Nodes[1], "web2")
	for _, n := range c.Nodes {
		n.Start()
	}
	for _, n := range c.Nodes {
		c.Wait(n.ID+" says how to choose",
			says(n, "no master founds, because there are keys of different masters"))
	}
	for _, n := range c.Nodes[:2] {
		if got := n.Apart(); !strings.Contains(got, "no master founds, because there are keys") {
			t.Errorf("%s is apart: %q", n.ID, got)
		}
		cl, _ := n.State().Cluster()
		if cl.ClusterID != "" || len(n.Members()) != 1 || !n.Ready() {
			t.Errorf("%s: cluster %q, %d members, ready %v", n.ID, cl.ClusterID, len(n.Members()),
				n.Ready())
		}
	}
	ordered = 0
	c.Nodes[0].Stop()
	c.Nodes[0].Start()
	c.Wait("the chosen one has the third master", func() error {
		if got := len(c.Nodes[0].Members()); got != 2 {
			return fmt.Errorf("%d members", got)
		}
		return nil
	})
	c.Wait("the other is told", says(c.Nodes[1],
		"move its data directory to another place, as a copy of its keys"))
	c.Wait("it says which that is", says(c.Nodes[1],
		"The data directory of "+c.Nodes[1].ID+" is "+c.Nodes[1].Dir))
	for _, n := range c.Nodes {
		if log := n.Log(); strings.Contains(log, "remove its data") ||
			strings.Contains(log, "delete") {
			t.Errorf("%s advises to destroy: %s", n.ID, log)
		}
	}
	// As the message says: its disk is put aside, and it joins.
	c.Nodes[1].Stop()
	c.Nodes[1].Wipe()
	c.Nodes[1].Start()
	c.WaitVoters(3)
	hasClusterKey(t, c, key)
	for _, n := range c.Nodes {
		if got := n.Apart(); got != "" {
			t.Errorf("%s, a member, is apart: %q", n.ID, got)
		}
	}
}

// Of masters that stood alone only one becomes the first member, in every order of starts: the one
// with minions, or if none has any, the one with the lowest address.
func TestOneOfTheStandAloneMastersGoesFirst(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		minions  [3]string
		order    []int
		together bool
		first    int
	}{
		"minions, last":        {[3]string{"", "web1", ""}, []int{0, 2, 1}, false, 1},
		"minions, first":       {[3]string{"", "web1", ""}, []int{1, 2, 0}, false, 1},
		"minions, together":    {[3]string{"", "web1", ""}, []int{0, 1, 2}, true, 1},
		"no minions":           {order: []int{2, 1, 0}},
		"no minions, together": {order: []int{2, 1, 0}, together: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Prepare(t, 3, func(_ int, cfg *cluster.Config) { cfg.JoinTimeout = time.Minute })
			for i, n := range c.Nodes {
				standAlone(t, n, tc.minions[i])
			}
			for i, at := range tc.order[:2] {
				if next := c.Nodes[tc.order[i+1]]; tc.together { // all listen before any asks
					c.Nodes[at].BeforeRun = func(*clustertest.Node) { next.Start() }
				}
			}
			for _, at := range tc.order {
				c.Nodes[at].Start()
			}
			for i, n := range c.Nodes {
				if i != tc.first {
					c.Wait(n.ID+" is told", says(n, "they can't be merged"))
				}
			}
			for i, n := range c.Nodes {
				cl, _ := n.State().Cluster()
				if first := cl.ClusterID != ""; first != (i == tc.first) {
					t.Errorf("%s is the first member: %v", n.ID, first)
				}
			}
		})
	}
}

// A master that stood alone and has no minions does not leave out those of a former master.
func TestAStandAloneMasterLeavesNoMinionsOut(t *testing.T) {
	t.Parallel()
	ordered := false
	_, former := formerMaster(t, 3)
	c := clustertest.Prepare(t, 2, func(i int, cfg *cluster.Config) {
		if cfg.Found = ordered && i == 0; i == 1 {
			cfg.FoundingKeys = []cluster.FoundingKey{former}
		}
	})
	key, _ := standAlone(t, c.Nodes[0], "")
	for _, n := range c.Nodes {
		n.Start()
	}
	c.Wait("it says how to choose", says(c.Nodes[0],
		"3 accepted minions, which this master would leave out: stop this one and move its data directory"))
	if cl, _ := c.Nodes[0].State().Cluster(); cl.ClusterID != "" || founded(c.Nodes[1]) {
		t.Error("there is a cluster")
	}
	c.Nodes[0].Stop()
	ordered = true
	c.Nodes[0].Start()
	c.WaitVoters(2)
	hasClusterKey(t, c, key)
}

// A master that stood alone and has not applied its last keys yet, because its disk is slow, does
// not answer as one without minions.
func TestAStandAloneMasterAnswersWithAllItsKeys(t *testing.T) {
	t.Parallel()
	var release func()
	c := clustertest.Prepare(t, 2, func(i int, cfg *cluster.Config) {
		cfg.JoinTimeout = time.Minute
		if i == 1 {
			cfg.OpenLog = func(dir string) (cluster.RaftLog, error) {
				log, err := openFaulty(dir)
				release = log.hang(t)
				return log, err
			}
		}
	})
	for i, n := range c.Nodes {
		standAlone(t, n, fmt.Sprintf("web%d", i+1))
	}
	c.Nodes[1].Start()
	c.Nodes[0].Start()
	c.Wait("the first waits", says(c.Nodes[0], "could not answer the join request"))
	release()
	for _, n := range c.Nodes {
		c.Wait(n.ID+" says how to choose",
			says(n, "no master founds, because there are keys of different masters"))
	}
}

// The master refuses to start, or ends as soon as it knows: what its disk says of the last command
// need not be known as committed at the start.
func TestAnotherClusterIDIsRefused(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 1, func(_ int, cfg *cluster.Config) { cfg.Found = true })
	c.WaitVoters(1)
	n := c.Nodes[0]
	n.Stop()
	for _, id := range []string{"other", ""} {
		other, err := cluster.Open(cluster.Config{ID: n.ID, DataDir: n.Dir, ClusterID: id}, nil,
			nil, nil)
		if err == nil {
			err = other.Run(patience(t))
		}
		want := `is a member of cluster "kit", which keeps its name: set cluster_id to kit again. Nothing was changed.`
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("cluster_id %q: got %v", id, err)
		}
	}
	n.Start()
	c.WaitVoters(1)
}
