package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/wire"
)

// formerMaster is what a box has of the Salt master that ran on it: its RSA key and accepted
// minions.
func formerMaster(t *testing.T, accepted int) (*wire.PrivateKey, cluster.FoundingKey) {
	t.Helper()
	key, err := wire.GeneratePrivateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	return key, cluster.FoundingKey{
		From: "pki/master.pem", Read: func() ([]byte, error) { return key.PEM(), nil },
		Accepted: func() (int, error) { return accepted, nil },
	}
}

func founded(n *clustertest.Node) bool {
	_, ok := n.State().Cluster()
	return ok
}

func hasClusterKey(t *testing.T, c *clustertest.Cluster, key *wire.PrivateKey) {
	t.Helper()
	for _, n := range c.Nodes {
		if n.ClusterKey() == nil || n.ClusterKey().Public().Text() != key.Public().Text() {
			t.Errorf("%s has not the former master's key", n.ID)
		}
		if got, want := uuidOf(n), uuidOf(c.Nodes[0]); got != want {
			t.Errorf("%s is in cluster %s, the first in %s", n.ID, got, want)
		}
	}
}

// The master with the former master's key and minions founds, wherever it stands in the order of
// addresses and of starts; a key that no minion knows does not count against it.
func TestTheFormerMasterFounds(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"it starts last": {0, 1, 2}, "first": {2, 1, 0},
		"in between": {0, 2, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, former := formerMaster(t, 3)
			_, unused := formerMaster(t, 0)
			unused.From = "pki/fresh.pem"
			c := clustertest.Prepare(t, 3, func(i int, cfg *cluster.Config) {
				switch i {
				case 2:
					cfg.FoundingKeys = []cluster.FoundingKey{unused, former}
				case 1:
					cfg.FoundingKeys = []cluster.FoundingKey{unused}
				}
			})
			for _, i := range order {
				c.Nodes[i].Start()
			}
			c.WaitVoters(3)
			hasClusterKey(t, c, key)
			if got := c.Nodes[2].Log(); !strings.Contains(got, "key=pki/master.pem") {
				t.Error("the founder does not say which key it took")
			}
			for _, n := range c.Nodes[1:] {
				c.Wait(n.ID+" says which key was left out", says(n, "RSA key not used"))
			}
		})
	}
}

// A master with a key founds before one without, though no minion was accepted with it.
func TestAKeyWithoutMinionsCountsToo(t *testing.T) {
	t.Parallel()
	key, former := formerMaster(t, 0)
	c := clustertest.New(t, 2, func(i int, cfg *cluster.Config) {
		if i == 1 {
			cfg.FoundingKeys = []cluster.FoundingKey{former}
		}
	})
	c.WaitVoters(2)
	hasClusterKey(t, c, key)
}

// A master whose peers are all away says so to the operator, in one line.
func TestAMasterWithoutPeersIsApart(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 3)
	c.Nodes[0].Start()
	c.Wait("it names both", func() error {
		got := c.Nodes[0].Apart()
		for _, silent := range c.Nodes[1:] {
			if !strings.Contains(got, silent.Addr) || strings.Contains(got, "\n") {
				return fmt.Errorf("apart: %q", got)
			}
		}
		return nil
	})
}

// The same key on two masters is one former master.
func TestTheSameFormerKeyTwiceIsNoConflict(t *testing.T) {
	t.Parallel()
	key, former := formerMaster(t, 3)
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		if i > 0 {
			cfg.FoundingKeys = []cluster.FoundingKey{former}
		}
	})
	c.WaitVoters(3)
	hasClusterKey(t, c, key)
}

// Keys of two former masters: nobody founds, each says how to choose, and the order does choose.
func TestTwoFormerMastersRefuseUntilOneIsChosen(t *testing.T) {
	t.Parallel()
	_, first := formerMaster(t, 3)
	key, second := formerMaster(t, 4)
	ordered := -1
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		cfg.Found = i == ordered
		switch i {
		case 1:
			cfg.FoundingKeys = []cluster.FoundingKey{first}
		case 2:
			cfg.FoundingKeys = []cluster.FoundingKey{second}
		}
	})
	for _, n := range c.Nodes {
		c.Wait(n.ID+" says how to choose", says(n, "there are keys of different masters: "))
		if !strings.Contains(n.Log(), "with 4 accepted minions; choose the master") || founded(n) {
			t.Errorf("%s: founded %v, log %s", n.ID, founded(n), n.Log())
		}
	}
	c.Nodes[0].Stop() // an order to who has no key would lose the minions of both
	ordered = 0
	c.Nodes[0].Start()
	c.Wait("the wrong one refuses", says(c.Nodes[0],
		"which this master would leave out: start that one with salt-master --found"))
	if founded(c.Nodes[0]) {
		t.Fatal("founded without the key")
	}
	c.Nodes[0].Stop()
	c.Nodes[2].Stop()
	ordered = 2
	c.Nodes[2].Start()
	c.Nodes[0].Start()
	c.WaitVoters(3)
	hasClusterKey(t, c, key)
	c.Wait("the other names the key that it keeps",
		says(c.Nodes[1], "RSA key not used: the cluster has another"))
}

// A key that can't be read may be the key that minions know, so no master founds without it.
func TestAnUnreadableFormerKeyStopsTheFounding(t *testing.T) {
	t.Parallel()
	broken := true
	key, former := formerMaster(t, 3)
	read := former.Read
	former.Read = func() ([]byte, error) {
		if broken {
			return nil, fmt.Errorf("open pki/master.pem: %w", fs.ErrPermission)
		}
		return read()
	}
	c := clustertest.New(t, 2, func(i int, cfg *cluster.Config) {
		if i == 1 {
			cfg.FoundingKeys = []cluster.FoundingKey{former}
		}
	})
	for _, n := range c.Nodes {
		c.Wait(n.ID+" names the file", says(n,
			"open pki/master.pem: permission denied; repair it, or move it"))
		if founded(n) {
			t.Errorf("%s has founded", n.ID)
		}
	}
	c.Nodes[1].Stop()
	broken = false
	c.Nodes[1].Start()
	c.WaitVoters(2)
	hasClusterKey(t, c, key)
}

// Two orders at once make one cluster or none, never two. If none, it is founded once one of the
// orders is withdrawn.
func TestTwoOrdersToFoundMakeNoTwoClusters(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"one after the other": false,
		"both listen before either asks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ordered := []bool{true, true}
			c := clustertest.Prepare(t, 2,
				func(i int, cfg *cluster.Config) { cfg.Found = ordered[i] })
			a, b := c.Nodes[0], c.Nodes[1]
			if together {
				a.BeforeRun = func(*clustertest.Node) { b.Start() }
			}
			a.Start()
			b.Start()
			const also = "was also started with --found"
			var refused time.Time // since when one of them says so and none has founded
			c.Wait("they are one cluster, or go on to refuse", func() error {
				inA, inB := uuidOf(a), uuidOf(b)
				switch {
				case inA != "" && inB != "" && inA != inB:
					t.Fatalf("two clusters: %s and %s", inA, inB)
				case inA != "" && inA == inB:
					return nil
				case inA+inB != "", !strings.Contains(a.Log()+b.Log(), also):
				case refused.IsZero():
					refused = time.Now()
				case time.Since(refused) > 3*time.Second: // several more attempts
					return nil
				}
				return errors.New("not yet")
			})
			if !founded(a) {
				b.Stop()
				ordered[1] = false
				b.Start()
			}
			c.WaitVoters(2)
			if uuidOf(a) != uuidOf(b) {
				t.Errorf("two clusters: %s and %s", uuidOf(a), uuidOf(b))
			}
		})
	}
}
