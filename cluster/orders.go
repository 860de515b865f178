package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"time"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/transport/peer"
	"clustermaster/wire"
)

// orderTimeout is how long an order waits for its effect. The effect still comes afterwards, or the
// log says why not.
const orderTimeout = 15 * time.Second

// ErrStandalone says that an order about peers came to a master without any.
var ErrStandalone = errors.New("no cluster_id configured; this master is not a cluster member")

// Removal is what Remove did.
type Removal struct {
	Member      fsm.Member
	Secret      string   // the new cluster_secret, "" if it was kept; it is stored nowhere else
	Unconfirmed []string // ids of masters that did not confirm the removal in time
	Warnings    []string // what the operator still has to do
}

// find looks up a member by its id, or by its address with or without port. An error ends with the
// remedy.
func (n *Node) find(ctx context.Context, name string) (fsm.Member, error) {
	if n.port == nil {
		return fsm.Member{}, ErrStandalone
	}
	if err := n.ReadIndex(ctx); err != nil {
		return fsm.Member{}, err
	}
	if name == "" {
		name = n.self.ID
	}
	if m, ok := n.state.MemberByID(name); ok {
		return m, nil
	}
	for _, m := range n.state.Members() {
		if host, _, err := net.SplitHostPort(m.Addr); name == m.Addr || err == nil && name == host {
			return m, nil
		}
	}
	for _, b := range n.state.Bars() {
		if b.ID == name {
			return fsm.Member{},
				fmt.Errorf("peer %s: was removed at %s; salt-run cluster.allow lets it join again",
					name, b.At.Format(time.RFC3339))
		}
	}
	return fsm.Member{},
		fmt.Errorf("peer %s: not in the cluster; see salt-run cluster.members", name)
}

// quorumWithout refuses an order that would leave the voters without a majority that answers now.
// Nobody could undo it then: the voters that remain must agree to it.
func (n *Node) quorumWithout(ctx context.Context, m fsm.Member, what string) error {
	short, cancel := context.WithTimeout(ctx, acquaintance)
	defer cancel()
	var reachable, left int
	_ = n.until(short, func() bool {
		var awaited bool
		reachable, left, awaited = n.answering(ctx, m.Node)
		return reachable > left/2 || !awaited
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case left == 0:
		return fmt.Errorf("peer %s: is the only voter; %s would leave none", m.ID, what)
	case reachable <= left/2:
		return &thinQuorumError{fmt.Sprintf("peer %s: %s would leave %d of %d voters in contact, which is no quorum; "+
			"start the missing masters or remove those first, see salt-run cluster.members", m.ID,
			what, reachable, left)}
	}
	return nil
}

// Remove removes a peer at once and bars its id and node key until Allow. It rotates the secrets of
// minions' sessions and, unless keepSecret, cluster_secret. An error means that the peer is still a
// member, perhaps without its vote. With an *UnknownOutcomeError it may still be removed later; the
// leader then rotates the secrets of sessions (see owes), and cluster_secret is left to the
// operator.
func (n *Node) Remove(ctx context.Context, name string, keepSecret bool) (Removal, error) {
	m, err := n.find(ctx, name)
	if err != nil {
		return Removal{}, err
	}
	if m.Node == n.self.Node {
		if len(n.state.Members()) == 1 {
			return Removal{}, fmt.Errorf("peer %s: is the only member; none would be left", m.ID)
		}
		return Removal{},
			fmt.Errorf("peer %s: is this master, which can't complete its own removal; run cluster.remove on "+
				"another one", m.ID)
	}
	if n.voters()[m.Node] {
		if err := n.quorumWithout(ctx, m, "removing it"); err != nil {
			return Removal{}, err
		}
	}
	if leader, _ := n.Leader(); leader == m.Node {
		if _, err := n.transfer(ctx, "", m.Node); err != nil {
			return Removal{}, fmt.Errorf("peer %s: is the leader and did not hand over: %w",
				m.ID, err)
		}
	}
	if n.voters()[m.Node] {
		// Take its vote first: once barred it gives none, and of two voters the other could not be
		// elected while raft still counts both.
		if _, err := n.propose(ctx, &fsm.MarkMember{Node: m.Node, Mark: fsm.MarkLearner,
			At: n.utc()}); err != nil {
			return Removal{}, fmt.Errorf("peer %s: %w", m.ID, err)
		}
		if err := n.until(ctx, func() bool { return !n.agreedVoters()[m.Node] }); err != nil {
			return Removal{},
				fmt.Errorf("peer %s: still has its vote, which the leader removes as soon as it can; try again "+
					"then: %w", m.ID, err)
		}
	}
	r, index, err := n.Propose(ctx, &fsm.RemoveMember{Node: m.Node, Bar: true, At: n.utc()})
	// a repeat of a command whose answer was lost
	if err == nil && r.Refused != fsm.RefusedNotMember {
		err = refused(r)
	}
	if errors.As(err, new(*UnknownOutcomeError)) && !keepSecret {
		return Removal{},
			fmt.Errorf("peer %s: %w; if it is gone, run salt-run cluster.rotate_secret, because it knows "+
				"cluster_secret", m.ID, err)
	}
	if err != nil {
		return Removal{}, fmt.Errorf("peer %s: %w", m.ID, err)
	}
	out := Removal{Member: m}
	warn := func(err error, format string, args ...any) {
		if err != nil {
			out.Warnings = append(out.Warnings, fmt.Sprintf(format, args...)+": "+err.Error())
		}
	}
	if !keepSecret {
		out.Secret, err = n.RotateSecret(ctx)
		warn(err,
			"cluster_secret was not rotated, and %s knows it; run salt-run cluster.rotate_secret",
			m.ID)
	}
	out.Unconfirmed = n.ConfirmEverywhere(ctx, index)
	warn(n.RotateKeys(ctx),
		"the secrets of minions' sessions were not rotated, and %s knows them; run salt-run cluster.rotate_keys", m.ID)
	n.log.Info("peer removed by order", "peer", m.ID, "addr", m.Addr, "index", index)
	return out, nil
}

// Allow lets a removed id and its node key join again. It returns false if the id was not barred.
func (n *Node) Allow(ctx context.Context, id string) (bool, error) {
	if n.port == nil {
		return false, ErrStandalone
	}
	r, index, err := n.Propose(ctx, &fsm.AllowMember{ID: id})
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return false, fmt.Errorf("peer %s: %w", id, err)
	}
	n.ConfirmEverywhere(ctx, index)
	return r.Changed, nil
}

// mark proposes a mark and returns when every serving master has applied it.
func (n *Node) mark(ctx context.Context, m fsm.Member, mark fsm.Mark) error {
	r, index, err := n.Propose(ctx, &fsm.MarkMember{Node: m.Node, Mark: mark, At: n.utc()})
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return fmt.Errorf("peer %s: %w", m.ID, err)
	}
	n.ConfirmEverywhere(ctx, index)
	return nil
}

// Drain makes a member not ready until it is called with on false; "" names this master. The member
// stays in the cluster and serves the minions that still come. Leadership goes to another voter if
// one can take it. Drain returns the member's id.
func (n *Node) Drain(ctx context.Context, name string, on bool) (string, error) {
	m, err := n.find(ctx, name)
	if err != nil {
		return "", err
	}
	if !on {
		return m.ID, n.mark(ctx, m, fsm.MarkUndrain)
	}
	others := 0
	for _, o := range n.Members() {
		if o.Node != m.Node && o.Ready {
			others++
		}
	}
	if others == 0 {
		return "",
			fmt.Errorf("peer %s: no other master is ready, so minions would have nowhere to go; see salt-run cluster.members", m.ID)
	}
	if err := n.mark(ctx, m, fsm.MarkDrain); err != nil {
		return "", err
	}
	if leader, _ := n.Leader(); leader == m.Node {
		if _, err := n.transfer(ctx, "", m.Node); err != nil && !errors.Is(err, errNoSuccessor) {
			n.log.Warn("drained master is still the leader; it tries to hand over again", "peer",
				m.ID, "err", err)
		}
	}
	return m.ID, nil
}

// Promote gives a member a vote. Promoted is false if the member gets it later, once it has caught
// up.
func (n *Node) Promote(ctx context.Context, name string) (id string, promoted bool, err error) {
	m, err := n.find(ctx, name)
	if err != nil {
		return "", false, err
	}
	voters := n.voters()
	if n.agreedVoters()[m.Node] && !m.Learner {
		return m.ID, true, nil
	}
	if !voters[m.Node] && len(voters) >= n.cfg.MaxVoters {
		return "", false,
			fmt.Errorf("peer %s: there are %d voters already (cluster_max_voters); demote another one first", m.ID, len(voters))
	}
	if err := n.mark(ctx, m, fsm.MarkVoter); err != nil {
		return "", false, err
	}
	return m.ID, n.until(ctx, func() bool { return n.agreedVoters()[m.Node] }) == nil, nil
}

// Demote takes a member's vote until Promote. Left is the number of voters that remain.
func (n *Node) Demote(ctx context.Context, name string) (id string, left int, err error) {
	m, err := n.find(ctx, name)
	if err != nil {
		return "", 0, err
	}
	if n.voters()[m.Node] {
		if err := n.quorumWithout(ctx, m, "demoting it"); err != nil {
			return "", 0, err
		}
	}
	if err := n.mark(ctx, m, fsm.MarkLearner); err != nil {
		return "", 0, err
	}
	if err := n.until(ctx, func() bool { return !n.agreedVoters()[m.Node] }); err != nil {
		return "", 0,
			fmt.Errorf("peer %s: still has its vote; the leader removes it as soon as it can: %w",
				m.ID, err)
	}
	return m.ID, len(n.agreedVoters()), nil
}

// TransferLeader makes another voter the leader: the named one, or with "" the one with the longest
// log.
func (n *Node) TransferLeader(ctx context.Context, name string) (id string, err error) {
	if n.port == nil {
		return "", ErrStandalone
	}
	to := ""
	if name != "" {
		m, err := n.find(ctx, name)
		if err != nil {
			return "", err
		}
		short, cancel := context.WithTimeout(ctx, acquaintance)
		defer cancel()
		switch {
		case !n.voters()[m.Node]:
			return "",
				fmt.Errorf("peer %s: is not a voter, and only a voter can lead; see salt-run cluster.promote", m.ID)
		case n.until(short, func() bool { return n.near(m.Node) }) != nil:
			return "", fmt.Errorf("peer %s: is not in contact; see salt-run cluster.members", m.ID)
		}
		to = m.Node
	}
	node, err := n.transfer(ctx, to, "")
	if err != nil {
		return "", err
	}
	m, _ := n.state.MemberByNode(node)
	return m.ID, nil
}

// transfer makes the leader hand over to a node, or to the best one other than not, and waits until
// this master knows the new leader. The chosen one may lose its election to another master, whose
// log is longer by a command that was on its way; then that one is asked.
func (n *Node) transfer(ctx context.Context, to, not string) (string, error) {
	before, _ := n.Leader()
	for began := time.Now(); ; {
		got, term, err := n.askToHandOver(ctx, to, not, before)
		if err != nil {
			return "", fmt.Errorf("transfer leadership: %w", err)
		}
		var now string
		if err := n.until(ctx, func() bool {
			newer := n.raft.CurrentTerm() > term // read first: a newer term begins without a leader
			leader, ok := n.Leader()
			now = leader
			return ok && (leader == got || newer)
		}); err != nil {
			return "", fmt.Errorf("transfer leadership: the new leader did not show up in time: %w", err)
		}
		switch {
		case now == got || to == "" && now != not && now != before:
			return now, nil
		case time.Since(began) > orderTimeout:
			return "", errors.New("transfer leadership: another master was elected each time; try again")
		}
		n.log.Info("leadership went to another master; it is asked to hand over", "to", to, "leader", now)
	}
}

// askToHandOver asks the leader to hand over, unless the leader that transfer found before has done
// so. It returns the node that is to lead next, and the term in which the leader was asked.
func (n *Node) askToHandOver(ctx context.Context, to, not, before string) (got string, term uint64,
	err error) {
	err = n.withLeader(ctx, func(leader string) error {
		term = n.raft.CurrentTerm()
		if leader == to || to == "" && leader != before {
			got = leader // another order may have done it
			return nil
		}
		if leader == n.self.Node {
			node, err := n.transferHere(ctx, to, not)
			got = node
			return err
		}
		if to == "" {
			if s := n.successor(leader); s == "" && !n.voters()[n.self.Node] {
				return errNoSuccessor
			}
		}
		client, err := n.client(leader)
		if err != nil {
			return fmt.Errorf("%w: %w", errElsewhere, err)
		}
		r, err := client.Transfer(ctx, &clusterpb.TransferRequest{To: to, Not: not})
		got = r.GetTo()
		return err
	})
	return got, term, err
}

// RotateSecret makes a new cluster_secret and returns it. The old one no longer admits a joiner on
// any master that is in contact. Only its K is stored.
func (n *Node) RotateSecret(ctx context.Context) (string, error) {
	if n.port == nil {
		return "", ErrStandalone
	}
	c, ok := n.state.Cluster()
	if !ok {
		return "", ErrNotFounded
	}
	var random [32]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("make cluster_secret: %w", err)
	}
	secret := base64.RawURLEncoding.EncodeToString(random[:])
	r, index, err := n.Propose(ctx, &fsm.SetJoinKey{JoinKey: peer.JoinKey(secret, c.ClusterID)})
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return "", fmt.Errorf("rotate cluster_secret: %w", err)
	}
	n.ConfirmEverywhere(ctx, index)
	n.log.Info("cluster_secret rotated", "index", index)
	return secret, nil
}

// RotateKeys rotates the session secret and the AES key, and gives users new keys.
func (n *Node) RotateKeys(ctx context.Context) error {
	if err := n.RotateSession(ctx); err != nil {
		return err
	}
	if err := n.RotateAES(ctx); err != nil {
		return err
	}
	return n.rotateUserKeys(ctx)
}

// rotateUserKeys replaces the keys that users have. No member in contact accepts the old ones
// afterwards.
func (n *Node) rotateUserKeys(ctx context.Context) error {
	keys := n.state.UserKeys()
	if len(keys) == 0 {
		return nil
	}
	for i := range keys {
		key, err := wire.NewKey()
		if err != nil {
			return fmt.Errorf("rotate keys of users: %w", err)
		}
		keys[i].Key = key.String()
	}
	r, index, err := n.Propose(ctx, &fsm.SetUserKeys{Keys: keys, Replace: true})
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return fmt.Errorf("rotate keys of users: %w", err)
	}
	n.ConfirmEverywhere(ctx, index)
	n.log.Info("keys of users rotated", "n", len(keys), "index", index)
	return nil
}

// until waits until effect returns true.
func (n *Node) until(ctx context.Context, effect func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	tick := time.NewTicker(retryPause)
	defer tick.Stop()
	for !effect() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
