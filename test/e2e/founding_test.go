package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// withoutCluster removes the options of a cluster from a configuration.
func withoutCluster(config string) string {
	var kept strings.Builder
	for line := range strings.Lines(config) {
		if !strings.HasPrefix(line, "cluster_") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// masterFingerprint is the fingerprint of the key by which minions know a master.
func masterFingerprint(t *testing.T, m *Master) string {
	t.Helper()
	r := m.Key(t, "-F", "master")
	for line := range strings.Lines(r.Stdout) {
		if name, sum, ok := strings.Cut(strings.TrimSpace(line), ":  "); ok &&
			strings.HasSuffix(name, ".pub") {
			return sum
		}
	}
	t.Fatalf("no fingerprint in %v", r)
	return ""
}

// oneCluster fails unless all masters have the same three voters and the same key.
func oneCluster(t *testing.T, c *Cluster, fingerprint string) {
	t.Helper()
	c.WaitReady(t, 60*time.Second, c.Masters...)
	for _, m := range c.Masters {
		Eventually(t, 30*time.Second, m.ID+" sees three voters", func() error {
			v, err := m.Members(t)
			if err == nil && !slices.Equal(v.Voters, []string{"master1", "master2", "master3"}) {
				err = fmt.Errorf("voters %v", v.Voters)
			}
			return err
		})
		if got := masterFingerprint(t, m); got != fingerprint {
			t.Errorf("%s: the cluster's key is %s, was %s", m.ID, got, fingerprint)
		}
	}
}

// TestFromOneMasterToThree: a stand-alone master gets cluster_id, cluster_secret and cluster_peers,
// and two new masters beside it. Whatever the order of their starts, there is one cluster, with the
// key, minions, jobs and pillar of the old master.
func TestFromOneMasterToThree(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"OldFirst": {1, 0, 2}, "OldLast": {0, 2, 1},
		"OldInBetween": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fromOneToThree(t, order, name == "OldLast")
		})
	}
}

func fromOneToThree(t *testing.T, order []int, withMinion bool) {
	c := NewCluster(t, ClusterOptions{Masters: 3, Extra: "cluster_isolated_filesystem: True\n"})
	old := c.Masters[1]
	clustered := old.Config(t)
	old.Configure(t, withoutCluster(clustered))
	put(t, pillarDir(old), map[string]string{"top.sls": "base: {'*': [who]}\n",
		"who.sls": "who: the old master\n"})
	old.Run(t)
	c.WaitReady(t, 30*time.Second, old)
	var before string
	if withMinion {
		minion := NewMinion(t, c.Dir, MinionOptions{ID: "minion", Release: "3006.28",
			Master: old.Addr, Extra: quick})
		c.Minions = []*Minion{minion}
		minion.Run(t)
		acceptAll(t, c, old)
		Eventually(t, 90*time.Second, "the minion answers",
			func() error { return answersAll(t, c, old) })
		before = job(t, old, "minion", "test.echo", "before")
		Eventually(t, 30*time.Second, "the job has returned",
			func() error { return hasReturns(t, old, before, "before", c.IDs()) })
	}
	fingerprint := masterFingerprint(t, old)
	offsets := logSizes(c)
	if code, took := old.Stop(t, 20*time.Second); code != 0 {
		t.Errorf("the old master ended with %d after %v", code, took)
	}
	old.Configure(t, clustered)
	for _, i := range order {
		m := c.Masters[i]
		m.Run(t)
		Eventually(t, 30*time.Second, m.ID+" runs", func() error {
			if b, err := os.ReadFile(m.Log); err != nil ||
				!strings.Contains(string(b), "not a member of the cluster yet") &&
					m.Ready() != nil {
				return errors.New("neither ready nor waiting")
			}
			return nil
		})
	}
	oneCluster(t, c, fingerprint)
	for _, m := range c.Masters {
		if err := equalTrees(pillarDir(old), pillarDir(m)); err != nil {
			t.Error(err)
		}
	}
	if !withMinion {
		return
	}
	for _, m := range c.Masters {
		Eventually(t, 90*time.Second, "the minion answers "+m.ID,
			func() error { return answersAll(t, c, m) })
		if err := hasReturns(t, m, before, "before", c.IDs()); err != nil {
			t.Errorf("%s has lost the job of before: %v", m.ID, err)
		}
		if r := m.Salt(t, "minion", "pillar.get", "who",
			"--out=txt"); strings.TrimSpace(r.Stdout) != "minion: the old master" {
			t.Errorf("%s: pillar: %v", m.ID, r)
		}
	}
	noComplaint(t, c, offsets)
}

// TestTheFormerMasterFounds: of three boxes the last one has what a Salt master left in pki_dir. It
// founds the cluster, with its key and minions, although its cluster_pki_dir is another folder and
// another box has a key that no minion knows.
func TestTheFormerMasterFounds(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 3})
	old := c.Masters[2]
	old.Configure(t,
		old.Config(t)+
			fmt.Sprintf("cluster_pki_dir: %s/cluster_pki\ncluster_isolated_filesystem: True\n",
				old.Dir))
	for _, m := range []*Master{c.Masters[1], old} {
		private, _ := keyPair(t)
		put(t, filepath.Join(m.Dir, "pki"), map[string]string{"master.pem": private})
	}
	_, web1 := keyPair(t)
	put(t, filepath.Join(old.Dir, "pki"), map[string]string{"minions/web1": web1})
	for _, m := range c.Masters {
		m.Run(t)
	}
	c.WaitReady(t, 60*time.Second, c.Masters...)
	oneCluster(t, c, masterFingerprint(t, old))
	for _, m := range c.Masters {
		if err := hasKeys(t, m, "minions", []string{"web1"}); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
	}
	for m, want := range map[*Master]string{old: old.Dir + "/pki/master.pem",
		c.Masters[1]: "RSA key not used: the cluster has another"} {
		if b, err := os.ReadFile(m.Log); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s has not logged %q: %v", m.ID, want, err)
		}
	}
}

func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), block("PUBLIC KEY", pub)
}

// TestAMinionMovesWithTheExportedKey: the key that minions know can be moved to another master. A
// minion of ours continues with Salt's own master, unchanged.
func TestAMinionMovesWithTheExportedKey(t *testing.T) {
	t.Parallel()
	salts := Theirs(t, "3008.3")
	c := NewCluster(t, ClusterOptions{Masters: 1, Extra: fewWorkers})
	m := c.Masters[0]
	m.Configure(t, withoutCluster(m.Config(t)))
	m.Run(t)
	c.WaitReady(t, 30*time.Second, m)
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "minion", Release: "3006.28", Master: m.Addr,
		Extra: quick})
	c.Minions = []*Minion{minion}
	minion.Run(t)
	acceptAll(t, c, m)
	Eventually(t, 90*time.Second, "the minion answers", func() error { return answersAll(t, c, m) })
	dir := filepath.Join(m.Dir, "export")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{dir}, 1, "nothing written yet: anyone who reads cluster.pem can pose as the master"},
		{[]string{"export", "confirm=True"}, 1, "give an absolute path"},
		{[]string{dir + "/none", "confirm=True"}, 1, "no such file or directory"},
		{[]string{dir, "confirm=True"}, 0, dir + "/cluster.pem"},
		{[]string{dir, "confirm=True"}, 1, "cluster.pem exists already; name another folder"},
	} {
		if r := m.Runner(t, append([]string{"cluster.export_key"},
			tt.args...)...); r.Code != tt.code || !strings.Contains(r.Stdout, tt.want) {
			t.Errorf("want %q, got %v", tt.want, r)
		}
	}
	for name, mode := range map[string]os.FileMode{"cluster.pem": 0o600, "cluster.pub": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v, want %v", name, info, err, mode)
		}
	}
	offsets := logSizes(c)
	m.Stop(t, 20*time.Second)
	for from, to := range map[string]string{"cluster.pem": "master.pem",
		"cluster.pub": "master.pub"} {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(m.Dir, "pki", to)); err != nil {
			t.Fatal(err)
		}
	}
	m.Use(salts)
	m.plain = true
	m.Run(t)
	Eventually(t, 120*time.Second, "the minion answers Salt's master",
		func() error { return answersAll(t, c, m) })
	noComplaint(t, c, offsets)
}

// TestABrokenFileFoundsNothing: an empty master does not start, and founds no cluster of its own,
// if the file with the cluster's options can't be used. One with state starts.
func TestABrokenFileFoundsNothing(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 1})
	m := c.Masters[0]
	whole := m.Config(t)
	m.Configure(t, withoutCluster(whole))
	file := filepath.Join(m.ConfDir, "master.d", "cluster.conf")
	put(t, filepath.Dir(file), map[string]string{"cluster.conf": "cluster_id: 'kit\n"})
	const refusal = "a master without state does not start with options missing"
	refused := func(args ...string) {
		t.Helper()
		m.Run(t, args...)
		code, err := m.Wait(30 * time.Second)
		if said := tail(m.Log, 1<<20); err != nil || code != 1 ||
			!strings.Contains(said, refusal) || strings.Contains(said, "cluster founded") {
			t.Errorf("%v: ended with %d, %v: %s", args, code, err, said)
		}
	}
	refused()
	refused("--found")
	put(t, filepath.Dir(file), map[string]string{"cluster.conf": ""})
	m.Run(t)
	c.WaitReady(t, 30*time.Second, m)
	m.Stop(t, 20*time.Second)
	put(t, filepath.Dir(file), map[string]string{"cluster.conf": "broken: [\n"})
	m.Run(t)
	c.WaitReady(t, 30*time.Second, m)
}

// TestASharedCachedirIsRefused: a second master with the first one's cachedir is refused, and no
// message tells the operator to remove what the first one needs.
func TestASharedCachedirIsRefused(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 2})
	first, second := c.Masters[0], c.Masters[1]
	first.Configure(t, withoutCluster(first.Config(t)))
	shared := strings.NewReplacer("cachedir: "+second.Dir, "cachedir: "+first.Dir,
		"root_dir: "+second.Dir, "root_dir: /")
	second.Configure(t, withoutCluster(shared.Replace(second.Config(t))))
	first.Run(t)
	c.WaitReady(t, 30*time.Second, first)
	second.Run(t)
	if code, err := second.Wait(30 * time.Second); err != nil || code == 0 {
		t.Errorf("the second master ended with %d, %v", code, err)
	}
	said := tail(second.Log, 1<<20) + tail(second.Output, 1<<20)
	if !strings.Contains(said, "give each master its own cachedir") ||
		strings.Contains(said, "remove the") || strings.Contains(said, "delete") {
		t.Errorf("it says %s", said)
	}
	if err := first.Ready(); err != nil {
		t.Errorf("the first master: %v", err)
	}
	first.Stop(t, 20*time.Second)
	first.Run(t)
	c.WaitReady(t, 30*time.Second, first)
}

// TestAllMastersGetNewAddresses: all masters get new addresses and keep their disks. No recovery is
// needed, and keys can be changed again.
func TestAllMastersGetNewAddresses(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 3})
	for _, m := range c.Masters {
		m.Run(t)
	}
	c.WaitReady(t, 60*time.Second, c.Masters...)
	fingerprint := masterFingerprint(t, c.Masters[0])
	var renumber []string
	for _, m := range c.Masters {
		m.Stop(t, 20*time.Second)
	}
	for _, m := range c.Masters {
		moved := c.Base.Master(m.Number + 10)
		renumber = append(renumber, m.Addr, moved)
		m.Addr = moved
	}
	for _, m := range c.Masters {
		m.Configure(t, strings.NewReplacer(renumber...).Replace(m.Config(t)))
		m.Run(t)
	}
	oneCluster(t, c, fingerprint)
	for _, m := range c.Masters {
		Eventually(t, 30*time.Second, m.ID+" lists the new addresses", func() error {
			r := m.Runner(t, "cluster.members", "--out=json")
			for _, other := range c.Masters {
				if !strings.Contains(r.Stdout, other.Addr) {
					return fmt.Errorf("%s is missing in %v", other.Addr, r)
				}
			}
			return nil
		})
	}
	if r := c.Masters[0].Runner(t, "cluster.rotate_keys"); r.Code != 0 {
		t.Errorf("%v", r)
	}
}
