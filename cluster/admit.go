package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
	"clustermaster/serve/origin"
	"clustermaster/transport/peer"
	"clustermaster/wire"
)

// admitTimeout is how long an admission may look for the leader; the joiner tries again.
const admitTimeout = 8 * time.Second

var (
	_ peer.Secrets       = (*Node)(nil)
	_ peer.SecretsByNode = (*Node)(nil)
	_ peer.JoinHandler   = (*Node)(nil)
	_ peer.ClusterSigner = (*Node)(nil)
)

// JoinKey implements peer.Secrets. It returns the cluster's K, or before founding the
// configuration's.
func (n *Node) JoinKey() ([]byte, bool) {
	if c, ok := n.state.Cluster(); ok && !n.standsAlone() {
		return c.JoinKey, len(c.JoinKey) > 0
	}
	return n.cfg.JoinKey, len(n.cfg.JoinKey) > 0
}

// JoinKeyOf implements peer.SecretsByNode. A removed peer may also prove itself with the K that it
// knew; HandleJoin then tells it that it was removed.
func (n *Node) JoinKeyOf(spki [32]byte) ([]byte, bool) {
	b, ok := n.state.BarBySPKI(spki)
	return b.JoinKey, ok && len(b.JoinKey) > 0
}

// takes reports whether a joiner with this node key may prove k, by the state as it is now.
func (n *Node) takes(k []byte, spki [32]byte) bool {
	now, ok := n.JoinKey()
	then, barred := n.JoinKeyOf(spki)
	return ok && slices.Equal(k, now) || barred && slices.Equal(k, then)
}

// SignJoin implements peer.ClusterSigner.
func (n *Node) SignJoin(msg []byte) (string, []byte, error) {
	key := n.ClusterKey()
	if key == nil {
		return "", nil, peer.ErrNoClusterKey
	}
	sig, err := key.Sign(wire.SigSHA224, msg)
	if err != nil {
		return "", nil, fmt.Errorf("sign for joiner: %w", err)
	}
	return key.Public().Text(), sig, nil
}

// HandleJoin implements peer.JoinHandler. It answers a master that has proved to know the secret. A
// member that is not the leader asks the leader.
func (n *Node) HandleJoin(ctx context.Context, from peer.Hello, k, request []byte) ([]byte, error) {
	var r clusterpb.JoinRequest
	if err := unmarshalKnown(request, &r); err != nil {
		return nil, fmt.Errorf("read join request: %w", err)
	}
	reply, err := n.answerJoin(ctx, from, k, &r)
	if err != nil {
		return nil, err
	}
	kind := reply.GetKind()
	n.m.joins.WithLabelValues(kind.String()).Inc()
	n.mu.Lock()
	say := (kind == clusterpb.JoinReply_REFUSED || kind == clusterpb.JoinReply_COPIED) &&
		n.refusal.due(from.Addr+reply.GetReason())
	n.mu.Unlock()
	if say {
		n.log.Warn("joiner refused", "peer", from.ID, "addr", from.Addr, "err", reply.GetReason())
	}
	b, err := proto.Marshal(reply)
	if err != nil {
		return nil, fmt.Errorf("pack join reply: %w", err)
	}
	return b, nil
}

func (n *Node) answerJoin(ctx context.Context, from peer.Hello, k []byte,
	r *clusterpb.JoinRequest) (_ *clusterpb.JoinReply, err error) {
	if from.Rival != "" {
		return &clusterpb.JoinReply{Kind: clusterpb.JoinReply_COPIED,
			Reason: fmt.Sprintf("the master %s runs at %s already, with a copy of the same data directory",
				from.ID, from.Rival)}, nil
	}
	n.believe(from)
	n.noteAsker(from.Addr)
	if !r.GetFound() {
		n.awaitFounding(ctx)
	}
	// Its claim must not lack the last keys, which its log has but its state may not have yet.
	if n.standsAlone() && !n.hold(ctx, n.IsLeader) {
		return nil, errors.New("this master stands alone and has not applied its own log yet")
	}
	cluster, founded := n.state.Cluster()
	switch {
	case !founded && len(n.pins.known()) == 0 && !n.Founding():
		reply := &clusterpb.JoinReply{Kind: clusterpb.JoinReply_NONE, Set: n.cfg.set(),
			Former: n.former.message()}
		if !r.GetFound() {
			return reply, nil
		}
		if reply.Granted, err = n.promise(from, r); err == nil {
			return reply, nil
		}
		return nil, err
	case founded && cluster.UUID != r.GetUuid() && r.GetUuid() != "" && !n.standsAlone():
		return &clusterpb.JoinReply{Kind: clusterpb.JoinReply_REFUSED, Uuid: cluster.UUID,
			Reason: n.otherCluster(from.ID, r.GetUuid(), n.cfg.Addr, cluster.UUID)}, nil
	case n.standsAlone():
		return &clusterpb.JoinReply{Kind: clusterpb.JoinReply_STATE, Set: n.addresses(),
			Uuid: cluster.UUID, Former: n.claim(),
			Reason: "this master is still stand-alone; its log says what keeps it from being the first member"}, nil
	case !founded || r.GetFound():
		return &clusterpb.JoinReply{Kind: clusterpb.JoinReply_STATE, Set: n.addresses(),
			Uuid:   cluster.UUID,
			Reason: "this master is still waiting for the cluster's state itself"}, nil
	}
	joiner := fsm.Member{
		Node: from.Node(), ID: from.ID, Incarnation: from.Incarnation, Addr: from.Addr,
		SPKI: from.SPKI, Version: from.Version,
	}
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	var reply *clusterpb.JoinReply
	ask := func(leader string) (err error) {
		if leader == n.self.Node {
			reply, err = n.admitHere(ctx, joiner, from.Level, r.GetUuid())
			return err
		}
		client, err := n.client(leader)
		if err != nil {
			return fmt.Errorf("%w: %w", errElsewhere, err)
		}
		asked := &clusterpb.AdmitRequest{Joiner: toPeer(joiner), Uuid: r.GetUuid()}
		asked.Joiner.Level = uint32(from.Level)
		reply, err = client.Admit(ctx, asked)
		return err
	}
	// The state here may be from before the secret was rotated, and the leader never learns what
	// the joiner proved.
	short, stop := context.WithTimeout(ctx, longestHold)
	err = n.readIndex(short)
	stop()
	switch {
	case err == nil && !n.takes(k, from.SPKI):
		return nil, errors.New("its cluster_secret has been replaced; give it the present one, which the last " +
			"cluster.rotate_secret or cluster.remove has printed")
	case err == nil:
		err = n.withLeader(ctx, ask)
	case short.Err() != nil: // others may be able to tell
		err = fmt.Errorf("%w: this master has not caught up with its leader: %w", ErrNoQuorum, err)
	}
	if errors.Is(err, ErrNoQuorum) {
		return &clusterpb.JoinReply{Kind: clusterpb.JoinReply_STATE, Set: n.addresses(),
			Uuid: cluster.UUID, Reason: err.Error()}, nil
	}
	return reply, err
}

// unmarshalKnown reads a message; a field that this release does not know is an error.
func unmarshalKnown(b []byte, m proto.Message) error {
	return errors.Join(proto.Unmarshal(b, m), level.CheckMessage(m))
}

// noteAsker wakes founding or joining on this master when another master asks for the first time:
// that master did not answer when this one looked for it.
func (n *Node) noteAsker(addr string) {
	n.mu.Lock()
	first := !n.askers[addr] && len(n.askers) < maxAsked
	if first {
		n.askers[addr] = true
	}
	n.mu.Unlock()
	if first {
		n.newcomer.beat()
	}
}

// askersKnown counts the masters that asked.
func (n *Node) askersKnown() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.askers)
}

// longestHold is how long a question over the join channel may wait: less than askTimeout.
const longestHold = 2 * time.Second

// awaitFounding holds a joiner's question while this master is about to found, so that the answer
// can be the admission.
func (n *Node) awaitFounding(ctx context.Context) {
	n.hold(ctx, func() bool {
		_, founded := n.state.Cluster()
		return founded && !n.standsAlone() || !founded &&
			!n.Founding() && (len(n.pins.known()) > 0 || !n.mightFound())
	})
}

// hold waits up to longestHold until effect returns true, and reports whether it did. Effect must
// be something of which n.moved tells.
func (n *Node) hold(ctx context.Context, effect func() bool) bool {
	limit := time.NewTimer(longestHold)
	defer limit.Stop()
	for {
		moved := n.moved.next()
		if effect() {
			return true
		}
		select {
		case <-moved:
		case <-limit.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// admitHere, on the leader, makes a joiner a member and a nonvoter of raft. A repeat only gives the
// same answer again.
func (n *Node) admitHere(ctx context.Context, joiner fsm.Member, supports int,
	uuid string) (*clusterpb.JoinReply, error) {
	if !n.IsLeader() {
		return nil, errElsewhere
	}
	cluster, ok := n.state.Cluster()
	if !ok {
		return nil, errElsewhere // about to be founded
	}
	refuse := func(format string, args ...any) (*clusterpb.JoinReply, error) {
		return &clusterpb.JoinReply{Kind: clusterpb.JoinReply_REFUSED, Uuid: cluster.UUID,
			Reason: fmt.Sprintf(format, args...)}, nil
	}
	if uuid != "" && uuid != cluster.UUID {
		return refuse("%s", n.otherCluster(joiner.ID, uuid, n.cfg.Addr, cluster.UUID))
	}
	if why := n.tooOld(joiner, supports); why != "" {
		return refuse("%s", why)
	}
	put := &fsm.PutMember{Member: joiner, At: n.utc()}
	if old, ok := n.state.MemberByID(joiner.ID); ok {
		switch {
		case old.Node == joiner.Node:
		case n.port.Alive(old.Node):
			return refuse("id %s is in use by the master at %s, which is in contact: give the new one another id", joiner.ID, old.Addr)
		case old.Addr != joiner.Addr && n.silent(old.Node) < n.cfg.ReplaceAfter:
			return refuse("id %s is in use by the master at %s, which was in contact less than %s ago: give the new one another id, or wait if it is to replace that one", joiner.ID, old.Addr, n.cfg.ReplaceAfter)
		default:
			put.Replace = old.Node
		}
	}
	if why := fsm.TooLong(put); why != "" {
		return refuse("%s", why)
	}
	audited, err := n.audited(origin.With(ctx,
		origin.Origin{From: joiner.Addr, Order: "join", Automatic: true}), put)
	if err != nil {
		return nil, err
	}
	entry, err := fsm.Encode(audited)
	if err != nil {
		return nil, err
	}
	r, _, err := n.applyHere(ctx, entry)
	if err != nil {
		return nil, err
	}
	switch r.Refused {
	case "":
	case fsm.RefusedBarred:
		reply, err := refuse("%s was removed from the cluster; see salt-run cluster.allow",
			joiner.ID)
		reply.Removed = true
		return reply, err
	case fsm.RefusedAddrTaken:
		return refuse("address %s belongs to another member; see salt-run cluster.members and cluster.remove", joiner.Addr)
	case fsm.RefusedKeyTaken:
		return refuse("the node key of %s belongs to another member: a data directory was copied; stop this master, move its data directory to another place, and start it as a new member", joiner.ID)
	case fsm.RefusedIDTaken:
		return nil, errElsewhere // the member came back in between
	default:
		return refuse("%s", r.Refused)
	}
	if err := n.align(ctx); err != nil {
		return nil, err
	}
	if r.Changed {
		n.log.Info("peer admitted", "peer", joiner.ID, "addr", joiner.Addr, "replaces", put.Replace)
	}
	reply := &clusterpb.JoinReply{Kind: clusterpb.JoinReply_ADMITTED, Uuid: cluster.UUID,
		Index: n.machine.applied.Load()}
	for _, m := range n.state.Members() {
		reply.Members = append(reply.Members, toPeer(m))
		reply.Set = append(reply.Set, m.Addr)
	}
	return reply, nil
}

// turn is a mutex that is held across waits. It is a channel so that a test on fake time sees a
// waiting goroutine as blocked.
type turn chan struct{}

// Lock waits until the turn is free and takes it.
func (t turn) Lock() { t <- struct{}{} }

// Unlock frees the turn for the next goroutine.
func (t turn) Unlock() { <-t }

// align makes raft's configuration follow the members: it adds joiners as nonvoters, removes
// members that left, and updates addresses. It goes over all of them although raft refuses one, as
// it does while another server has that address: the next round may find it free. Members that swap
// addresses keep their records, for the state refuses an address that another member has.
func (n *Node) align(ctx context.Context) error {
	n.aligning.Lock()
	defer n.aligning.Unlock()
	var errs []error
	note := func(what string, f raft.Future) {
		if err := await(ctx, f); err != nil {
			errs = append(errs, fmt.Errorf("%s raft: %w", what, err))
		}
	}
	have := make(map[string]raft.Server)
	for _, s := range n.servers() {
		have[string(s.ID)] = s
		if _, ok := n.state.MemberByNode(string(s.ID)); !ok {
			note("remove "+string(s.ID)+" from", n.raft.RemoveServer(s.ID, 0, enqueueTimeout))
		}
	}
	for _, m := range n.state.Members() {
		s, ok := have[m.Node]
		if ok && s.Address == n.raftAddr(m) {
			continue
		}
		add := n.raft.AddNonvoter
		if ok && s.Suffrage == raft.Voter {
			add = n.raft.AddVoter
		}
		note("add "+m.Node+" to", add(raft.ServerID(m.Node), n.raftAddr(m), 0, enqueueTimeout))
	}
	return errors.Join(errs...)
}
