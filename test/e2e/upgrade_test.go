package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// upgrade is a cluster whose masters change their releases, with a minion that answers and a client
// that writes.
type upgrade struct {
	c        *Cluster
	old, new Programs
	level    int // of the old release

	mu    sync.Mutex // guards acked
	acked []string
}

// TestUpgradeFromThePreviousRelease runs release 0.1.0 and this one in one cluster.
func TestUpgradeFromThePreviousRelease(t *testing.T) {
	t.Parallel()
	u := &upgrade{old: Previous(t), new: Ours(t), level: 1}
	u.run(t, nil)
}

// TestUpgradeToTheNextRelease runs this release and one a level ahead of it in one cluster.
func TestUpgradeToTheNextRelease(t *testing.T) {
	t.Parallel()
	u := &upgrade{old: Ours(t), new: Next(t), level: 2}
	u.run(t, &future{u})
}

// run upgrades the masters one by one and checks each combination: new as follower and leader, old
// and new joining, snapshots, restarts, rolling back.
func (u *upgrade) run(t *testing.T, f *future) {
	HAProxyProgram(t)
	u.c = NewCluster(t, ClusterOptions{Programs: u.old, Balancer: BalancerOptions{Idle: idleLimit}})
	c := u.c
	c.Start(t)
	c.AddMinions(t, "minion", quick, Releases[len(Releases)-1])
	acceptAll(t, c, c.Masters[0])
	Eventually(t, 60*time.Second, "the minion answers",
		func() error { return answersAll(t, c, c.Masters[0]) })
	stop := u.load(t)
	defer stop()
	first, second, third := c.Masters[0], c.Masters[1], c.Masters[2]

	u.change(t, third, u.new)
	u.leads(t, first)
	u.atLevel(t, third, u.level, first.ID, second.ID)
	f.refused(t, third, first)

	u.leads(t, third)
	f.refused(t, third, first)
	f.snapshot(t, third)
	u.wipe(t, second) // an old one joins under a new leader
	u.change(t, third, u.old)
	u.change(t, third, u.new)
	u.change(t, second, u.new)
	u.leads(t, second)
	u.atLevel(t, second, u.level, first.ID)
	u.change(t, second, u.old) // two new ones, then one goes back
	u.leads(t, first)
	u.wipe(t, third) // a new one joins under an old leader
	u.change(t, second, u.new)
	u.change(t, first, u.new)
	u.atLevel(t, first, u.level+1)
	f.allowed(t, first)
	f.snapshot(t, first)

	u.leads(t, second)
	u.tooOld(t, first)
	first.Wipe(t)
	u.tooOldToJoin(t, first)
	u.change(t, first, u.new)
	f.allowed(t, first)
	stop()
	u.nothingLost(t)
}

// TestDefectOfTheNextRelease has a leader of the next release write, against the rule, what the
// others don't know. They stop rather than drop it, and continue in the next release.
func TestDefectOfTheNextRelease(t *testing.T) {
	t.Parallel()
	u := &upgrade{old: Ours(t), new: Next(t), level: 2}
	u.c = NewCluster(t, ClusterOptions{Programs: u.old})
	c := u.c
	c.StartMasters(t)
	bad := c.Masters[2]
	u.change(t, bad, u.new)
	u.leads(t, bad)
	// its answer depends on which master stops first
	_ = bad.Runner(t, "future.note", "defect", "force=True")
	for _, m := range c.Masters[:2] {
		if code, err := m.Wait(20 * time.Second); err != nil || code == 0 {
			t.Fatalf("%s: exit code %d, %v", m.ID, code, err)
		}
		u.says(t, m.Log, "written at level 3, and this master runs release 0.2.0")
		m.Use(u.new)
		m.Run(t)
	}
	u.settled(t, bad)
	u.atLevel(t, bad, 3)
	for _, m := range c.Masters {
		var got []string
		if err := m.RunnerJSON(t, &got, "future.notes"); err != nil ||
			!slices.Equal(got, []string{"defect"}) {
			t.Errorf("%s: %q, %v", m.ID, got, err)
		}
	}
}

// TestRollingUpgrade has cluster.upgrade bring the next release to a cluster.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	u := &upgrade{old: Ours(t), new: Next(t), level: 2}
	dir := t.TempDir()
	u.c = NewCluster(t, ClusterOptions{Programs: u.old, Extra: upgradeHook(t, dir)})
	c := u.c
	c.StartMasters(t)
	first := c.Masters[0]
	u.settled(t, first)
	u.leads(t, c.Masters[1])
	r := u.roll(t, dir, first, "0.3.0", "master3", "master2") // the leader last
	for _, want := range []string{"master3: drain", "master3: restarted " + c.Masters[2].Addr +
		":4520", "master2: upgraded", "master1 is this master"} {
		if r.Code != 0 || !strings.Contains(r.Stdout, want) {
			t.Fatalf("want %q in\n%v", want, r)
		}
	}
	u.atLevel(t, first, 2, first.ID)
	if r := u.roll(t, dir, c.Masters[1], "0.3.0", "master1"); r.Code != 0 {
		t.Fatalf("%v", r)
	}
	u.atLevel(t, first, 3)
	u.settled(t, first) // no master is drained any longer
}

// TestRollingUpgradeFromThePreviousRelease goes the way of docs/upgrade.md: release 0.1.0 has no
// cluster.upgrade, so the first master is upgraded by hand, and upgrades the others.
func TestRollingUpgradeFromThePreviousRelease(t *testing.T) {
	t.Parallel()
	u := &upgrade{old: Previous(t), new: Ours(t), level: 1}
	dir := t.TempDir()
	u.c = NewCluster(t, ClusterOptions{Programs: u.old})
	c := u.c
	c.StartMasters(t)
	first := c.Masters[0]
	u.settled(t, first)
	u.leads(t, c.Masters[1])
	if r := first.Runner(t, "cluster.upgrade", "0.2.0"); r.Code != 0 ||
		r.Stdout != "'cluster.upgrade' is not available.\n" {
		t.Errorf("docs/upgrade.md says otherwise of release 0.1.0: %v", r)
	}
	order := func(fun string) {
		t.Helper()
		Eventually(t, 30*time.Second, "the first master takes "+fun, func() error {
			if r := first.Runner(t, fun); r.Code != 0 {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	order("cluster.drain")
	first.Stop(t, 10*time.Second)
	first.Use(u.new)
	option := filepath.Join(first.ConfDir, "master.d", "upgrade.conf")
	if err := os.MkdirAll(filepath.Dir(option), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(option, []byte(upgradeHook(t, dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	first.Run(t)
	order("cluster.undrain")
	if r := u.roll(t, dir, first, "0.2.0", "master3", "master2"); r.Code != 0 {
		t.Fatalf("%v", r)
	}
	u.atLevel(t, first, 2)
	u.settled(t, first)
}

// upgradeHook makes a cluster_upgrade_command that asks the test to restart the named master, by
// files in dir, and returns the option.
func upgradeHook(t *testing.T, dir string) string {
	t.Helper()
	hook := filepath.Join(dir, "hook")
	script := "#!/bin/sh\necho \"$1 $3\" >" + dir + "/asked.new && mv " + dir + "/asked.new " +
		dir + "/asked\n" +
		"while [ ! -e " + dir + "/$1.done ]; do sleep 0.1; done\necho restarted $2\n"
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return "cluster_upgrade_command: [" + hook + "]\n"
}

// roll runs cluster.upgrade on m and does what the command of upgradeHook asks for: of the named
// masters, in this order.
func (u *upgrade) roll(t *testing.T, dir string, m *Master, release string, names ...string) Result {
	t.Helper()
	ended := make(chan Result, 1)
	go func() {
		r, err := run(m.test, m.programs.Run, "-c", m.ConfDir, "cluster.upgrade", release,
			"timeout=60")
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	for _, name := range names {
		var asked []byte
		Eventually(t, 60*time.Second, name+" is to be upgraded", func() (err error) {
			asked, err = os.ReadFile(filepath.Join(dir, "asked"))
			if err == nil && string(asked) != name+" "+release+"\n" {
				err = fmt.Errorf("asked for %q", asked)
			}
			return err
		})
		p := u.c.Masters[slices.IndexFunc(u.c.Masters,
			func(m *Master) bool { return m.ID == name })]
		if err := p.Ready(); err == nil {
			t.Errorf("%s is ready while it is to be restarted", name)
		}
		p.Stop(t, 10*time.Second)
		p.Use(u.new)
		p.Run(t)
		if err := os.Remove(filepath.Join(dir, "asked")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".done"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return <-ended
}

// load pings and writes while the releases change, and notes what was acknowledged.
func (u *upgrade) load(t *testing.T) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			m := u.c.Masters[i%len(u.c.Masters)]
			if m.Ready() != nil {
				continue
			}
			key := fmt.Sprintf("k%d", i)
			r, err := run(m.test, m.programs.Run, "-c", m.ConfDir, "--out=json", "cache.store",
				"upgrade", key, key)
			if err == nil && r.Code == 0 && strings.TrimSpace(r.Stdout) == "null" {
				u.mu.Lock()
				u.acked = append(u.acked, key)
				u.mu.Unlock()
			}
			if i%5 == 0 {
				_, _ = run(m.test, m.programs.Salt, "-c", m.ConfDir, "-t", "5", "*", "test.ping")
			}
		}
	}()
	return sync.OnceFunc(func() { close(end); <-ended })
}

// nothingLost reads everything acknowledged, and pings.
func (u *upgrade) nothingLost(t *testing.T) {
	t.Helper()
	m := u.c.Masters[0]
	u.mu.Lock()
	acked := slices.Clone(u.acked)
	u.mu.Unlock()
	var have []string
	if err := m.RunnerJSON(t, &have, "cache.list", "upgrade"); err != nil {
		t.Fatal(err)
	}
	if len(acked) < 10 {
		t.Errorf("only %d writes were acknowledged", len(acked))
	}
	for _, key := range acked {
		if !slices.Contains(have, key) {
			t.Errorf("%s was acknowledged and is gone (%d of %d are there)", key, len(have),
				len(acked))
		}
	}
	Eventually(t, 30*time.Second, "the minion answers",
		func() error { return answersAll(t, u.c, m) })
	t.Logf("%d writes acknowledged, all there", len(acked))
}

// change gives a master another release and waits until the others see that it votes, serves and is
// ready.
func (u *upgrade) change(t *testing.T, m *Master, to Programs) {
	t.Helper()
	if m.Running() {
		if code, _ := m.Stop(t, 10*time.Second); code != 0 {
			t.Errorf("%s ended with %d", m.ID, code)
		}
	}
	m.Use(to)
	m.Run(t)
	u.settled(t, m)
}

// wipe restarts a master with an empty disk, in its release.
func (u *upgrade) wipe(t *testing.T, m *Master) {
	t.Helper()
	m.Stop(t, 10*time.Second)
	m.Wipe(t)
	m.Run(t)
	u.settled(t, m)
}

func (u *upgrade) settled(t *testing.T, m *Master) {
	t.Helper()
	for _, asked := range u.c.Running() {
		Eventually(t, 60*time.Second, m.ID+" votes and is ready, says "+asked.ID, func() error {
			var r membersReport
			if err := asked.RunnerJSON(t, &r, "cluster.members"); err != nil {
				return err
			}
			for _, p := range u.c.Masters {
				if got := r.Peers[p.ID]; got.State != "voter" || !got.Ready {
					return fmt.Errorf("%s is %+v", p.ID, got)
				}
			}
			return nil
		})
	}
}

// leads makes a master the leader.
func (u *upgrade) leads(t *testing.T, m *Master) {
	t.Helper()
	Eventually(t, 30*time.Second, m.ID+" leads", func() error {
		if r := m.Runner(t, "cluster.transfer_leader", m.ID); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// atLevel waits until a new master sees the cluster at a level, held back by heldBackBy.
func (u *upgrade) atLevel(t *testing.T, m *Master, want int, heldBackBy ...string) {
	t.Helper()
	Eventually(t, 20*time.Second, fmt.Sprintf("the cluster is at level %d, says %s", want, m.ID),
		func() error {
			for _, fun := range []string{"cluster.members", "cluster.health"} {
				var r struct {
					Level struct {
						Cluster    int                 `json:"cluster"`
						Highest    int                 `json:"highest"`
						HeldBackBy []string            `json:"held_back_by"`
						Releases   map[string][]string `json:"releases"`
						Skew       bool                `json:"skew"`
					} `json:"level"`
				}
				if err := m.RunnerJSON(t, &r, fun); err != nil {
					return err
				}
				l := r.Level
				if l.Cluster != want || l.Highest != u.level+1 ||
					!slices.Equal(l.HeldBackBy, heldBackBy) || l.Skew != (len(heldBackBy) > 0) ||
					l.Skew != (len(l.Releases) == 2) {
					return fmt.Errorf("%s: %+v", fun, l)
				}
			}
			return nil
		})
}

// tooOld starts a master in the old release again. It must end, say why, and change nothing.
func (u *upgrade) tooOld(t *testing.T, m *Master) {
	t.Helper()
	m.Stop(t, 10*time.Second)
	m.Use(u.old)
	m.Run(t)
	code, err := m.Wait(20 * time.Second)
	if err != nil || code == 0 {
		t.Fatalf("%s in its old release: exit code %d, %v", m.ID, code, err)
	}
	u.says(t, m.Log, u.refusal())
}

// tooOldToJoin starts an empty master in the old release, which is not admitted.
func (u *upgrade) tooOldToJoin(t *testing.T, m *Master) {
	t.Helper()
	m.Run(t)
	Eventually(t, 30*time.Second, m.ID+" is told which release to install", func() error {
		return logged(m.Log, fmt.Sprintf("install release 0.%d.0 or newer there", u.level+1))
	})
	m.Kill(t)
	m.Wipe(t)
}

// refusal is what a master of the old release says about the new level.
func (u *upgrade) refusal() string {
	if u.level == 1 {
		return "written by a newer version of clustermaster; upgrade this master"
	}
	return fmt.Sprintf("install release 0.%d.0 or newer", u.level+1)
}

func (u *upgrade) says(t *testing.T, path, text string) {
	t.Helper()
	if err := logged(path, text); err != nil {
		t.Error(err)
	}
}

func logged(path, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(b), text) {
		return fmt.Errorf("no line of %s says %q", path, text)
	}
	return nil
}

// future tries what only a release of the next level has; nil if the new release has nothing like
// it.
type future struct{ u *upgrade }

// refused tries it while the cluster is below the level. The release itself refuses; with force,
// the others do. Nothing changes.
func (f *future) refused(t *testing.T, m, other *Master) {
	if f == nil {
		return
	}
	t.Helper()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"future.note", "early"},
			"this needs level 3, and the cluster is at level 2; held back by " + other.ID},
		{[]string{"future.allow", "nobody"}, "this needs level 3"},
		{[]string{"future.ping", other.ID}, "needs level 3, and the cluster is at level 2"},
		{[]string{"future.field", other.ID},
			"field 7777 of clustermaster.cluster.StatusRequest is unknown to release 0.2.0"},
	} {
		if r := m.Runner(t, tt.args...); r.Code == 0 ||
			!strings.Contains(r.Stdout+r.Stderr, tt.want) {
			t.Errorf("want %q in\n%v", tt.want, r)
		}
	}
	if v, err := m.Members(t); err != nil || v.Leader == m.ID {
		return // a leader may write anything; TestDefectOfTheNextRelease does
	}
	for _, args := range []string{"future.note early force=True",
		"future.allow nobody force=True"} {
		want := "written at level 3, and this master runs release 0.2.0"
		if r := m.Runner(t, strings.Fields(args)...); r.Code == 0 ||
			!strings.Contains(r.Stdout+r.Stderr, want) {
			t.Errorf("want %q in\n%v", want, r)
		}
	}
	f.notes(t, m)
}

// allowed tries it at the level.
func (f *future) allowed(t *testing.T, m *Master) {
	if f == nil {
		return
	}
	t.Helper()
	for _, args := range [][]string{{"future.note", "late"}, {"future.allow", "nobody"},
		{"future.ping", f.u.c.Masters[1].ID}} {
		if r := m.Runner(t, args...); r.Code != 0 {
			t.Errorf("at the new level: %v", r)
		}
	}
	for _, o := range f.u.c.Masters {
		Eventually(t, 20*time.Second, o.ID+" has the note", func() error {
			var got []string
			if err := o.RunnerJSON(t, &got, "future.notes"); err != nil ||
				!slices.Contains(got, "late") || slices.Contains(got, "early") {
				return fmt.Errorf("%q, %v", got, err)
			}
			return nil
		})
	}
}

func (f *future) notes(t *testing.T, m *Master) {
	t.Helper()
	var got []string
	if err := m.RunnerJSON(t, &got, "future.notes"); err != nil || len(got) > 0 {
		t.Errorf("notes that were refused are there: %q, %v", got, err)
	}
}

// snapshot has a new master write a snapshot and truncate its log, so that masters that join or
// restart read the snapshot.
func (f *future) snapshot(t *testing.T, m *Master) {
	if f == nil {
		return
	}
	t.Helper()
	if r := m.Runner(t, "future.snapshot"); r.Code != 0 {
		t.Errorf("%v", r)
	}
}
