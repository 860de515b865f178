package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// snapshotOf copies what a running master stores to another folder, as of one moment, as a snapshot
// of a virtual machine does.
func snapshotOf(t *testing.T, m *e2e.Master, to string) {
	t.Helper()
	m.Freeze(t)
	defer m.Thaw(t)
	copyStored(t, m.Dir, to)
}

// copyStored replaces what a master stores below the folder to by what is stored below from.
func copyStored(t *testing.T, from, to string) {
	t.Helper()
	for _, d := range []string{"cache", "pki"} {
		if err := os.RemoveAll(filepath.Join(to, d)); err != nil {
			t.Fatal(err)
		}
		r := e2e.Command(t, "cp", "-a", filepath.Join(from, d), to)
		if r.Code != 0 {
			t.Fatal(r)
		}
	}
}

// TestCopiedMaster: the machine of a master, leader or follower, is cloned, and the clone is
// started at another address, as when an administrator tries a backup. It would vote as the same
// member, and what is stored on it would count as stored there. It ends, says where the other one
// runs, and does not start again; nobody notices it. Once the original has ended for good, it takes
// its place.
func TestCopiedMaster(t *testing.T) {
	t.Parallel()
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3})}
	c.StartMasters(t)
	w := newWriter(t, c, c.Masters)
	w.write(t, 40, 2000)
	before, err := membersOf(t, c.Masters[0])
	if err != nil {
		t.Fatal(err)
	}
	leader := c.Leader(t, c.Masters[0])
	follower := c.Others(leader)[0]
	pids := map[string]int{}
	for _, m := range c.Masters {
		pids[m.ID] = m.PID()
	}
	clone := c.Stranger(t, same)
	for _, original := range []*e2e.Master{leader, follower} {
		stop := w.during(t, 20, 2000)
		clone.ID = original.ID
		clone.Configure(t, withID(clone.Config(t), original.ID))
		snapshotOf(t, original, clone.Dir)
		for n, limit := range []time.Duration{healed, 10 * time.Second} {
			clone.Run(t)
			code, err := clone.Wait(limit)
			if err != nil || code == 0 {
				t.Errorf("start %d of the clone of %s ended with %d, %v", n, original.ID, code, err)
			}
			says(t, clone, fmt.Sprintf("the master %s runs at %s", original.ID, original.Addr),
				"Nothing else was changed")
			if err := os.Truncate(clone.Output, 0); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		for _, m := range c.Masters {
			if line := logLine(t, m, 0, "peer has moved"); line != "" {
				t.Errorf("%s took the clone of %s for it: %s", m.ID, original.ID, line)
			}
		}
	}
	oneHistory(t, c.Masters...)
	after, err := membersOf(t, c.Masters[0])
	if err != nil || after.Version != before.Version { // a busy machine may have made an election
		t.Errorf("members were %+v and are %+v, %v", before, after, err)
	}
	for _, m := range c.Masters {
		if !m.Running() || m.PID() != pids[m.ID] {
			t.Errorf("%s was restarted", m.ID)
		}
	}

	// The original ends for good, and the clone gets what it lacks from the others.
	follower.Kill(t)
	rest := c.Others(follower)
	w.to(rest...)
	w.write(t, 40, 2000)
	mark := filepath.Join(clone.Dir, "cache", "clustermaster", "cluster", "copied.json")
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	clone.Run(t)
	now := append(rest, clone)
	c.WaitReady(t, healed, now...)
	oneHistory(t, now...)
	settled(t, c, now...)
	w.found(t, now...)

	follower.Run(t)
	if code, err := follower.Wait(healed); err != nil || code == 0 {
		t.Errorf("the original ended with %d, %v", code, err)
	}
	says(t, follower, fmt.Sprintf("the master %s runs at %s", follower.ID, clone.Addr))
	oneHistory(t, now...)
}

// withID changes the id in a configuration.
func withID(config, id string) string {
	_, rest, _ := strings.Cut(config, "\n")
	return "id: " + id + "\n" + rest
}

// says expects these words in what a master wrote to its terminal.
func says(t *testing.T, m *e2e.Master, words ...string) {
	t.Helper()
	b, err := os.ReadFile(m.Output)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		if !strings.Contains(string(b), w) {
			t.Errorf("%s does not say %q:\n%s", m.ID, w, b)
		}
	}
}

// TestRolledBackMaster: the machine of a master, leader or follower, is put back to a snapshot, as
// after a failed upgrade of its system. Meanwhile leaders changed, and keys and results came and
// went. It learns all that again, and brings nothing back.
func TestRolledBackMaster(t *testing.T) {
	t.Parallel()
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3})}
	c.StartMasters(t)
	w := newWriter(t, c, c.Masters)
	for round, role := range []string{"leader", "follower"} {
		w.write(t, 40, 2000)
		gone := fmt.Sprintf("gone%d", round)
		accepted(t, c.Masters[0], gone)
		settled(t, c, c.Masters...)
		back := c.Leader(t, c.Masters[0])
		if role == "follower" {
			back = c.Others(back)[0]
		}
		rest := c.Others(back)
		snapshot := t.TempDir()
		snapshotOf(t, back, snapshot)

		w.write(t, 40, 2000)
		succeeds(t, back.Key(t, "-d", gone, "-y"))
		kept := fmt.Sprintf("kept%d", round)
		accepted(t, back, kept)
		for _, m := range rest {
			succeeds(t, rest[0].Runner(t, "cluster.transfer_leader", m.ID))
		}
		w.write(t, 40, 2000)
		settled(t, c, c.Masters...)

		back.Kill(t)
		copyStored(t, snapshot, back.Dir)
		back.Run(t)
		c.WaitReady(t, healed, c.Masters...)
		settled(t, c, c.Masters...)
		oneHistory(t, c.Masters...)
		for _, m := range c.Masters {
			if in := keyState(t, m, gone); in != "" {
				t.Errorf("%s lists the deleted key among %s", m.ID, in)
			}
			if in := keyState(t, m, kept); in != "minions" {
				t.Errorf("%s lists the accepted key among %q", m.ID, in)
			}
		}
		w.write(t, 40, 2000)
		w.found(t, c.Masters...)
		if round == 0 {
			continue
		}
		for _, m := range rest { // back must find everything on its own disk
			m.Kill(t)
		}
		w.found(t, back)
	}
}

// TestMostMastersPutBack: two of three masters are put back to older copies, which were not made at
// the same moment, as nightly backups of machines are not. They go on with what they know. The
// third one, which knows more, ends and says so, instead of going on with another state. Its
// operator gives that up.
func TestMostMastersPutBack(t *testing.T) {
	t.Parallel()
	c := &cluster{Cluster: e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3})}
	c.StartMasters(t)
	newest, older := c.Masters[0], c.Masters[1:]
	copies := map[*e2e.Master]string{}
	for i, m := range older {
		accepted(t, newest, fmt.Sprintf("early%d", i))
		oneHistory(t, c.Masters...)
		copies[m] = t.TempDir()
		snapshotOf(t, m, copies[m])
	}
	accepted(t, newest, "late")
	oneHistory(t, c.Masters...)
	for _, m := range c.Masters {
		m.Kill(t)
	}
	for _, m := range older {
		copyStored(t, copies[m], m.Dir)
		m.Run(t)
	}
	c.WaitReady(t, healed, older...)
	accepted(t, older[0], "afterwards")
	for range 2 {
		newest.Run(t)
		if code, err := newest.Wait(healed); err != nil || code == 0 {
			t.Errorf("the newest one ended with %d, %v", code, err)
		}
		says(t, newest, "the leader lacks entry", "salt-run cluster.recover", "Nothing was changed here")
	}

	err := os.Rename(filepath.Join(newest.Dir, "cache"), filepath.Join(newest.Dir, "aside"))
	if err != nil {
		t.Fatal(err)
	}
	newest.Run(t)
	c.WaitReady(t, healed, c.Masters...)
	oneHistory(t, c.Masters...)
	for id, want := range map[string]string{"early0": "minions", "early1": "minions", "late": "", "afterwards": "minions"} {
		if in := keyState(t, newest, id); in != want {
			t.Errorf("%s is among %q, not %q", id, in, want)
		}
	}
}
