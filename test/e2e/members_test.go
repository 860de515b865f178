package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMembers gives orders about members, as operators do, on one running cluster: three masters
// behind HAProxy and a minion of each release. The order matters: each case leaves the cluster
// whole for the next.
func TestMembers(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	Venvs(t)
	c := NewCluster(t, ClusterOptions{Balancer: BalancerOptions{Idle: idleLimit},
		Extra: "cluster_voter_timeout: 5\n"})
	c.Start(t)
	c.AddMinions(t, "minion", quick, Releases...)
	acceptAll(t, c, c.Masters[0])
	Eventually(t, 60*time.Second, "all minions answer",
		func() error { return answersAll(t, c, c.Masters[0]) })

	m := &orders{c: c}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"EveryPeerIsDescribed", m.describes},
		{"NonsenseIsRefused", m.refuses},
		{"PromoteDemoteTransfer", m.votes},
		{"DrainEmptiesAMaster", m.drains},
		{"RotateKeysLosesNoJob", m.rotatesKeys},
		{"RotateSecretShutsTheOldOneOut", m.rotatesSecret},
		{"DeadVoterIsListedAlsoAfterAnElection", m.lists},
		{"RemovedPeerStaysOut", m.removes},
		{"AllowedPeerComesBack", m.allows},
		{"DeletedPeerFileRemovesThePeer", m.removesByFile},
		{"SecretsAreInNoLogAndPrivate", m.keepsSecrets},
	} {
		if !t.Run(step.name, step.run) {
			break // the cluster is no longer whole
		}
	}
}

// serveAlone is how long after its start a master without a leader waits before it serves minions
// from what it has (cluster.Config.ServeWithout).
const serveAlone = 15 * time.Second

// orders is the cluster that gets the orders, with its former secrets.
type orders struct {
	c       *Cluster
	secrets []string
	image   string // of the last master's disk, older than the present cluster_secret
}

// peerState is one of the peers in cluster.members.
type peerState struct {
	Address     string   `json:"address"`
	State       string   `json:"state"`
	Phase       string   `json:"phase"`
	Version     string   `json:"version"`
	Lag         *int64   `json:"lag"`
	LastContact *float64 `json:"last_contact"`
	Ready       bool     `json:"ready"`
}

type membersReport struct {
	Members
	Version   int64                `json:"membership_version"`
	Term      int64                `json:"term"`
	Unhealthy []string             `json:"unhealthy_voters"`
	Demoted   []string             `json:"recently_demoted"`
	Removed   []string             `json:"removed"`
	Peers     map[string]peerState `json:"peers"`
}

func report(t *testing.T, m *Master) membersReport {
	t.Helper()
	var r membersReport
	if err := m.RunnerJSON(t, &r, "cluster.members"); err != nil {
		t.Fatal(err)
	}
	return r
}

// order runs a runner function that must succeed.
func order(t *testing.T, m *Master, args ...string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := m.RunnerJSON(t, &v, args...); err != nil {
		t.Fatal(err)
	}
	return v
}

func answersAll(t *testing.T, c *Cluster, m *Master) error {
	t.Helper()
	return pings(t, m, c.IDs()...)
}

// pings checks that just these minions answer a master's ping.
func pings(t *testing.T, m *Master, ids ...string) error {
	t.Helper()
	if got, r := m.Ping(t); !slices.Equal(got, ids) {
		return fmt.Errorf("want %v\n%v", ids, r)
	}
	return nil
}

func (o *orders) describes(t *testing.T) {
	for _, m := range o.c.Masters {
		Eventually(t, 20*time.Second, m.ID+" sees all as voters", func() error {
			r := report(t, m)
			for _, p := range o.c.Masters {
				got := r.Peers[p.ID]
				if got.State != "voter" || got.Phase != "member" || !got.Ready ||
					got.Address != p.Addr+":4520" || got.Version == "" || got.Lag == nil ||
					got.LastContact == nil || *got.LastContact > 5 {
					return fmt.Errorf("%s is %+v", p.ID, got)
				}
			}
			if r.Node != m.ID || r.Version <= 0 || r.Term <= 0 || r.Leader == "" ||
				len(r.Unhealthy)+len(r.Demoted)+len(r.Removed) != 0 {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
		if r := m.Runner(t, "cluster.health"); r.Code != 0 {
			t.Errorf("%v", r)
		}
	}
}

func (o *orders) refuses(t *testing.T) {
	m := o.c.Masters[0]
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"cluster.remove", "nosuch"}, 1,
			"Exception occurred in runner cluster.remove: peer nosuch: not in the cluster; see salt-run cluster.members"},
		{[]string{"cluster.remove", m.ID}, 1, "is this master"},
		{[]string{"cluster.promote", "nosuch"}, 1, "not in the cluster"},
		{[]string{"cluster.transfer_leader", "nosuch"}, 1, "not in the cluster"},
		{[]string{"cluster.remove"}, 0, "missing 1 required positional argument: 'peer'"},
		{[]string{"cluster.ring_create", "jobs", "master1"}, 1, "see salt-run cluster.ring_info"},
	} {
		if r := m.Runner(t, tt.args...); r.Code != tt.code ||
			!strings.Contains(r.Stdout+r.Stderr, tt.want) {
			t.Errorf("want code %d and %q\n%v", tt.code, tt.want, r)
		}
	}
	if v := report(t, m); len(v.Voters) != 3 {
		t.Errorf("something has changed: %+v", v)
	}
}

func (o *orders) votes(t *testing.T) {
	by, peer := o.c.Masters[0], o.c.Masters[2]
	if v := order(t, by, "cluster.transfer_leader", peer.ID); v["leader_id"] != peer.ID {
		t.Errorf("%v", v)
	}
	if v := report(t, by); v.Leader != peer.ID {
		t.Errorf("the leader is %s", v.Leader)
	}
	if v := order(t, by, "cluster.demote", peer.Addr); v["demoted"] != peer.ID ||
		v["voter_count"] != 2.0 {
		t.Errorf("%v", v)
	}
	v := report(t, o.c.Masters[1])
	if !slices.Equal(v.Learners, []string{peer.ID}) ||
		!slices.Equal(v.Demoted, []string{peer.ID}) || v.Peers[peer.ID].State != "learner" ||
		v.Leader == peer.ID {
		t.Errorf("after demotion of the leader: %+v", v)
	}
	if err := answersAll(t, o.c, peer); err != nil {
		t.Errorf("through a learner: %v", err)
	}
	if v := order(t, peer, "cluster.promote", peer.ID); v["promoted"] != peer.ID ||
		v["voter"] != true {
		t.Errorf("%v", v)
	}
	if v := report(t, by); len(v.Voters) != 3 || len(v.Demoted) != 0 {
		t.Errorf("after promotion: %+v", v)
	}
}

func (o *orders) drains(t *testing.T) {
	by := o.c.Masters[0]
	peer := o.c.Leader(t, by)
	if peer == by {
		by = o.c.Masters[1]
	}
	offsets := logSizes(o.c)
	if v := order(t, by, "cluster.drain", peer.ID); v["peer"] != peer.ID || v["draining"] != true {
		t.Errorf("%v", v)
	}
	if peer.Probe("/readyz") == nil || peer.Probe("/livez") != nil {
		t.Errorf("a drained master must live and not be ready: %v, %v", peer.Probe("/livez"),
			peer.Probe("/readyz"))
	}
	Eventually(t, 30*time.Second, "the balancer leaves it out", func() error {
		up, err := o.c.Balancer.Up("")
		if err != nil {
			return err
		}
		for name, list := range up {
			if slices.Contains(list, peer.Number) {
				return fmt.Errorf("%s has %v up", name, list)
			}
		}
		return nil
	})
	if v := report(t, by); v.Peers[peer.ID].State != "draining" || v.Leader == peer.ID {
		t.Errorf("after the drain: %+v", v)
	}
	if r := by.Runner(t, "cluster.health"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "is drained; salt-run cluster.undrain ends that") {
		t.Errorf("%v", r)
	}
	Eventually(t, 30*time.Second, "all minions answer",
		func() error { return answersAll(t, o.c, by) })
	// Maintenance: the master stops and comes back, still drained.
	if code, _ := peer.Stop(t, 30*time.Second); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if err := answersAll(t, o.c, by); err != nil {
		t.Errorf("while it is away: %v", err)
	}
	peer.Run(t)
	Eventually(t, 60*time.Second, "it lives", func() error { return peer.Probe("/livez") })
	if peer.Probe("/readyz") == nil {
		t.Error("ready after a restart, but nobody undrained it")
	}
	if v := order(t, peer, "cluster.undrain"); v["peer"] != peer.ID || v["draining"] != false {
		t.Errorf("%v", v)
	}
	o.c.WaitReady(t, 60*time.Second, o.c.Masters...)
	Eventually(t, 30*time.Second, "all minions answer",
		func() error { return answersAll(t, o.c, by) })
	noSignIns(t, o.c, offsets)
}

func (o *orders) rotatesKeys(t *testing.T) {
	a, b := o.c.Masters[0], o.c.Masters[1]
	var jids []string
	for i := range 4 {
		jids = append(jids, job(t, o.c.Masters[i%3], "*", "test.arg", fmt.Sprint("before ", i)))
		if i == 1 || i == 3 {
			order(t, b, "cluster.rotate_keys") // while jobs run
		}
		if err := answersAll(t, o.c, a); err != nil {
			t.Fatalf("after rotation: %v", err)
		}
	}
	for _, jid := range jids {
		Eventually(t, 30*time.Second, "all returns of "+jid, func() error {
			returns := map[string]any{}
			if err := a.RunnerJSON(t, &returns, "jobs.lookup_jid", jid); err != nil {
				return err
			}
			if len(returns) != len(o.c.Minions) {
				return fmt.Errorf("returns of %d minions", len(returns))
			}
			return nil
		})
	}
}

func (o *orders) rotatesSecret(t *testing.T) {
	old := o.c.Secret
	v := order(t, o.c.Masters[1], "cluster.rotate_secret")
	secret, _ := v["cluster_secret"].(string)
	if len(secret) < 40 {
		t.Fatalf("the new secret has %d characters", len(secret))
	}
	o.secrets = append(o.secrets, old, secret)
	stranger := o.c.Stranger(t, func(config string) string { return config })
	stranger.Run(t)
	Eventually(t, 60*time.Second, "the stranger is told what to look at", func() error {
		if !strings.Contains(tail(stranger.Log, 1<<20), "cluster_secret") {
			return errors.New("its log does not name cluster_secret")
		}
		return nil
	})
	if v := report(t, o.c.Masters[0]); len(v.Peers) != 3 {
		t.Errorf("the old secret lets in: %+v", v)
	}
	if code, _ := stranger.Stop(t, 30*time.Second); code != 0 {
		t.Errorf("the stranger ended with %d", code)
	}
	// With the new secret it joins. It leaves again, for the next cases.
	stranger.Configure(t, strings.Replace(stranger.Config(t), old, secret, 1))
	stranger.Run(t)
	Eventually(t, 60*time.Second, "the fourth is ready", stranger.Ready)
	o.gone(t, stranger, "keep_secret=True")
	// A member whose configuration still has the old secret continues, and says so.
	last := o.c.Masters[2]
	if code, _ := last.Stop(t, 30*time.Second); code != 0 {
		t.Errorf("%s ended with %d", last.ID, code)
	}
	o.image = filepath.Join(o.c.Dir, "image")
	if r := Command(t, "cp", "-a", filepath.Join(last.Dir, "cache"), o.image); r.Code != 0 {
		t.Fatal(r)
	}
	last.Run(t)
	o.c.WaitReady(t, 60*time.Second, o.c.Masters...)
	if !strings.Contains(tail(last.Log, 1<<20),
		"cluster_secret in the configuration is an old one") {
		t.Error("it does not say that its configuration is old")
	}
	o.c.Secret = secret
}

// gone removes a running peer and checks that it is out at once.
func (o *orders) gone(t *testing.T, peer *Master, flags ...string) map[string]any {
	t.Helper()
	v := order(t, o.c.Masters[0], append([]string{"cluster.remove", peer.ID}, flags...)...)
	if v["removed"] != peer.ID {
		t.Errorf("%v", v)
	}
	r := report(t, o.c.Masters[0])
	if _, still := r.Peers[peer.ID]; still || !slices.Contains(r.Removed, peer.ID) {
		t.Errorf("after the removal: %+v", r)
	}
	Eventually(t, 3*time.Second, "it serves no more, and holds no minion", func() error {
		for _, probe := range []string{"/livez", "/readyz"} {
			if peer.Probe(probe) == nil {
				return fmt.Errorf("%s says it serves", probe)
			}
		}
		return shut(t, peer)
	})
	Eventually(t, 20*time.Second, "it knows", func() error {
		if !strings.Contains(tail(peer.Log, 1<<20), "was removed from the cluster") {
			return errors.New("it has not said so")
		}
		return nil
	})
	return v
}

// shut returns nil once the minion ports of m are closed and the kernel has no session left on
// them.
func shut(t *testing.T, m *Master) error {
	t.Helper()
	for _, port := range []int{PublishPort, RequestPort} {
		if dial(m.Addr, port) == nil {
			return fmt.Errorf("port %d is open", port)
		}
		if n := sessions(t, m.Addr, port); n > 0 {
			return fmt.Errorf("%d sessions are open on port %d", n, port)
		}
	}
	return nil
}

func (o *orders) lists(t *testing.T) {
	dead := o.c.Leader(t, o.c.Masters[0])
	dead.Kill(t)
	alive := o.c.Others(dead)
	for _, m := range alive {
		Eventually(t, 30*time.Second, m.ID+" lists the dead voter", func() error {
			if r := report(t, m); !slices.Equal(r.Unhealthy, []string{dead.ID}) ||
				r.Peers[dead.ID].State != "unreachable" {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
	}
	if r := alive[0].Runner(t, "cluster.health"); r.Code != 1 ||
		!strings.Contains(r.Stdout, dead.ID+" is unreachable") {
		t.Errorf("%v", r)
	}
	// Two of three: removing the living one would leave no quorum.
	if r := alive[0].Runner(t, "cluster.remove", alive[1].ID); r.Code != 1 ||
		!strings.Contains(r.Stdout, "no quorum") {
		t.Errorf("%v", r)
	}
	dead.Run(t)
	o.c.WaitReady(t, 60*time.Second, o.c.Masters...)
}

func (o *orders) removes(t *testing.T) {
	peer := o.c.Masters[2]
	v := o.gone(t, peer)
	secret, _ := v["cluster_secret"].(string)
	if len(secret) < 40 || secret == o.c.Secret {
		t.Fatalf("the new secret has %d characters", len(secret))
	}
	o.secrets = append(o.secrets, secret)
	rest := o.c.Masters[:2]
	for _, m := range rest {
		Eventually(t, 60*time.Second, "all minions answer "+m.ID,
			func() error { return answersAll(t, o.c, m) })
	}
	// Neither a restart, nor a wiped disk, nor the new secret lets it back in.
	if code, _ := peer.Stop(t, 30*time.Second); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	peer.Run(t)
	outside := func() error {
		if peer.Probe("/livez") == nil {
			return errors.New("/livez says it serves")
		}
		return shut(t, peer)
	}
	Throughout(t, 10*time.Second, "it stays out", outside)
	// Nor does an old copy of its disk, which knows neither the removal nor the present secret.
	peer.Kill(t)
	peer.Wipe(t)
	if r := Command(t, "cp", "-a", o.image, filepath.Join(peer.Dir, "cache")); r.Code != 0 {
		t.Fatal(r)
	}
	peer.Run(t)
	Throughout(t, serveAlone+2*time.Second, "it stays out with an old disk", outside)
	if !strings.Contains(tail(peer.Log, 1<<20), "refuse its node key") {
		t.Error("it does not say why")
	}
	peer.Kill(t)
	peer.Wipe(t)
	peer.Configure(t, strings.Replace(peer.Config(t), o.secrets[0], secret, 1))
	peer.Run(t)
	Eventually(t, 60*time.Second, "it is told why", func() error {
		if !strings.Contains(tail(peer.Log, 1<<20), "see salt-run cluster.allow") {
			return errors.New("its log does not name cluster.allow")
		}
		return nil
	})
	if err := outside(); err != nil {
		t.Error(err)
	}
	if v := report(t, rest[0]); len(v.Peers) != 2 {
		t.Errorf("%+v", v)
	}
	o.c.Secret = secret
}

func (o *orders) allows(t *testing.T) {
	peer := o.c.Masters[2]
	if v := order(t, o.c.Masters[1], "cluster.allow", peer.ID); v["changed"] != true {
		t.Errorf("%v", v)
	}
	o.c.WaitReady(t, 90*time.Second, o.c.Masters...)
	for _, m := range o.c.Masters {
		Eventually(t, 60*time.Second, "all minions answer "+m.ID,
			func() error { return answersAll(t, o.c, m) })
		if v := report(t, m); len(v.Voters) != 3 || slices.Contains(v.Removed, peer.ID) {
			t.Errorf("%+v", v)
		}
	}
}

// removesByFile tries Salt's old way: the peer's key file is deleted while a master is stopped.
func (o *orders) removesByFile(t *testing.T) {
	m, peer := o.c.Masters[0], o.c.Masters[2]
	folder := filepath.Join(m.Dir, "pki", "peers")
	for _, p := range o.c.Masters {
		b, err := os.ReadFile(filepath.Join(folder, p.ID+".pub"))
		if err != nil || !bytes.Contains(b, []byte("BEGIN PUBLIC KEY")) {
			t.Errorf("%s: %v", p.ID, err)
		}
	}
	if code, _ := m.Stop(t, 30*time.Second); code != 0 {
		t.Errorf("%s ended with %d", m.ID, code)
	}
	if err := os.Remove(filepath.Join(folder, peer.ID+".pub")); err != nil {
		t.Fatal(err)
	}
	m.Run(t)
	Eventually(t, 60*time.Second, "the peer is out on all", func() error {
		for _, asked := range o.c.Masters[:2] {
			if asked.Ready() != nil {
				return fmt.Errorf("%s is not ready", asked.ID)
			}
			r := report(t, asked)
			if _, still := r.Peers[peer.ID]; still || !slices.Contains(r.Removed, peer.ID) {
				return fmt.Errorf("%s: %+v", asked.ID, r)
			}
		}
		return nil
	})
	Eventually(t, 60*time.Second, "all minions answer",
		func() error { return answersAll(t, o.c, m) })
	order(t, m, "cluster.allow", peer.ID)
	o.c.WaitReady(t, 90*time.Second, o.c.Masters...)
	Eventually(t, 20*time.Second, "its file is back", func() error {
		_, err := os.Stat(filepath.Join(folder, peer.ID+".pub"))
		return err
	})
}

// keepsSecrets runs after all of the above: no log and no job cache holds a secret, and private
// keys are only in files that no other user may open.
func (o *orders) keepsSecrets(t *testing.T) {
	if len(o.secrets) < 3 {
		t.Fatalf("%d secrets known", len(o.secrets))
	}
	has := func(text []byte) bool {
		return slices.ContainsFunc(o.secrets,
			func(s string) bool { return bytes.Contains(text, []byte(s)) })
	}
	jobs := map[string]struct{ Function string }{}
	if err := o.c.Masters[0].RunnerJSON(t, &jobs, "jobs.list_jobs"); err != nil {
		t.Fatal(err)
	}
	looked := 0
	for jid, job := range jobs {
		if !strings.HasPrefix(job.Function, "runner.cluster.r") {
			continue
		}
		looked++
		if r := o.c.Masters[0].Runner(t, "jobs.print_job", jid, "--out=json"); r.Code != 0 ||
			has([]byte(r.Stdout)) || !strings.Contains(r.Stdout, "cluster.r") {
			t.Errorf("job %s of %s tells a secret, or was not found: exit code %d", jid,
				job.Function, r.Code)
		}
	}
	if looked < 4 {
		t.Errorf("%d jobs looked at", looked)
	}
	for _, m := range o.c.Masters {
		if code, _ := m.Stop(t, 30*time.Second); code != 0 {
			t.Errorf("%s ended with %d", m.ID, code)
		}
	}
	logs, keys := 0, 0
	err := filepath.WalkDir(o.c.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		log := strings.HasSuffix(path, ".log")
		if log {
			logs++
		}
		if filepath.Base(path) != "master" && has(b) { // the operator's own file
			t.Errorf("%s holds a cluster_secret", path)
		}
		if bytes.Contains(b, []byte("PRIVATE KEY-----")) {
			keys++
			if log || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s holds a private key and has mode %v", path, info.Mode())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if logs < 4 || keys < 6 {
		t.Errorf("%d logs and %d files with keys were read", logs, keys)
	}
}

// TestQuorumLostForGood: two of three masters lose their disks. They found no second cluster. The
// survivor changes nothing and says how to continue. Then the wiped masters come back as new
// members, and the minions have noticed nothing but the pause.
func TestQuorumLostForGood(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	Venvs(t)
	c := NewCluster(t, ClusterOptions{Balancer: BalancerOptions{Idle: idleLimit}})
	c.Start(t)
	c.AddMinions(t, "minion", quick, "3008.3", "3006.28")
	acceptAll(t, c, c.Masters[0])
	Eventually(t, 60*time.Second, "all minions answer",
		func() error { return answersAll(t, c, c.Masters[0]) })
	jid := job(t, c.Masters[0], "*", "test.echo", "old")
	Eventually(t, 20*time.Second, "all returns",
		func() error { return hasReturns(t, c.Masters[0], jid, "old", c.IDs()) })
	survivor, wiped := c.Masters[2], c.Masters[:2]
	if r := survivor.Runner(t, "cluster.recover", "confirm=e2e"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "there is a quorum") {
		t.Errorf("%v", r)
	}
	for _, m := range wiped {
		m.Kill(t)
		m.Wipe(t)
		m.Run(t)
	}
	for _, m := range wiped {
		Eventually(t, 60*time.Second, m.ID+" names the way out", func() error {
			if !strings.Contains(tail(m.Log, 1<<20), "see salt-run cluster.recover") {
				return errors.New("its log does not name cluster.recover")
			}
			return nil
		})
		if m.Probe("/livez") == nil {
			t.Errorf("%s serves, but nobody can have let it in", m.ID)
		}
	}
	if r := survivor.Key(t, "-d", c.IDs()[0], "-y"); r.Code == 0 {
		t.Errorf("the survivor deletes a key alone\n%v", r)
	}
	if r := survivor.Runner(t, "cluster.health"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "salt-run cluster.recover") {
		t.Errorf("%v", r)
	}
	for _, args := range [][]string{{"cluster.recover"}, {"cluster.recover", "confirm=yes"}} {
		if r := survivor.Runner(t, args...); r.Code != 1 ||
			!strings.Contains(r.Stdout, "nothing done yet") ||
			!strings.Contains(r.Stdout, "confirm=e2e") {
			t.Errorf("%v", r)
		}
	}
	pid := survivor.PID()
	if r := survivor.Runner(t, "cluster.recover", "confirm=e2e"); r.Code != 0 ||
		!strings.Contains(r.Stdout, "given_up") {
		t.Fatalf("%v", r)
	}
	c.WaitReady(t, 90*time.Second, c.Masters...)
	if survivor.PID() != pid || !survivor.Running() {
		t.Error("the survivor's process has ended")
	}
	for _, m := range c.Masters {
		if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		Eventually(t, 60*time.Second, "all minions answer "+m.ID,
			func() error { return answersAll(t, c, m) })
		Eventually(t, 30*time.Second, "the old job on "+m.ID,
			func() error { return hasReturns(t, m, jid, "old", c.IDs()) })
		if v := report(t, m); len(v.Voters) != 3 {
			t.Errorf("%s: %+v", m.ID, v)
		}
	}
}

// TestBackupBringsAClusterBack: a cluster is saved, all its disks are lost, a new cluster is
// founded, and the backup is restored. The minion continues with its key, and the old jobs are
// there.
func TestBackupBringsAClusterBack(t *testing.T) {
	t.Parallel()
	Venvs(t)
	// Salt's own masters never join with this driver
	c := NewCluster(t, ClusterOptions{Extra: "keys.cache_driver: mmap_key\n"})
	c.StartMasters(t)
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "minion", Release: "3008.3",
		Master: c.Masters[1].Addr, Extra: quick})
	minion.Run(t)
	c.Minions = []*Minion{minion}
	acceptAll(t, c, c.Masters[0])
	m := c.Masters[1]
	Eventually(t, 60*time.Second, "the minion answers", func() error { return answersAll(t, c, m) })
	jid := job(t, m, "*", "test.echo", "old")
	Eventually(t, 20*time.Second, "all returns",
		func() error { return hasReturns(t, m, jid, "old", c.IDs()) })

	file, phrase := filepath.Join(c.Dir, "cluster.backup"), filepath.Join(c.Dir, "passphrase")
	if err := os.WriteFile(phrase, []byte("correct horse battery staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"cluster.backup", file}, "no passphrase"}, // nothing on stdin
		{[]string{"cluster.backup", "relative", "passphrase_file=" + phrase}, "absolute path"},
		{[]string{"cluster.backup", file, "passphrase=short"}, "at least 12"},
		{[]string{"cluster.backup", phrase, "passphrase_file=" + phrase}, "exists already"},
	} {
		if r := m.Runner(t, tt.args...); r.Code != 1 || !strings.Contains(r.Stdout, tt.want) {
			t.Errorf("want %q\n%v", tt.want, r)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a refused backup left its file")
	}
	v := order(t, m, "cluster.backup", file, "passphrase_file="+phrase, "jobs=True")
	if v["keys"] != 1.0 || v["jobs"].(float64) < 1 {
		t.Errorf("saved %v", v)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}

	key := order(t, m, "cluster.restore", file, "passphrase_file="+phrase, "test=True")
	if key["restored"] != false || key["keys"] != 1.0 {
		t.Errorf("test of the restore: %v", key)
	}
	minion.Freeze(t) // it must not meet the new cluster before that has its key again
	for _, m := range c.Masters {
		m.Kill(t)
		m.Wipe(t)
	}
	c.StartMasters(t)
	if err := hasKeys(t, m, "minions", nil); err != nil {
		t.Fatalf("the new cluster knows a key: %v", err)
	}
	if r := m.Runner(t, "cluster.restore", file, "passphrase=not the right one"); r.Code != 1 ||
		!strings.Contains(r.Stdout, "wrong passphrase") {
		t.Errorf("%v", r)
	}
	if v := order(t, m, "cluster.restore", file, "passphrase_file="+phrase,
		"jobs=True"); v["restored"] != true || v["keys"] != 1.0 {
		t.Errorf("restored %v", v)
	}
	for _, m := range c.Masters {
		if err := hasKeys(t, m, "minions", c.IDs()); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
	}
	offset := minion.LogSize()
	minion.Thaw(t)
	Eventually(t, 90*time.Second, "the minion answers the new cluster",
		func() error { return answersAll(t, c, m) })
	for _, line := range minion.Errors(t, offset) {
		if strings.Contains(line, "public key") || strings.Contains(line, "master key") {
			t.Errorf("the minion complains: %s", line)
		}
	}
	Eventually(t, 30*time.Second, "the old job",
		func() error { return hasReturns(t, m, jid, "old", c.IDs()) })
	for _, m := range c.Masters {
		if log, err := os.ReadFile(m.Log); err != nil ||
			bytes.Contains(log, []byte("correct horse")) ||
			bytes.Contains(log, []byte("not the right one")) {
			t.Errorf("%s has the passphrase in its log, or none: %v", m.ID, err)
		}
	}
}
