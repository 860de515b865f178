package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
	"clustermaster/transport/peer"
)

// others are the running nodes but one.
func others(c *clustertest.Cluster, not *clustertest.Node) []*clustertest.Node {
	return slices.DeleteFunc(c.Up(), func(n *clustertest.Node) bool { return n == not })
}

// acquainted waits until everybody has heard everybody.
func acquainted(c *clustertest.Cluster) {
	c.WaitAll("all reachable", func(n *clustertest.Node) error {
		return eachMember(n, func(m cluster.Member) error {
			if !m.Reachable {
				return fmt.Errorf("%s not heard", m.ID)
			}
			return nil
		})()
	})
}

// eachMember looks at the members as n sees them, until check objects to one.
func eachMember(n *clustertest.Node, check func(cluster.Member) error) func() error {
	return func() error {
		for _, m := range n.Members() {
			if err := check(m); err != nil {
				return err
			}
		}
		return nil
	}
}

func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Patience)
	t.Cleanup(cancel)
	return ctx
}

const secretIsOld = "cluster_secret in the configuration is an old one"

func says(n *clustertest.Node, text string) func() error {
	return func() error {
		if !strings.Contains(n.Log(), text) {
			return fmt.Errorf("%s has not logged %q", n.ID, text)
		}
		return nil
	}
}

// saysAnew is says without what the node has logged before.
func saysAnew(n *clustertest.Node, text string) func() error {
	before := strings.Count(n.Log(), text)
	return func() error {
		if strings.Count(n.Log(), text) == before {
			return fmt.Errorf("%s has not logged %q again", n.ID, text)
		}
		return nil
	}
}

func TestRemoveIsAtOnceAndForGood(t *testing.T) {
	t.Parallel()
	key := peer.JoinKey(clustertest.Secret, clustertest.ClusterID)
	keys := map[int][]byte{}
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		if k, ok := keys[i]; ok {
			cfg.JoinKey = k
		}
	})
	c.WaitVoters(3)
	by := c.Leader()
	gone := others(c, by)[0]
	i := slices.Index(c.Nodes, gone)
	before := by.Secrets()
	done, err := by.Remove(patience(t), gone.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(done.Secret) < 40 || len(done.Warnings) != 0 || done.Member.ID != gone.ID {
		t.Errorf("removal of %s: %d characters of secret, warnings %v", done.Member.ID,
			len(done.Secret), done.Warnings)
	}
	for _, n := range others(c, gone) {
		s := n.Secrets()
		if s.AES[0].Epoch == before.AES[0].Epoch || s.Session[0].Epoch == before.Session[0].Epoch {
			t.Errorf("%s still has the secrets that the removed one knows", n.ID)
		}
		if len(n.Members()) != 2 || strings.Contains(n.Log(), done.Secret) {
			t.Errorf("%s: %d members, or the secret in its log", n.ID, len(n.Members()))
		}
		if k, _ := n.JoinKey(); string(k) == string(key) {
			t.Errorf("%s still takes the old secret", n.ID)
		}
	}
	// It is told, although its secret is the old one.
	c.Wait("told why", says(gone, "was removed from the cluster and no longer serves"))
	if gone.Serving() || gone.Ready() {
		t.Error("it serves")
	}
	// Again after a restart.
	gone.Stop()
	gone.Start()
	c.Wait("told again", func() error {
		if strings.Count(gone.Log(), "was removed from the cluster and no longer serves") < 2 ||
			gone.Serving() {
			return errors.New("nothing said")
		}
		return nil
	})
	// A wiped disk gives it another node key, but the id is barred and the secret is not the
	// present one.
	gone.Stop()
	gone.Wipe()
	refused := saysAnew(gone, "it has another cluster_secret or cluster_id")
	gone.Start()
	c.Wait("refused without a reason", refused)
	gone.Stop()
	keys[i] = peer.JoinKey(done.Secret, clustertest.ClusterID)
	barred := saysAnew(gone, "see salt-run cluster.allow")
	gone.Start()
	c.Wait("barred although it knows the new secret", barred)
	if ok, err := by.Allow(patience(t), gone.ID); err != nil || !ok {
		t.Fatalf("allow: %v %v", ok, err)
	}
	c.WaitVoters(3)
	// The others go on with a secret in their configuration that is not the cluster's.
	late := others(c, by)[0]
	if late == gone {
		late = others(c, by)[1]
	}
	late.Stop()
	late.Start()
	c.Wait("says so", says(late, secretIsOld))
	c.WaitVoters(3)
}

// Of two voters the one that stays could not be elected any more if it lost its office after the
// other was barred and before raft took its vote: so the vote goes first.
func TestRemoveOfOneOfTwoTakesItsVoteFirst(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 2)
	var mu sync.Mutex
	// removed: whether it had no vote by then
	learners, removed := map[string]bool{}, map[string]bool{}
	for _, n := range c.Nodes {
		n.BeforeRun = func(n *clustertest.Node) {
			n.OnApply(func(_ uint64, change fsm.Change) {
				mu.Lock()
				defer mu.Unlock()
				for _, m := range change.Added {
					learners[m.ID] = m.Learner
				}
				for _, m := range change.Removed {
					removed[m.ID] = learners[m.ID]
				}
			})
		}
		n.Start()
	}
	c.WaitVoters(2)
	by := c.Leader()
	gone := others(c, by)[0]
	if _, err := by.Remove(patience(t), gone.ID, true); err != nil {
		t.Fatal(err)
	}
	c.Wait("the removal is told of", func() error {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := removed[gone.ID]; !ok {
			return errors.New("not yet")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if !removed[gone.ID] {
		t.Error("it was removed with its vote")
	}
	propose(t, by, offer("web1"))
}

// One of two voters, and the only one, is needed for a quorum, unless it was removed.
func TestNeededForTheQuorum(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 2)
	a, b := c.Nodes[0], c.Nodes[1]
	needed := func(what string, want map[*clustertest.Node]bool) {
		t.Helper()
		c.Wait(what, func() error {
			for n, is := range want {
				if n.Node.Peers().QuorumNeedsSelf() != is {
					return fmt.Errorf("%s: not %v", n.ID, is)
				}
			}
			return nil
		})
	}
	c.WaitVoters(2)
	needed("two voters", map[*clustertest.Node]bool{a: true, b: true})
	if _, _, err := a.Demote(patience(t), b.ID); err != nil {
		t.Fatal(err)
	}
	needed("one voter", map[*clustertest.Node]bool{a: true, b: false})
	if _, _, err := a.Promote(patience(t), b.ID); err != nil {
		t.Fatal(err)
	}
	needed("two again", map[*clustertest.Node]bool{a: true, b: true})
	a.Stop()
	b.Stop()
	if err := os.WriteFile(filepath.Join(b.Dir, "removed.json"),
		[]byte(`{"at": "2026-11-23T05:52:17Z", "by": ""}`), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Start()
	if b.Node.Peers().QuorumNeedsSelf() {
		t.Error("a removed one holds itself for needed")
	}
}

func TestRemoveOfTheLeaderHandsOver(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	leader := c.Leader()
	by := others(c, leader)[0]
	done, err := by.Remove(patience(t), leader.ID, true)
	if err != nil || done.Secret != "" {
		t.Fatalf("%v %+v", err, done.Warnings)
	}
	if !strings.Contains(leader.Log(), "leadership handed over") {
		t.Error("it was not handed over first")
	}
	c.Wait("told why", says(leader, "no longer serves"))
	propose(t, by, offer("web1"))
	if ok, err := by.Allow(patience(t), leader.ID); err != nil || !ok {
		t.Fatalf("allow: %v %v", ok, err)
	}
	c.WaitVoters(3) // with the kept secret it comes back by itself
	if ok, err := by.Allow(patience(t), leader.ID); err != nil || ok {
		t.Errorf("a second allow: %v %v", ok, err)
	}
}

func TestOrdersThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	acquainted(c)
	n := c.Leader()
	dead := others(c, n)[0]
	alive := others(c, n)[1]
	dead.Kill()
	c.Wait("noticed", eachMember(n, func(m cluster.Member) error {
		if m.ID == dead.ID && m.Reachable {
			return errors.New("still reachable")
		}
		return nil
	}))
	ctx := patience(t)
	for _, tt := range []struct {
		name string
		do   func() error
		want string
	}{
		{"remove a stranger", func() error { _, err := n.Remove(ctx, "nosuch", false); return err },
			"peer nosuch: not in the cluster; see salt-run cluster.members"},
		{"remove oneself", func() error { _, err := n.Remove(ctx, n.ID, false); return err },
			"is this master"},
		{"remove the living", func() error { _, err := n.Remove(ctx, alive.ID, false); return err },
			"would leave 1 of 2 voters in contact, which is no quorum"},
		{"demote the living", func() error { _, _, err := n.Demote(ctx, alive.ID); return err },
			"would leave 1 of 2 voters in contact, which is no quorum"},
		{"lead by the dead, which might answer again at once", func() error {
			began := time.Now()
			_, err := n.TransferLeader(ctx, dead.ID)
			if took := time.Since(began); took < 2*time.Second {
				return fmt.Errorf("refused after %v", took)
			}
			return err
		}, "is not in contact"},
	} {
		if err := tt.do(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	done, err := n.Remove(ctx, dead.Addr, true)
	if err != nil || done.Member.ID != dead.ID {
		t.Fatalf("remove the dead by its address: %v", err)
	}
	if _, err := n.Remove(ctx, dead.ID, true); err == nil ||
		!strings.Contains(err.Error(), "was removed at") {
		t.Errorf("remove it again: %v", err)
	}
	if _, err := n.Remove(ctx, alive.ID, true); err != nil {
		t.Errorf("remove the second of two: %v", err)
	}
	for _, err := range []error{
		func() error { _, err := n.Remove(ctx, n.ID, true); return err }(),
		func() error { _, _, err := n.Demote(ctx, n.ID); return err }(),
		func() error { _, err := n.Drain(ctx, "", true); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "only") &&
			!strings.Contains(err.Error(), "no other master") {
			t.Errorf("order about the last one: %v", err)
		}
	}
}

func TestVotesAreKeptUntilEnoughOthersAnswer(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	n := c.Leader()
	dead, alive := others(c, n)[0], others(c, n)[1]
	dead.Kill() // nobody has noticed yet, and the masters have just been started
	for what, do := range map[string]func() error{
		"demote": func() error { _, _, err := n.Demote(patience(t), alive.ID); return err },
		"remove": func() error { _, err := n.Remove(patience(t), alive.ID, true); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "would leave 1 of 2 voters in contact") {
			t.Errorf("%s the second of three, the third of which is dead: %v", what, err)
		}
	}
	// An order is carried out later: the third may have died meanwhile.
	propose(t, n, &fsm.MarkMember{Node: alive.Self().Node, Mark: fsm.MarkLearner, At: time.Now().UTC()})
	c.Wait("the vote is kept", says(n, "keep their votes until more of the other voters answer"))
	propose(t, n, offer("web1"))
	dead.Start()
	c.Wait("the vote is taken", eachMember(n, func(m cluster.Member) error {
		if m.ID == alive.ID && m.Voter {
			return errors.New("still a voter")
		}
		return nil
	}))
	propose(t, n, offer("web2"))
}

func TestDrainSurvivesARestart(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	leader := c.Leader()
	by := others(c, leader)[0]
	if id, err := by.Drain(patience(t), leader.ID, true); err != nil || id != leader.ID {
		t.Fatal(id, err)
	}
	if leader.Ready() || !leader.Serving() {
		t.Errorf("ready %v, serving %v", leader.Ready(), leader.Serving())
	}
	c.Wait("another leads", func() error {
		if leader.IsLeader() {
			return errors.New("the drained one leads")
		}
		return nil
	})
	leader.Stop()
	leader.Start()
	c.Wait("serving but not ready", func() error {
		if !leader.Serving() {
			return errors.New("not serving")
		}
		return nil
	})
	if leader.Ready() {
		t.Error("ready after a restart")
	}
	c.Wait("the drained one knows a leader", func() error { return leader.ReadIndex(patience(t)) })
	if _, err := leader.Drain(patience(t), "", false); err != nil { // on itself
		t.Fatal(err)
	}
	c.WaitReady()
}

func TestPromoteDemoteTransfer(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	leader := c.Leader()
	by := others(c, leader)[0]
	id, left, err := by.Demote(patience(t), leader.ID)
	if err != nil || id != leader.ID || left != 2 {
		t.Fatalf("demote the leader: %s, %d left, %v", id, left, err)
	}
	if got := by.RecentlyDemoted(); !slices.Equal(got, []string{leader.ID}) {
		t.Errorf("recently demoted: %v", got)
	}
	propose(t, leader, offer("from a learner"))
	if id, promoted, err := by.Promote(patience(t), leader.ID); err != nil || !promoted ||
		id != leader.ID {
		t.Fatalf("promote: %v %v", promoted, err)
	}
	c.WaitVoters(3)
	if got := by.RecentlyDemoted(); len(got) != 0 {
		t.Errorf("recently demoted after promotion: %v", got)
	}
	for _, n := range c.Nodes {
		if id, err := by.TransferLeader(patience(t), n.ID); err != nil || id != n.ID {
			t.Errorf("transfer to %s: %s %v", n.ID, id, err)
		}
		c.Wait(n.ID+" leads", func() error {
			if !n.IsLeader() {
				return errors.New("it does not")
			}
			return nil
		})
	}
	was := c.Leader()
	if id, err := was.TransferLeader(patience(t), ""); err != nil || id == was.ID {
		t.Errorf("transfer to the best: %s %v", id, err)
	}
}

// TestTransfersAtOnce makes two operators want different leaders: each sees its own one lead, or
// another master that was elected meanwhile, and asks that one.
func TestTransfersAtOnce(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	acquainted(c)
	for range 15 {
		rest := others(c, c.Leader())
		errs := make(chan error, 2)
		for i, want := range rest {
			go func() {
				_, err := rest[1-i].TransferLeader(patience(t), want.ID)
				errs <- err
			}()
		}
		for range rest {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestTransferOutlivesItsLeader: the leader that was asked to hand over loses its office to a third
// master before it has done so. The third one is asked then.
func TestTransferOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	acquainted(c)
	for range 3 {
		asked := c.Leader()
		by, to := others(c, asked)[0], others(c, asked)[1]
		end := asked.HoldCommand()
		waits := saysAnew(asked, "leadership not handed over yet")
		done := make(chan error, 1)
		go func() {
			id, err := by.TransferLeader(patience(t), to.ID)
			if err == nil && id != to.ID {
				err = fmt.Errorf("%s leads", id)
			}
			done <- err
		}()
		c.Wait("the leader tries to hand over", func() error {
			if !asked.IsLeader() { // by itself, on a busy machine
				return nil
			}
			return waits()
		})
		c.Wait("the leader leaves", func() error {
			if !asked.IsLeader() {
				return nil
			}
			return errors.Join(errors.New("it leads"), asked.LeaveOffice())
		})
		if err := <-done; err != nil {
			t.Errorf("from %s to %s: %v", asked.ID, to.ID, err)
		}
		end()
	}
}

// TestTransferIsPatient: an order to hand over goes on while that takes longer than several
// elections. Commands pass meanwhile.
func TestTransferIsPatient(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	acquainted(c)
	c.Wait("an order while one leader stays in office", func() error {
		asked := c.Leader()
		term := asked.Term()
		by, to := others(c, asked)[0], others(c, asked)[1]
		end := asked.HoldCommand()
		done := make(chan error, 1)
		go func() {
			_, err := by.TransferLeader(patience(t), to.ID)
			done <- err
		}()
		var early error
		select {
		case err := <-done:
			early = fmt.Errorf("it ended while a command was under way: %v", err)
			done <- nil
		case <-time.After(5 * 500 * time.Millisecond): // election timeouts
			propose(t, by, offer("meanwhile"))
		}
		stayed := asked.IsLeader() && asked.Term() == term
		end()
		err := <-done
		if !stayed {
			return errors.New("another one was elected")
		}
		if err := errors.Join(early, err); err != nil {
			t.Error(err)
		}
		return nil
	})
}

func TestRotateSecretIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	keys := map[int][]byte{}
	c := clustertest.Prepare(t, 4, clustertest.Founders(3), func(i int, cfg *cluster.Config) {
		if k, ok := keys[i]; ok {
			cfg.JoinKey = k
		}
	})
	for _, n := range c.Nodes[:3] {
		n.Start()
	}
	c.WaitVoters(3)
	secret, err := c.Nodes[1].RotateSecret(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	late := c.Nodes[3]
	late.Start()
	c.Wait("the old secret is refused", says(late, "it has another cluster_secret or cluster_id"))
	if late.Serving() || len(c.Nodes[0].Members()) != 3 {
		t.Error("it got in")
	}
	late.Stop()
	keys[3] = peer.JoinKey(secret, clustertest.ClusterID)
	late.Start()
	c.WaitVoters(4)
	// A member that was away meanwhile needs no secret, and says nothing if it has the new one, of
	// which its disk does not know yet.
	away := c.Nodes[0]
	rotatedWithout := func() {
		away.Stop()
		c.Wait("rotated again, by whoever leads then", func() error {
			secret, err = c.Nodes[1].RotateSecret(patience(t))
			return err
		})
	}
	rotatedWithout()
	saysOld := saysAnew(away, secretIsOld)
	away.Start()
	c.Wait("says that its secret is old", saysOld)
	c.WaitVoters(4)
	rotatedWithout()
	keys[0] = peer.JoinKey(secret, clustertest.ClusterID)
	saysOld = saysAnew(away, secretIsOld)
	away.Start()
	c.WaitVoters(4)
	c.Wait("serves", func() error {
		if !away.Serving() {
			return errors.New("not yet")
		}
		return nil
	})
	if saysOld() == nil {
		t.Error("it calls the present secret old")
	}
}

func TestDeadVotersAreReplaced(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 4, clustertest.Founders(3), func(i int, cfg *cluster.Config) {
		cfg.MaxVoters, cfg.MinVoters, cfg.ReplaceVoters = 3, 3, true
		cfg.VoterTimeout, cfg.VoterCheck, cfg.DemoteCooldown = time.Second, 50*time.Millisecond,
			3*time.Second
	})
	for _, n := range c.Nodes[:3] {
		n.Start()
	}
	c.WaitVoters(3)
	dead := c.Leader() // dead before the next leader is elected
	dead.Kill()
	c.WaitAll("listed as unhealthy", func(n *clustertest.Node) error {
		if got := n.UnhealthyVoters(); !slices.Equal(got, []string{dead.ID}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if n := len(c.Leader().RecentlyDemoted()); n != 0 {
		t.Errorf("%d demoted without a replacement, below cluster_min_voters", n)
	}
	c.Nodes[3].Start()
	votes := func(want ...*clustertest.Node) func(*clustertest.Node) error {
		return func(n *clustertest.Node) error {
			voters := 0
			for _, m := range n.Members() {
				if m.Voter {
					voters++
				}
				if m.Voter && !slices.ContainsFunc(want,
					func(w *clustertest.Node) bool { return w.ID == m.ID }) {
					return fmt.Errorf("%s votes", m.ID)
				}
			}
			if voters != len(want) {
				return fmt.Errorf("%d voters", voters)
			}
			return nil
		}
	}
	c.WaitAll("replaced", votes(others(c, dead)...))
	c.WaitAll("recently demoted", func(n *clustertest.Node) error {
		m, ok := n.State().MemberByID(dead.ID)
		if !ok || m.Demoted.IsZero() || len(n.UnhealthyVoters()) != 0 {
			return fmt.Errorf("%+v", m)
		}
		return nil
	})
	dead.Start()
	c.WaitReady()
	want := others(c, dead)
	c.WaitAll("it stays a learner: there are three voters", votes(want...))
}

func TestStandaloneRefusesOrdersAboutPeers(t *testing.T) {
	t.Parallel()
	n, err := cluster.Open(cluster.Config{ID: "alone", DataDir: t.TempDir()}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx := t.Context()
	_, errRemove := n.Remove(ctx, "x", false)
	_, errSecret := n.RotateSecret(ctx)
	_, errLead := n.TransferLeader(ctx, "")
	_, errDrain := n.Drain(ctx, "", true)
	_, errAllow := n.Allow(ctx, "x")
	for _, err := range []error{errRemove, errSecret, errLead, errDrain, errAllow} {
		if !errors.Is(err, cluster.ErrStandalone) {
			t.Errorf("got %v", err)
		}
	}
}

func TestLongSilentMemberLeavesTheRingAndComesBack(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) {
		cfg.RingDeadAfter = 5 * time.Second // a busy machine silences a living one for less
	})
	c.WaitVoters(3)
	dead := others(c, c.Leader())[0]
	dead.Kill()
	inRing := func(want int) func(*clustertest.Node) error {
		return func(n *clustertest.Node) error {
			if got := n.State().Ring().Members; len(got) != want {
				return fmt.Errorf("ring of %v", got)
			}
			return nil
		}
	}
	c.WaitAll("two in the ring", inRing(2))
	if n := len(c.Leader().Members()); n != 3 {
		t.Errorf("%d members: it shall stay one", n)
	}
	epoch := c.Leader().State().Ring().Epoch
	dead.Start()
	c.WaitAll("three in the ring", inRing(3))
	c.WaitReady()
	if got := c.Leader().State().Ring().Epoch; got != epoch+1 {
		t.Errorf("ring went from epoch %d to %d: it was changed more than once", epoch, got)
	}
}
