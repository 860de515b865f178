package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/level"
	"clustermaster/transport/peer"
)

// A member that was down while the secret was rotated lets nobody in with the old one: it hears its
// leader before it has learnt of the rotation.
func TestOldSecretAtAMemberThatIsBehind(t *testing.T) {
	t.Parallel()
	const behind = 2
	hang, release := false, func() {}
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		if i == behind && hang {
			cfg.OpenLog = func(dir string) (cluster.RaftLog, error) {
				log, err := openFaulty(dir)
				release = log.hang(t)
				return log, err
			}
		}
	})
	c.WaitVoters(3)
	b := c.Nodes[behind]
	b.Stop()
	if _, err := c.Leader().RotateSecret(patience(t)); err != nil {
		t.Fatal(err)
	}
	hang = true
	b.Start()
	c.Wait("it hears the leader", func() error {
		if _, led := b.Leader(); !led {
			return errors.New("it does not")
		}
		return nil
	})
	old, _ := b.JoinKey()
	thief := peer.Hello{ID: "m9", Addr: "127.99.0.9:4520", Incarnation: strings.Repeat("9", 16),
		ClusterID: clustertest.ClusterID, Version: "test", Level: level.Supported(), SPKI: [32]byte{9}}
	ask := func() error {
		_, err := b.HandleJoin(t.Context(), thief, old, nil)
		return err
	}
	if err := ask(); err != nil { // others may be able to tell, and it names them
		t.Errorf("while it is behind: %v", err)
	}
	release()
	c.Wait("it refuses the old secret", func() error {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "has been replaced") {
			return fmt.Errorf("answered with %v", err)
		}
		return nil
	})
	c.WaitVoters(3)
	if _, in := c.Leader().State().MemberByID(thief.ID); in {
		t.Error("the old secret let a master in")
	}
}
