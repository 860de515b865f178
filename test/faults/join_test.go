package faults

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// slowly is a transfer rate at which a few megabytes take seconds.
const slowly = "cluster_transfer_rate: 1000000\n"

// newSlowCluster has three masters and a file in its roots that a joiner copies for ten seconds.
func newSlowCluster(t *testing.T) (c *cluster, content []byte) {
	t.Helper()
	c = prepareCluster(t, 3, slowly+"cluster_isolated_filesystem: True\n")
	content = make([]byte, 10_000_000)
	rand.Read(content)
	for _, m := range c.Masters {
		if err := os.WriteFile(filepath.Join(m.Dir, "srv", "large"), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.StartMasters(t)
	return c, content
}

// TestTwoJoinAtOnce: two boxes join at the same time. One of them is killed after its admission, in
// the middle of the sync, and once it has its files but perhaps no vote. Both end as members,
// neither of them twice or half.
func TestTwoJoinAtOnce(t *testing.T) {
	t.Parallel()
	c, content := newSlowCluster(t)
	accepted(t, c.Masters[0], "known")
	steady := c.joiner(t, peers(c.net.Peer(1)))
	killed := c.joiner(t, peers(c.net.Peer(1), c.net.Peer(2)))
	steady.Run(t)
	killed.Run(t)

	file := filepath.Join(killed.Dir, "srv", "large")
	for _, step := range []struct {
		name    string
		reached func() error
	}{
		{"after its admission", func() error {
			return logHas(t, killed, 0,
				"admitted to the cluster")
		}},
		{"in the middle of the sync", func() error {
			if n := sizeBelow(filepath.Join(killed.Dir, "cache", "clustermaster",
				"statesync")); n < 100_000 || n > int64(len(content)) {
				return fmt.Errorf("%d bytes were fetched", n)
			}
			return nil
		}},
		{"before its promotion", func() error {
			if st, err := os.Stat(file); err != nil || st.Size() != int64(len(content)) {
				return errors.New("its files aren't there")
			}
			return nil
		}},
	} {
		e2e.Eventually(t, healed, killed.ID+" is there: "+step.name, step.reached)
		killed.Kill(t)
		t.Logf("killed %s", step.name)
		killed.Run(t)
	}
	for _, m := range []*e2e.Master{steady, killed} {
		e2e.Eventually(t, 2*healed, m.ID+" is ready", m.Ready)
		if got, err := os.ReadFile(filepath.Join(m.Dir, "srv", "large")); err != nil ||
			!bytes.Equal(got, content) {
			t.Errorf("%s has other files: %v", m.ID, err)
		}
		equal(t, "a key on "+m.ID, keyState(t, m, "known"), "minions")
	}
	oneHistory(t, c.Masters...)
	for _, m := range c.Masters {
		ring := ringOf(t, m)
		equal(t, "ring of "+m.ID, ring.Nodes, ids(c.Masters))
	}
}

// sizeBelow adds up the files in a folder.
func sizeBelow(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // files come and go
		if err == nil && d.Type().IsRegular() {
			if st, err := d.Info(); err == nil {
				sum += st.Size()
			}
		}
		return nil
	})
	return sum
}

func logHas(t testing.TB, m *e2e.Master, from int64, words ...string) error {
	t.Helper()
	if logLine(t, m, from, words...) == "" {
		return fmt.Errorf("no line %v", words)
	}
	return nil
}

// ring is the answer of cluster.ring_info.
type ring struct {
	Nodes     []string `json:"nodes"`
	Epoch     int64    `json:"epoch"`
	Replicas  int      `json:"replicas"`
	Hints     int64    `json:"hints_pending"`
	Under     int64    `json:"under_replicated"`
	Bytes     int64    `json:"transfer_bytes"`
	Transfers []struct {
		To         string `json:"to"`
		Partitions int    `json:"partitions"`
		Bytes      int64  `json:"bytes"`
		Total      int64  `json:"bytes_total"`
		ETA        *int64 `json:"eta"`
	} `json:"transfers"`
}

func ringOf(t testing.TB, m *e2e.Master) (v ring) {
	t.Helper()
	if err := m.RunnerJSON(t, &v, "cluster.ring_info"); err != nil {
		t.Fatal(err)
	}
	return v
}

// node is the master's name in Raft, from its data directory.
func node(t testing.TB, m *e2e.Master) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(m.Dir, "cache", "clustermaster", "cluster", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		var v struct {
			Incarnation string `json:"incarnation"`
		}
		if b, err := os.ReadFile(f); err == nil && json.Unmarshal(b, &v) == nil &&
			v.Incarnation != "" {
			return m.ID + "/" + v.Incarnation
		}
	}
	return ""
}

// TestWipedMember: a member that lost its disk comes back as a new member, without a vote until it
// has the roots, and never beside its old self. Once it is ready, its disk has what was
// acknowledged while it was away.
func TestWipedMember(t *testing.T) {
	t.Parallel()
	c, _ := newSlowCluster(t)
	wiped := c.others(c.Leader(t, c.Masters[0]))[0]
	others := c.Others(wiped)
	w := newWriter(t, c, others)
	w.write(t, 60, 4000)
	was := node(t, wiped)
	wiped.Kill(t)
	wiped.Wipe(t)
	if err := os.Remove(filepath.Join(wiped.Dir, "srv", "large")); err != nil {
		t.Fatal(err)
	}
	w.write(t, 60, 4000)

	// It is watched from its start.
	stop, watched := make(chan struct{}), sync.WaitGroup{}
	var seen []string
	watched.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			v, err := membersOf(t, others[0])
			if err != nil {
				continue
			}
			now := v.Peers[wiped.ID].State
			if slices.Contains(v.Voters, wiped.ID) {
				now += "+vote"
			}
			if len(v.Voters)+len(v.Learners) > 3 {
				now += "+twice"
			}
			if len(seen) == 0 || seen[len(seen)-1] != now {
				seen = append(seen, now)
			}
		}
	})
	before := logSize(wiped)
	wiped.Run(t)
	e2e.Eventually(t, 2*healed, wiped.ID+" is ready", wiped.Ready)
	close(stop)
	watched.Wait()
	t.Logf("%s was %v", wiped.ID, seen)
	is := node(t, wiped)
	if was == "" || is == "" || was == is {
		t.Errorf("it was %q and is %q", was, is)
	}
	if slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, "twice") }) {
		t.Errorf("it was a member twice: %v", seen)
	}
	if !slices.Contains(seen, "syncing") || slices.Contains(seen, "syncing+vote") {
		t.Errorf("it did not copy the roots without a vote: %v", seen)
	}
	oneHistory(t, c.Masters...)
	for _, m := range others {
		line := logLine(t, m, 0, "peer admitted", "peer="+wiped.ID, "replaces="+was)
		if line != "" {
			before = -1
		}
	}
	if before != -1 {
		t.Errorf("no leader says that %s was replaced", was)
	}
	// Everything is on its disk: it alone still has it.
	settled(t, c, c.Masters...)
	for _, m := range others {
		m.Kill(t)
	}
	w.found(t, wiped)
}
