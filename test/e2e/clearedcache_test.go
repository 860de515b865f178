package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clearCaches stops masters and removes their cachedirs, as administrators do with Salt's.
func clearCaches(t *testing.T, masters []*Master) {
	t.Helper()
	for _, m := range masters {
		if code, _ := m.Stop(t, 20*time.Second); code != 0 {
			t.Fatalf("%s ended with %d", m.ID, code)
		}
	}
	for _, m := range masters {
		if err := os.RemoveAll(filepath.Join(m.Dir, "cache")); err != nil {
			t.Fatal(err)
		}
	}
}

// copyFile copies a small file.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestClearedCacheDir removes the cachedir of a stand-alone master, which is only a cache in Salt:
// its minions answer again, for their keys and the master's own are in pki_dir. A master that runs
// meanwhile ends: it could not keep what it acknowledges.
func TestClearedCacheDir(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 1, Plain: true, Extra: "auto_accept: True\n"})
	master := c.Masters[0]
	master.Run(t)
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "web", Release: Releases[len(Releases)-1],
		Master: master.Addr, Extra: "recon_default: 1000\nrecon_max: 2000\n"})
	minion.Run(t)
	answers := func() error { return pings(t, master, minion.ID) }
	Eventually(t, 90*time.Second, "the minion answers", answers)
	clearCaches(t, c.Masters)
	before, after, found := strings.Cut(master.Config(t), "auto_accept: True\n")
	if !found {
		t.Fatal("the configuration has another form")
	}
	master.Configure(t, before+after)
	master.Run(t)
	Eventually(t, 90*time.Second, "the minion answers again", answers)
	cache := filepath.Join(master.Dir, "cache")
	if err := os.Rename(cache, cache+".gone"); err != nil {
		t.Fatal(err)
	}
	if code, err := master.Wait(30 * time.Second); code == 0 || err != nil {
		t.Errorf("without its cachedir it ended with %d, %v", code, err)
	}
	if err := logged(master.Log, "was deleted while this master ran"); err != nil {
		t.Error(err)
	}
	master.Run(t)
	Eventually(t, 90*time.Second, "the minion answers once more", answers)
	if said := "The master key has changed"; logged(minion.Log, said) == nil {
		t.Errorf("the minion says: %s", said)
	}
}

// TestAllCacheDirsCleared removes the cachedirs of all masters of a cluster, and with them the key
// that minions know. None makes another one in silence, and no key file is removed. With the
// exported key they found again with the same minions.
func TestAllCacheDirsCleared(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 2})
	c.StartMasters(t)
	m := c.Masters[0]
	kept := filepath.Join(c.Dir, "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if r := m.Key(t, "--gen-keys=web", "--gen-keys-dir="+kept); r.Code != 0 {
		t.Fatal(r)
	}
	pki := func(m *Master, name string) string { return filepath.Join(m.Dir, "pki", name) }
	copyFile(t, filepath.Join(kept, "web.pub"), pki(m, "minions/web"))
	for _, m := range c.Masters {
		Eventually(t, time.Minute, m.ID+" has the key", func() error {
			_, err := os.Stat(pki(m, "minions/web"))
			return err
		})
	}
	if r := m.Runner(t, "cluster.export_key", kept, "confirm=True"); r.Code != 0 {
		t.Fatal(r)
	}
	own := m.Key(t, "-F", "master").Stdout
	clearCaches(t, c.Masters)
	for _, m := range c.Masters {
		m.Run(t)
	}
	Eventually(t, time.Minute, "a master says that the key is gone", func() error {
		var err error
		for _, m := range c.Masters {
			if err = logged(m.Log, "the key that minions know is gone"); err == nil {
				return nil
			}
		}
		return err
	})
	for _, m := range c.Masters {
		if m.Ready() == nil {
			t.Errorf("%s serves with a new key", m.ID)
		}
		if _, err := os.Stat(pki(m, "minions/web")); err != nil {
			t.Error(err)
		}
		m.Kill(t)
	}
	copyFile(t, filepath.Join(kept, "cluster.pem"), pki(m, "cluster.pem"))
	copyFile(t, filepath.Join(kept, "cluster.pub"), pki(m, "cluster.pub"))
	for _, m := range c.Masters {
		m.Run(t)
	}
	c.WaitReady(t, time.Minute, c.Masters...)
	if now := m.Key(t, "-F", "master").Stdout; now != own {
		t.Errorf("the key was\n%s\nand is\n%s", own, now)
	}
	for _, m := range c.Masters {
		if r := m.Key(t, "-l", "acc"); !strings.Contains(r.Stdout, "web") {
			t.Errorf("%s: %v", m.ID, r)
		}
	}
}
