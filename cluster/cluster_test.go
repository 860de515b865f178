package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
	"clustermaster/transport/peer"
)

func offer(id string) *fsm.OfferKey {
	return &fsm.OfferKey{ID: id, Pub: "PUB of " + id, At: time.Now().UTC()}
}

// propose makes a node carry out a command. On a busy machine the leader may be lost for a moment:
// a node that found none, or lost it on the way, is asked again unless the command was carried out.
func propose(t *testing.T, n *clustertest.Node, c fsm.Command) uint64 {
	t.Helper()
	r, index, err := proposed(n, c)
	if err != nil || r.Refused != "" {
		t.Fatalf("propose on %s: %v %+v", n.ID, err, r)
	}
	return index
}

// proposed proposes a command until there is a quorum and the outcome is known.
func proposed(n *clustertest.Node, c fsm.Command) (r fsm.Result, index uint64, err error) {
	err = untilQuorum(func(ctx context.Context) (err error) {
		if r, index, err = n.Propose(ctx, c); err != nil {
			r, index, err = n.Settle(ctx, err)
		}
		return err
	})
	return r, index, err
}

// readIndex is the node's read index, which it asks for until there is a quorum.
func readIndex(n *clustertest.Node) error { return untilQuorum(n.ReadIndex) }

// untilQuorum repeats what the loss of a leader ends.
func untilQuorum(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), clustertest.Patience)
	defer cancel()
	for {
		err := f(ctx)
		lost := errors.Is(err, cluster.ErrNoQuorum) || errors.As(err, new(*cluster.UnknownOutcomeError)) ||
			errors.Is(err, context.DeadlineExceeded)
		if !lost || ctx.Err() != nil {
			return err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// confirmed waits until every serving node has confirmed index.
func confirmed(c *clustertest.Cluster, n *clustertest.Node, index uint64) {
	c.Wait("confirmed everywhere", func() error {
		if un := n.ConfirmEverywhere(context.Background(), index); len(un) > 0 {
			return fmt.Errorf("unconfirmed: %v", un)
		}
		return nil
	})
}

func hasKey(id string) func(*clustertest.Node) error {
	return func(n *clustertest.Node) error {
		if _, ok := n.State().Key(id); !ok {
			return fmt.Errorf("no key %s", id)
		}
		return nil
	}
}

func TestThreeMastersFoundForwardAndReadTheirWrites(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	if ring := c.Nodes[2].Ring(); ring.Replicas() != 3 || len(ring.Members()) != 3 {
		t.Errorf("ring: %d replicas, members %v", ring.Replicas(), ring.Members())
	}
	for i, n := range c.Nodes {
		id := fmt.Sprintf("minion%d", i)
		index := propose(t, n, offer(id))
		if err := hasKey(id)(n); err != nil {
			t.Errorf("%s does not read its own write: %v", n.ID, err)
		}
		confirmed(c, n, index)
		for _, other := range c.Nodes {
			if err := hasKey(id)(other); err != nil {
				t.Errorf("confirmed everywhere, but %s: %v", other.ID, err)
			}
		}
	}
	// A read index on any master shows what any other acknowledged.
	for i := range 20 {
		id := fmt.Sprintf("read%d", i)
		propose(t, c.Nodes[i%3], offer(id))
		reader := c.Nodes[(i+1)%3]
		if err := readIndex(reader); err != nil {
			t.Fatal(err)
		}
		if err := hasKey(id)(reader); err != nil {
			t.Errorf("after a read index %s: %v", reader.ID, err)
		}
	}
	uuid, _ := c.Nodes[0].State().Cluster()
	for _, n := range c.Nodes[1:] {
		other, _ := n.State().Cluster()
		if other.UUID != uuid.UUID || n.ClusterKey() == nil ||
			!bytes.Equal(n.ClusterKey().PEM(), c.Nodes[0].ClusterKey().PEM()) {
			t.Errorf("%s has another cluster or key", n.ID)
		}
		if got, want := n.Secrets().AES[0].Key, c.Nodes[0].Secrets().AES[0].Key; got != want {
			t.Errorf("%s has another AES key", n.ID)
		}
	}
	for _, m := range c.Nodes[1].Members() {
		if !m.Voter || !m.Reachable || m.Addr == "" {
			t.Errorf("member: %+v", m)
		}
	}
}

// A new cluster waits for its masters, not for an election: the founder has nobody whose silence it
// should wait for.
func TestFoundingWaitsForNoElection(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) {
		cfg.HeartbeatTimeout,
			cfg.ServeWithout = time.Hour, time.Hour
	})
	c.WaitVoters(3)
	c.WaitReady()
}

func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	old := c.Leader()
	propose(t, old, offer("before"))
	old.Kill()
	begin := time.Now()
	for _, n := range c.Up() {
		propose(t, n, offer("after on "+n.ID))
	}
	t.Logf("writes go on %v after the leader was killed", time.Since(begin))
	old.Start()
	c.WaitReady()
	for _, id := range []string{"before", "after on " + c.Up()[0].ID} {
		c.WaitAll("key "+id, func(n *clustertest.Node) error {
			if id == "after on "+old.ID {
				return nil
			}
			return hasKey(id)(n)
		})
	}
	c.WaitVoters(3)
}

func TestLeadershipIsHandedOver(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	old := c.Leader()
	old.Stop()
	if !strings.Contains(old.Log(), "leadership handed over") {
		t.Error("not handed over")
	}
	begin := time.Now()
	propose(t, c.Up()[0], offer("x"))
	t.Logf("a write took %v after an orderly stop", time.Since(begin))
}

func TestLoneSurvivorKnowsWhatWasAgreed(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	follower := c.Follower()
	propose(t, c.Leader(), offer("web1"))
	propose(t, follower, &fsm.ChangeKeys{Action: fsm.AcceptKeys, IDs: []string{"web1"},
		From: fsm.StateSet(fsm.KeyPending), At: time.Now().UTC()})
	aes := follower.Secrets().AES[0].Key
	c.WaitAll("no-op after the last change", func(n *clustertest.Node) error {
		k, _ := n.State().Key("web1")
		if n.State().AppliedIndex() <= k.Index {
			return errors.New("the key is still the last entry")
		}
		return nil
	})
	for _, n := range c.Nodes {
		n.Stop()
	}
	follower.Start()
	k, ok := follower.State().Key("web1")
	if !ok || k.State != fsm.KeyAccepted {
		t.Errorf("key after restart, before anybody was heard: %+v %v", k, ok)
	}
	if n := len(follower.Members()); n != 3 {
		t.Errorf("members after restart: %d", n)
	}
	if got := follower.Secrets().AES; len(got) == 0 || got[0].Key != aes {
		t.Error("AES key after restart differs")
	}
	if follower.ClusterKey() == nil || len(follower.Secrets().Session) == 0 {
		t.Error("no cluster key or session secret after restart")
	}
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Patience)
	defer cancel()
	if err := follower.WaitServing(ctx); err != nil {
		t.Fatal(err)
	}
	if follower.Ready() {
		t.Error("ready without a leader")
	}
	_, _, err := follower.Propose(ctx, offer("web2"))
	var nq *cluster.NoQuorumError
	if !errors.As(err, &nq) || !errors.Is(err, cluster.ErrNoQuorum) {
		t.Fatalf("got %v, want a NoQuorumError", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("no quorum was said only when the time for it was over")
	}
	if want := "no quorum: 1 of 3 voters reachable, missing "; !strings.HasPrefix(nq.Error(),
		want) || !strings.Contains(nq.Error(), "start the missing masters") {
		t.Errorf("text: %s", nq)
	}
	if _, ok := follower.State().Key("web2"); ok {
		t.Error("a refused change was stored")
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitVoters(3)
	propose(t, follower, offer("web2"))
}

func TestWipedFounderJoins(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	propose(t, c.Nodes[0], offer("web1"))
	before, _ := c.Nodes[1].State().Cluster()
	oldNode := c.Nodes[0].Self().Node
	c.Nodes[0].Kill()
	c.Nodes[0].Wipe()
	c.Nodes[0].Start()
	c.WaitAll("three voters, the wiped one anew", func(n *clustertest.Node) error {
		after, _ := n.State().Cluster()
		if after.UUID != before.UUID {
			return fmt.Errorf("cluster %q, was %q", after.UUID, before.UUID)
		}
		if _, ok := n.State().MemberByNode(oldNode); ok {
			return errors.New("the old incarnation is still a member")
		}
		return hasKey("web1")(n)
	})
	c.WaitVoters(3)
	if c.Nodes[0].Self().Node == oldNode {
		t.Error("a wiped disk has its old incarnation")
	}
}

func TestWholeClusterRestarts(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	propose(t, c.Nodes[1], offer("web1"))
	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitVoters(3)
	c.WaitAll("web1", hasKey("web1"))
}

func TestWrongSecretNeverJoins(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, clustertest.Founders(2), func(i int, cfg *cluster.Config) {
		if i == 2 {
			cfg.JoinKey = peer.JoinKey("another secret, long enough", clustertest.ClusterID)
		}
	})
	wrong := c.Nodes[2]
	c.Wait("the first two found", func() error {
		if !c.Nodes[0].Ready() || !c.Nodes[1].Ready() {
			return errors.New("not ready")
		}
		return nil
	})
	c.Wait("a plain line in the log", func() error {
		if !strings.Contains(wrong.Log(), "cluster_secret") {
			return errors.New("nothing said")
		}
		return nil
	})
	if n := len(c.Nodes[0].Members()); n != 2 {
		t.Errorf("%d members", n)
	}
	if wrong.Serving() || len(wrong.Members()) != 0 || wrong.ClusterKey() != nil {
		t.Error("the master with the wrong secret serves or knows members")
	}
	if strings.Contains(wrong.Log(), "another secret") ||
		strings.Contains(c.Nodes[0].Log(), clustertest.Secret) {
		t.Error("a secret is in a log")
	}
}

// However long one of cluster_peers is silent, the others found nothing: it may be the one with the
// keys.
func TestAPartOfThePeersNeverFounds(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 3, func(_ int,
		cfg *cluster.Config) {
		cfg.JoinTimeout = 500 * time.Millisecond
	})
	c.Nodes[0].Start()
	c.Wait("it says that it is alone", says(c.Nodes[0], "2 of 3 do not answer"))
	c.Nodes[1].Start()
	c.Wait("it says who is missing, and how to go on without",
		says(c.Nodes[0], "1 of 3 do not answer; start those masters, or"))
	for _, n := range c.Up() {
		if _, ok := n.State().Cluster(); ok {
			t.Fatalf("%s has founded, or joined", n.ID)
		}
	}
	c.Nodes[2].Start()
	c.WaitVoters(3)
}

// A peer that answers "no" is present: neither time nor an operator's order founds a cluster beside
// the one that it may have.
func TestAPeerThatRefusesIsThere(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered %v", ordered), func(t *testing.T) {
			t.Parallel()
			c := clustertest.Prepare(t, 2, func(i int, cfg *cluster.Config) {
				cfg.JoinTimeout = time.Millisecond
				cfg.Found = ordered && i == 0
				if i == 1 {
					cfg.JoinKey = peer.JoinKey("another secret, long enough", clustertest.ClusterID)
				}
			})
			c.Nodes[1].Start()
			c.Nodes[0].Start()
			c.Wait("it says why", says(c.Nodes[0], "it is reachable and may already have a cluster"))
			for _, n := range c.Nodes {
				if _, ok := n.State().Cluster(); ok || strings.Contains(n.Log(), "--found") {
					t.Errorf("%s: founded %v, or advises to", n.ID, ok)
				}
			}
		})
	}
}

// An operator's order founds without those who do not answer; they join when they come.
func TestFoundByOrder(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 3, func(i int, cfg *cluster.Config) { cfg.Found = i == 1 })
	c.Nodes[1].Start()
	c.WaitVoters(1)
	c.Nodes[0].Start()
	c.Nodes[2].Start()
	c.WaitVoters(3)
	for _, n := range c.Nodes[1:] {
		if got, want := uuidOf(n), uuidOf(c.Nodes[0]); got != want {
			t.Errorf("%s is in cluster %s, the first in %s", n.ID, got, want)
		}
	}
}

func uuidOf(n *clustertest.Node) string {
	c, _ := n.State().Cluster()
	return c.UUID
}

func TestSameIDInContactIsRefused(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(i int, cfg *cluster.Config) {
		if i == 2 {
			cfg.ID = "m2"
		}
	})
	c.Wait("the second m2 is told", func() error {
		for _, n := range c.Nodes[1:] {
			if strings.Contains(n.Log(), "id m2 is in use by the master at") {
				return nil
			}
		}
		return errors.New("nothing said")
	})
	if n := len(c.Nodes[0].Members()); n != 2 {
		t.Errorf("%d members", n)
	}
}

// A box that was given the id of a member by mistake does not take its place while that restarts.
func TestSameIDDuringARestartIsRefused(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	n := c.Follower()
	node := n.Self().Node
	n.Stop()
	double := n.Clone(movedAddr(t, n.Addr))
	double.Wipe()
	double.Start()
	c.Wait("it is told", says(double, "is in use by the master at "+n.Addr+", which was in contact less than 1m0s ago"))
	n.Start()
	c.WaitVoters(3)
	if m, _ := n.State().MemberByID(n.ID); m.Node != node || m.Addr != n.Addr {
		t.Errorf("%s is %s at %s now, was %s at %s", n.ID, m.Node, m.Addr, node, n.Addr)
	}
}

// A new box at another address takes the place of a member that was silent for long enough.
func TestABoxElsewhereReplacesALostOne(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.ReplaceAfter = 4 * time.Second })
	c.WaitVoters(3)
	n := c.Follower()
	was := n.Self().Node
	n.Kill()
	box := n.Clone(movedAddr(t, n.Addr))
	box.Wipe()
	box.Start()
	alive := others(c, n)
	c.Wait("it is a voter", func() error {
		m, _ := alive[0].State().MemberByID(n.ID)
		if voters := alive[0].Voters(); m.Addr != box.Addr || !slices.Contains(voters, m.Node) ||
			slices.Contains(voters, was) {
			return fmt.Errorf("%s is at %s, voters %v", n.ID, m.Addr, voters)
		}
		return nil
	})
}

func TestMinorityRefusesAndHeals(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	cut := c.Leader()
	c.Isolate(cut)
	c.Wait("the others go on", func() error {
		for _, n := range c.Nodes {
			if n != cut && n.IsLeader() {
				return nil
			}
		}
		return errors.New("no leader")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, _, err := cut.Propose(ctx, offer("minority")); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("propose in the minority: %v", err)
	}
	if err := cut.ReadIndex(ctx); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("read index in the minority: %v", err)
	}
	if !cut.Serving() {
		t.Error("the cut off master stopped serving")
	}
	for _, n := range c.Nodes {
		if n != cut {
			propose(t, n, offer("majority"))
			break
		}
	}
	c.Wait("not ready in the minority", func() error {
		if cut.Ready() {
			return errors.New("ready")
		}
		return nil
	})
	c.Heal()
	c.WaitReady()
	c.WaitAll("one history", hasKey("majority"))
	for _, n := range c.Nodes {
		if _, ok := n.State().Key("minority"); ok {
			t.Errorf("%s has what was refused", n.ID)
		}
	}
}

// A secret whose time of grace is over has no new one after a restart.
func TestRestartGivesNoGrace(t *testing.T) {
	t.Parallel()
	const grace = time.Hour
	var ahead atomic.Int64 // of all clocks
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) {
		cfg.AESGrace, cfg.SessionGrace, cfg.ServeWithout = grace, grace, clustertest.Patience
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	c.WaitVoters(3)
	n := c.Follower()
	if err := errors.Join(n.RotateAES(patience(t)), n.RotateSession(patience(t))); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{grace / 2, grace + time.Minute} {
		want := 2
		if after > grace {
			want = 1
		}
		n.Stop()
		ahead.Store(int64(after))
		n.Start()
		if err := n.WaitServing(patience(t)); err != nil {
			t.Fatal(err)
		}
		if s := n.Secrets(); len(s.AES) != want || len(s.Session) != want {
			t.Errorf("%v after the rotation: %d AES keys and %d session secrets, want %d", after, len(s.AES),
				len(s.Session), want)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	grace := time.Minute
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.AESGrace = grace })
	c.WaitVoters(3)
	n := c.Follower()
	first := n.Secrets()
	if err := n.RotateAES(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Nodes {
		s := m.Secrets()
		if s.AES[0].Epoch != 2 || len(s.AES) != 2 || s.AES[1].Key != first.AES[0].Key {
			t.Errorf("%s right after the rotation: %d AES epochs, first %d", m.ID, len(s.AES),
				s.AES[0].Epoch)
		}
		if s.Session[0].Epoch != 1 {
			t.Errorf("%s: the session secret moved with the AES key", m.ID)
		}
	}
	grace = time.Second
	for _, m := range c.Nodes {
		m.Stop()
		m.Start()
	}
	c.WaitReady()
	c.WaitAll("the old AES key goes", func(m *clustertest.Node) error {
		if got := len(m.Secrets().AES); got != 1 {
			return fmt.Errorf("%d AES epochs", got)
		}
		return nil
	})
	if err := n.RotateSession(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Nodes {
		if s := m.Secrets().Session; s[0].Epoch != 2 || len(s) != 2 ||
			!bytes.Equal(s[1].Secret, first.Session[0].Secret) {
			t.Errorf("%s: session epochs %d", m.ID, len(s))
		}
	}
	if strings.Contains(n.Log(), first.AES[0].Key.String()) {
		t.Error("a key is in the log")
	}
}

func TestRotationByAge(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 1, func(_ int,
		cfg *cluster.Config) {
		cfg.PublishSession = 2 * time.Second
	})
	c.Wait("both rotate", func() error {
		s := c.Nodes[0].Secrets()
		if len(s.AES) == 0 || s.AES[0].Epoch < 2 || s.Session[0].Epoch < 2 {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestRemovedMemberIsOut(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	leader := c.Leader()
	var gone *clustertest.Node
	for _, n := range c.Nodes {
		if n != leader {
			gone = n
		}
	}
	propose(t, leader, &fsm.RemoveMember{Node: gone.Self().Node, Bar: true, At: time.Now().UTC()})
	c.Wait("two voters and two in the ring", func() error {
		if n := len(leader.State().Ring().Members); n != 2 || len(leader.Members()) != 2 {
			return fmt.Errorf("%d in the ring", n)
		}
		return nil
	})
	c.Wait("told why", func() error {
		if !strings.Contains(gone.Log(), "was removed from the cluster") {
			return errors.New("nothing said")
		}
		return nil
	})
	c.Wait("it serves no more", func() error {
		if gone.Ready() || gone.Serving() {
			return errors.New("serving")
		}
		return nil
	})
	propose(t, leader, &fsm.AllowMember{ID: gone.ID})
	c.WaitVoters(3)
}

func TestSnapshotsReachThoseWhoNeedThem(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3, func(_ int, cfg *cluster.Config) { cfg.SnapshotThreshold = 16 })
	c.WaitVoters(3)
	leader := c.Leader()
	for i := range 100 {
		propose(t, leader, offer(fmt.Sprintf("minion%d", i)))
	}
	for _, n := range c.Nodes {
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	propose(t, leader, offer("after the snapshot"))
	complete := func(n *clustertest.Node) error {
		if keys, _ := n.State().Keys(); len(keys) != 101 {
			return fmt.Errorf("%d keys", len(keys))
		}
		return nil
	}
	// One that joins with nothing gets the snapshot over the wire.
	wiped := c.Follower()
	wiped.Kill()
	wiped.Wipe()
	wiped.Start()
	c.WaitAll("101 keys", complete)
	c.WaitVoters(3)
	// All that restart read theirs, before a leader is heard.
	for _, n := range c.Nodes {
		n.Stop()
	}
	for _, n := range c.Nodes {
		n.Start()
		if err := complete(n); err != nil {
			t.Errorf("%s right after its start: %v", n.ID, err)
		}
	}
	c.WaitVoters(3)
	propose(t, c.Nodes[0], offer("one more"))
}

func TestTwoProposersAtOnceAndAStorm(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, 3)
	c.WaitVoters(3)
	var wg sync.WaitGroup
	begin := time.Now()
	for w := range 30 {
		wg.Go(func() {
			n := c.Nodes[w%3]
			for i := range 10 {
				if err := readIndex(n); err != nil {
					t.Errorf("read index: %v", err)
				}
				if _, _, err := proposed(n, offer(fmt.Sprintf("minion%d", i))); err != nil {
					t.Errorf("propose: %v", err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("300 read indexes and proposals from three masters took %v", time.Since(begin))
	c.WaitAll("10 keys", func(n *clustertest.Node) error {
		if keys, _ := n.State().Keys(); len(keys) != 10 {
			return fmt.Errorf("%d keys", len(keys))
		}
		return nil
	})
}

func TestVotersAreCappedAndLateOnesJoin(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 5, clustertest.Founders(3),
		func(i int, cfg *cluster.Config) { cfg.MaxVoters = 3 })
	for _, n := range c.Nodes[:3] {
		n.Start()
	}
	c.WaitVoters(3)
	c.Nodes[3].Start() // two at once
	c.Nodes[4].Start()
	c.WaitAll("five in the ring, three of them voters", func(n *clustertest.Node) error {
		voters := 0
		for _, m := range n.Members() {
			if m.Voter {
				voters++
			}
		}
		if ring := len(n.State().Ring().Members); voters != 3 || ring != 5 || !n.Ready() {
			return fmt.Errorf("%d voters, %d in the ring, ready %v", voters, ring, n.Ready())
		}
		return nil
	})
	index := propose(t, c.Nodes[4], offer("from a learner"))
	confirmed(c, c.Nodes[4], index)
	c.WaitAll("the key", hasKey("from a learner"))
}

func TestFoundAloneThenJoined(t *testing.T) {
	t.Parallel()
	c := clustertest.Prepare(t, 2, func(i int, cfg *cluster.Config) {
		if i == 0 {
			cfg.Peers, cfg.Found = nil, true
		}
	})
	c.Nodes[0].Start()
	c.WaitVoters(1)
	propose(t, c.Nodes[0], offer("a"))
	c.Nodes[1].Start()
	c.WaitVoters(2)
	c.WaitAll("the key", hasKey("a"))
}

// movedAddr is another loopback address with the same port.
func movedAddr(t *testing.T, addr string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	i := strings.LastIndex(host, ".")
	return net.JoinHostPort(host[:i]+".1"+host[i+1:], port)
}
