package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fewWorkers are enough for two or three minions; each costs a second of processor time to start.
const fewWorkers = "worker_threads: 2\n"

// TestOurMasterTakesOverFromSalts: a real salt-master behind HAProxy with Salt's plain
// configuration answers a minion of each release, which proves the kit. Then our master is started
// on the same configuration and keys, and answers the untouched minions too.
func TestOurMasterTakesOverFromSalts(t *testing.T) {
	t.Parallel()
	takeOver(t, "", "master.pem", true)
}

// TestOurMasterTakesOverFromSaltsMmapKey does the same with the keys, also the master's own, in the
// files of Salt's mmap_key driver. With those, Salt 3008.3 itself lets minions sign in but answers
// no request for pillar; so the minions begin to work only with our master.
func TestOurMasterTakesOverFromSaltsMmapKey(t *testing.T) {
	t.Parallel()
	takeOver(t, "keys.cache_driver: mmap_key\n", ".mmap_master.idx.heap", false)
}

func takeOver(t *testing.T, extra, keyFile string, working bool) {
	t.Helper()
	HAProxyProgram(t)
	c := NewCluster(t, ClusterOptions{
		Masters: 1, Plain: true, Programs: Theirs(t, "3008.3"),
		Balancer: BalancerOptions{File: "lb/haproxy-salt.cfg"}, Extra: fewWorkers + extra,
	})
	c.Start(t)
	m := c.Masters[0]
	c.AddMinions(t, "minion", quick, Releases...)
	acceptAll(t, c, m)
	stayAccepted(t, c, m)
	answers := func(who string) {
		t.Helper()
		Eventually(t, 90*time.Second, "all minions answer "+who, func() error {
			if got, r := m.Ping(t, "-t", "5"); !slices.Equal(got, c.IDs()) {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
		for _, minion := range c.Minions {
			r := m.Salt(t, minion.ID, "grains.get", "e2e", "--out=txt")
			if want := minion.ID + ": " + minion.Release; r.Code != 0 ||
				strings.TrimSpace(r.Stdout) != want {
				t.Errorf("want %s, got\n%v", want, r)
			}
		}
	}
	if working {
		answers("Salt's master")
	}
	signedIn(t, c)
	key, err := os.ReadFile(filepath.Join(m.Dir, "pki", keyFile))
	if err != nil {
		t.Fatal(err)
	}
	offsets := logSizes(c)
	if code, took := m.Stop(t, 20*time.Second); code != 0 {
		t.Errorf("salt-master ended with %d after %v", code, took)
	}

	m.Use(Ours(t))
	m.Run(t)
	Eventually(t, 30*time.Second, "our master serves", m.Ready)
	if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
		t.Error(err)
	}
	answers("our master")
	noComplaint(t, c, offsets)
	if now, err := os.ReadFile(filepath.Join(m.Dir, "pki", keyFile)); err != nil ||
		!bytes.Equal(now, key) {
		t.Errorf("%s has changed: %v", keyFile, err)
	}
	if code, took := m.Stop(t, 20*time.Second); code != 0 || took > stopLimit {
		t.Errorf("our master ended with %d after %v", code, took)
	}
}

// signedIn waits until each minion is accepted and has stored its master's key, by which it will
// check every later master.
func signedIn(t *testing.T, c *Cluster) {
	t.Helper()
	for _, m := range c.Minions {
		Eventually(t, 120*time.Second, m.ID+" has signed in", func() error {
			if m.LogSize() == 0 || m.SignIns(t, 0) < 1 {
				return errors.New("no sign-in in its log")
			}
			return nil
		})
		if _, err := os.Stat(filepath.Join(m.Dir, "pki", "minion_master.pub")); err != nil {
			t.Error(err)
		}
	}
}

// noComplaint looks for errors about keys in the minions' logs.
func noComplaint(t *testing.T, c *Cluster, since map[*Minion]int64) {
	t.Helper()
	for _, m := range c.Minions {
		for _, line := range m.Errors(t, since[m]) {
			low := strings.ToLower(line)
			if strings.Contains(low, "public key") || strings.Contains(low, "master key") ||
				strings.Contains(low, "[critical") {
				t.Errorf("%s: %s", m.ID, line)
			}
		}
	}
}

// joinedSalts waits until one of Salt's masters of 3008 belongs to their cluster and has its key.
// The one with the lowest address founds, 5 s after its start. Any other one asks to join once, at
// its start; if the answer is lost, it keeps a key of its own until somebody starts it again.
func joinedSalts(t *testing.T, m *Master) {
	t.Helper()
	asked := StartWatch(t)
	Eventually(t, 3*time.Minute, m.ID+" is in Salt's cluster", func() error {
		_, err := os.Stat(filepath.Join(m.Dir, "cache", ".cluster_joined."+m.Addr))
		if err != nil && asked.Took() > 30*time.Second {
			m.Stop(t, 30*time.Second)
			m.Run(t)
			asked = StartWatch(t)
		}
		return err
	})
}

// TestOursTakeOverFromSaltsCluster: two real masters in Salt's cluster mode, in 3007 with a shared
// folder and in 3008 with a folder for each. Then two of ours take their place, with the same
// configuration and keys.
func TestOursTakeOverFromSaltsCluster(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		release string
		shared  bool
	}{{"3007.15", true}, {"3008.3", false}} {
		t.Run(tt.release, func(t *testing.T) {
			t.Parallel()
			takeOverCluster(t, tt.release, tt.shared)
		})
	}
}

func takeOverCluster(t *testing.T, release string, shared bool) {
	HAProxyProgram(t)
	c := NewCluster(t, ClusterOptions{
		Masters: 2, Plain: true, Programs: Theirs(t, release),
		Balancer: BalancerOptions{File: "lb/haproxy-salt.cfg"}, Extra: fewWorkers,
	})
	folder := func(m *Master) string {
		if shared {
			return filepath.Join(c.Dir, "shared")
		}
		return filepath.Join(m.Dir, "cluster_pki")
	}
	for i, m := range c.Masters {
		peer := c.Masters[1-i]
		text := strings.Replace(m.Config(t), "id: "+m.ID, "id: "+m.Addr, 1) + fmt.Sprintf(
			"cluster_id: e2e\ncluster_peers: [%s]\ncluster_pki_dir: %s\ncluster_secret: %s\nauto_accept: True\n", peer.Addr, folder(m), c.Secret)
		if !shared {
			text += "cluster_isolated_filesystem: True\nkeys.cache_driver: localfs_key\n"
		}
		m.ID = m.Addr
		m.Configure(t, text)
		if err := os.MkdirAll(folder(m), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c.StartBalancer(t)
	for _, m := range c.Masters {
		m.Run(t)
		Eventually(t, 60*time.Second, m.ID+" answers", m.Ready)
		if !shared {
			joinedSalts(t, m)
		}
	}
	c.AddMinions(t, "minion", quick, "3006.28", release)
	// Their answers are not checked: through a balancer in front of two of Salt's own masters a
	// 3008 minion gets no pillar.
	signedIn(t, c)
	// Salt's masters tell each other of a key after the minion was accepted. Ours take over what
	// the first one has.
	for _, id := range c.IDs() {
		Eventually(t, 60*time.Second, c.Masters[0].ID+" has the key of "+id, func() error {
			_, err := os.Stat(filepath.Join(folder(c.Masters[0]), "minions", id))
			return err
		})
	}
	key, err := os.ReadFile(filepath.Join(folder(c.Masters[0]), "cluster.pem"))
	if err != nil {
		t.Fatal(err)
	}
	offsets := logSizes(c)
	for _, m := range c.Masters {
		m.Stop(t, 30*time.Second)
		m.Use(Ours(t))
		m.plain = false
	}
	for _, m := range c.Masters {
		m.Run(t)
	}
	for _, m := range c.Masters {
		Eventually(t, 60*time.Second, m.ID+" is ready", m.Ready)
		if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		Eventually(t, 90*time.Second, "all minions answer our "+m.ID, func() error {
			if got, r := m.Ping(t, "-t", "5"); !slices.Equal(got, c.IDs()) {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	noComplaint(t, c, offsets)
	if now, err := os.ReadFile(filepath.Join(folder(c.Masters[0]), "cluster.pem")); err != nil ||
		!bytes.Equal(now, key) {
		t.Errorf("cluster.pem has changed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder(c.Masters[0]),
		".clustermaster_export")); (err == nil) == shared {
		t.Errorf("keys are exported to a shared folder, or not to an own one: %v", err)
	}
}

// acceptAll waits until all minions' keys are pending on a master and accepts them there.
func acceptAll(t *testing.T, c *Cluster, m *Master) {
	t.Helper()
	Eventually(t, 90*time.Second, "all keys are pending on "+m.ID, func() error {
		keys, err := m.Keys(t)
		if err != nil {
			return err
		}
		if got := keys["minions_pre"]; !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("pending are %v", got)
		}
		return nil
	})
	if r := m.Key(t, "-A", "-y"); r.Code != 0 {
		t.Fatalf("%v", r)
	}
}

// stayAccepted accepts keys on Salt's master until all minions have signed in. A key whose minion
// asks at the very moment of its acceptance is written as pending again by that master.
func stayAccepted(t *testing.T, c *Cluster, m *Master) {
	t.Helper()
	Eventually(t, 2*time.Minute, "all minions have signed in to Salt's "+m.ID, func() error {
		keys, err := m.Keys(t)
		if err != nil {
			return err
		}
		if got := keys["minions_pre"]; len(got) > 0 {
			return fmt.Errorf("pending are %v; again: %v", got, m.Key(t, "-A", "-y"))
		}
		for _, minion := range c.Minions {
			if minion.LogSize() == 0 || minion.SignIns(t, 0) < 1 {
				return fmt.Errorf("%s has not signed in", minion.ID)
			}
		}
		return nil
	})
}
