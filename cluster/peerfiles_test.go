package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
)

// exported starts the export of a node's peers to dir, until the returned function is called.
func exported(t *testing.T, n *clustertest.Node, dir string) (stop func()) {
	t.Helper()
	files, err := cluster.NewPeerFiles(n.Node, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.OnApply(files.Follow)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- files.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func pubs(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.pub"))
	for i := range files {
		files[i] = strings.TrimSuffix(filepath.Base(files[i]), ".pub")
	}
	return files // sorted
}

func hasPubs(dir string, want ...string) func() error {
	return func() error {
		if got := pubs(dir); !slices.Equal(got, want) {
			return fmt.Errorf("files of %v, want %v", got, want)
		}
		return nil
	}
}

func TestDeletedPeerFileRemovesThePeer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var stop func()
	c := clustertest.Prepare(t, 3, func(i int,
		cfg *cluster.Config) {
		cfg.NodePub = fmt.Sprintf("key of node %d\n", i)
	})
	for _, n := range c.Nodes {
		n.BeforeRun = func(n *clustertest.Node) {
			if n == c.Nodes[0] {
				stop = exported(t, n, dir)
			}
		}
		n.Start()
	}
	c.WaitVoters(3)
	ids := []string{c.Nodes[0].ID, c.Nodes[1].ID, c.Nodes[2].ID}
	keeper, gone := c.Nodes[0], c.Nodes[2]
	restart := func() {
		t.Helper()
		keeper.Stop()
		stop()
		keeper.Start()
	}
	c.Wait("all are exported", hasPubs(dir, ids...))
	if b, err := os.ReadFile(filepath.Join(dir, ids[1]+".pub")); err != nil ||
		string(b) != "key of node 1\n" {
		t.Errorf("%q %v", b, err)
	}

	// A changed or foreign file means nothing, nor do several missing ones.
	for _, f := range []string{ids[1] + ".pub", "10.0.0.9.pub"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	c.Wait("the changed one is written anew", func() error {
		if b, _ := os.ReadFile(filepath.Join(dir, ids[1]+".pub")); string(b) != "key of node 1\n" {
			return fmt.Errorf("%q", b)
		}
		return nil
	})
	if err := os.Remove(filepath.Join(dir, "10.0.0.9.pub")); err != nil {
		t.Errorf("somebody else's file: %v", err)
	}
	keeper.Stop()
	stop()
	for _, id := range ids[1:] {
		os.Remove(filepath.Join(dir, id+".pub"))
	}
	keeper.Start()
	c.Wait("both are written anew", hasPubs(dir, ids...))
	c.WaitVoters(3)

	// An index that can't be read removes nobody.
	keeper.Stop()
	stop()
	os.Remove(filepath.Join(dir, ids[2]+".pub"))
	if err := os.WriteFile(filepath.Join(dir, ".clustermaster_export"),
		[]byte(`{"index": 12, "pee`), 0o600); err != nil {
		t.Fatal(err)
	}
	keeper.Start()
	c.Wait("all are written anew", hasPubs(dir, ids...))
	c.WaitVoters(3)

	// One missing file is the order.
	keeper.Stop()
	stop()
	os.Remove(filepath.Join(dir, ids[2]+".pub"))
	keeper.Start()
	c.Wait("the peer is out, and knows", func() error {
		if n := len(keeper.Members()); n != 2 {
			return fmt.Errorf("%d members", n)
		}
		return says(gone, "was removed from the cluster and no longer serves")()
	})
	c.Wait("its file stays away", hasPubs(dir, ids[:2]...))
	if len(keeper.State().Bars()) != 1 {
		t.Error("it is not barred")
	}
	if ok, err := keeper.Allow(patience(t), gone.ID); err != nil || !ok {
		t.Fatalf("allow: %v %v", ok, err)
	}
	c.WaitVoters(3)
	c.Wait("its file is back", hasPubs(dir, ids...))
	restart()
	c.WaitVoters(3) // the returned one is not removed once more
	stop()
}

// A file that is missing while there is no quorum removes nobody, until there is one.
func TestDeletedPeerFileWaitsForAQuorum(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var stop func()
	c := clustertest.Prepare(t, 3, func(i int,
		cfg *cluster.Config) {
		cfg.NodePub = fmt.Sprintf("key of node %d\n", i)
	})
	for _, n := range c.Nodes {
		n.BeforeRun = func(n *clustertest.Node) {
			if n == c.Nodes[0] {
				stop = exported(t, n, dir)
			}
		}
		n.Start()
	}
	c.WaitVoters(3)
	c.Wait("all are exported", hasPubs(dir, c.Nodes[0].ID, c.Nodes[1].ID, c.Nodes[2].ID))
	for _, n := range c.Nodes {
		n.Stop()
	}
	stop()
	os.Remove(filepath.Join(dir, c.Nodes[2].ID+".pub"))
	c.Nodes[0].Start()
	c.Wait("it serves alone and says why it waits",
		says(c.Nodes[0], "peer whose file was deleted not removed yet"))
	if n := len(c.Nodes[0].Members()); n != 3 {
		t.Errorf("%d members without a quorum", n)
	}
	c.Nodes[1].Start()
	c.Wait("removed", func() error {
		if len(c.Nodes[0].Members()) != 2 {
			return errors.New("not yet")
		}
		return nil
	})
	stop()
}
