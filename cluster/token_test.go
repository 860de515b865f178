package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
)

// A token is on every master when the one that took it says so, survives the leader, and comes back
// with a backup.
func TestTokensAreOnAllMasters(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	hash := [32]byte{7}
	has := func(want bool) func(n *clustertest.Node) error {
		return func(n *clustertest.Node) error {
			if _, ok := n.State().Token(hash); ok != want {
				return fmt.Errorf("%s has the token: %v", n.ID, ok)
			}
			return nil
		}
	}
	everywhere := func(by *clustertest.Node, command fsm.Command, want bool) fsm.Result {
		t.Helper()
		r, index, err := proposed(by, command)
		if err != nil || r.Refused != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		confirmed(c, by, index)
		for _, n := range c.Nodes { // now, and not at some time
			if err := has(want)(n); err != nil {
				t.Error(err)
			}
		}
		return r
	}
	now := time.Now().UTC()
	everywhere(c.Follower(), &fsm.PutToken{
		Token: fsm.Token{Hash: hash, Owner: "file/carol", Data: []byte("x"),
			Expire: now.Add(time.Hour)}, Max: 10, MaxPerOwner: 10, At: now,
	}, true)
	saved, _, err := c.Follower().Save(t.Context())
	if err != nil || len(saved.Tokens) != 1 {
		t.Fatalf("%d tokens saved, %v", len(saved.Tokens), err)
	}
	if r := everywhere(c.Leader(), &fsm.DropToken{Hash: hash, At: now}, false); !r.Changed {
		t.Errorf("the deletion says that there was none: %+v", r)
	}
	if _, err := c.Follower().PutBack(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	c.WaitAll("the token of the backup", has(true))
}
