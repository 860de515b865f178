package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"clustermaster/cluster/fsm"
	"clustermaster/wire"
)

const (
	dutyEvery = 250 * time.Millisecond
	// the same while a master that answers has no vote or share yet
	joinEvery  = 50 * time.Millisecond
	quietAfter = time.Second // from the last change until the leader writes a no-op
	verifyGap  = time.Second // between confirmations of leadership by a majority
	// a joiner has caught up when it has what the leader had applied this long ago
	markAge   = 2 * time.Second
	dutyLimit = 10 * time.Second // of one round of duties
)

// lead does the leader's work while this master is the leader: first a barrier, then, on a timer,
// the duties that keep the cluster in order. It decides everything from the state each time, so the
// next leader continues whatever this one leaves undone.
func (n *Node) lead(ctx context.Context) error {
	var marks []mark
	trouble := &complaint{}
	for {
		moved, wait := n.moved.next(), dutyEvery
		if n.raft.State() == raft.Leader {
			round, cancel := context.WithTimeout(ctx, dutyLimit)
			now := time.Now()
			marks = append(marks, mark{now, n.machine.applied.Load()})
			for len(marks) > 1 && now.Sub(marks[1].at) >= markAge {
				marks = marks[1:]
			}
			err := n.duties(round, marks[0].applied)
			cancel()
			switch {
			case err == nil:
				n.rotate(ctx) // takes longer than a round
			case ctx.Err() == nil && !errors.Is(err, errElsewhere):
				trouble.say(n, "leader's duty not done, trying again", err)
			}
			if n.awaited {
				wait = joinEvery
			}
		} else if n.established.Swap(0) != 0 {
			n.log.Info("no longer the leader")
			marks = nil
		}
		tick := time.NewTimer(wait)
		select {
		case <-tick.C:
		case <-moved:
		case <-n.raft.LeaderCh():
		case <-ctx.Done():
			tick.Stop()
			return nil
		}
		tick.Stop()
	}
}

// mark is how far the leader's log was at a time.
type mark struct {
	at      time.Time
	applied uint64
}

func (n *Node) duties(ctx context.Context, caughtUp uint64) error {
	if !n.IsLeader() {
		if err := n.establish(ctx); err != nil {
			return err
		}
	}
	// before raft's configuration follows the members again
	if err := n.beginAnew(ctx); err != nil {
		return err
	}
	if time.Since(time.Unix(0, n.verified.Load())) >= verifyGap {
		if _, err := n.readIndexHere(ctx); err != nil {
			return err
		}
	}
	if n.machine.restless(quietAfter) {
		if err := n.do(ctx, fsm.Noop{}); err != nil {
			return err
		}
	}
	if err := n.checkpoint(ctx); err != nil {
		return err
	}
	if err := n.forgetRestore(ctx); err != nil {
		return err
	}
	if err := n.raise(ctx); err != nil {
		return err
	}
	if n.port != nil {
		if err := n.align(ctx); err != nil {
			return err
		}
		if err := n.promote(ctx, caughtUp); err != nil {
			return err
		}
		if err := n.demote(ctx); err != nil {
			return err
		}
		if err := n.replaceVoter(ctx, caughtUp); err != nil {
			return err
		}
		if err := n.yield(ctx); err != nil {
			return err
		}
	}
	return nil
}

// establish waits until everything that earlier leaders acknowledged is applied here, and founds
// the cluster if this leader is the founder.
func (n *Node) establish(ctx context.Context) error {
	term := n.raft.CurrentTerm()
	if err := await(ctx, n.raft.Barrier(enqueueTimeout)); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		return errElsewhere
	}
	n.established.Store(term)
	n.verified.Store(time.Now().UnixNano())
	n.moved.beat()
	n.log.Info("leader of the cluster", "term", term, "index", n.machine.applied.Load())
	if _, ok := n.state.Cluster(); !ok {
		return n.found(ctx)
	}
	return nil
}

// do applies a command as the leader. A refusal is an error.
func (n *Node) do(ctx context.Context, c fsm.Command) error {
	if why := fsm.TooLong(c); why != "" {
		return fmt.Errorf("apply %T: %w", c, &RefusedError{why})
	}
	audited, err := n.audited(ctx, c)
	if err != nil {
		return err
	}
	entry, err := fsm.Encode(audited)
	if err != nil {
		return err
	}
	if _, raises := c.(*fsm.SetLevel); !raises {
		if err := n.withinLevel(fsm.Needs(c)); err != nil {
			return err
		}
	}
	r, _, err := n.applyHere(ctx, entry)
	if err == nil {
		err = refused(r)
	}
	if err != nil {
		return fmt.Errorf("apply %T: %w", c, err)
	}
	return nil
}

// found makes the cluster's identity, keys and secrets.
func (n *Node) found(ctx context.Context) error {
	key, from, err := n.foundingKey()
	if err != nil {
		return fmt.Errorf("found cluster: %w", err)
	}
	aes, err := wire.NewKey()
	if err != nil {
		return fmt.Errorf("found cluster: %w", err)
	}
	session, err := randomSecret()
	if err != nil {
		return fmt.Errorf("found cluster: %w", err)
	}
	var uuid [16]byte
	if _, err := rand.Read(uuid[:]); err != nil {
		return fmt.Errorf("found cluster: %w", err)
	}
	c := &fsm.Found{
		Cluster: fsm.Cluster{
			UUID: hex.EncodeToString(uuid[:]), ClusterID: n.cfg.ClusterID,
			ClusterKey: string(key.PEM()),
			JoinKey:    n.cfg.JoinKey, Partitions: n.cfg.Partitions,
		},
		Member: n.self, AES: aes.String(), Session: session, At: n.utc(),
	}
	if n.port == nil {
		c.Cluster.JoinKey = nil
	}
	if err := n.do(ctx, c); err != nil {
		return fmt.Errorf("found cluster: %w", err)
	}
	if err := n.raise(ctx); err != nil { // no older member exists yet
		return fmt.Errorf("found cluster: %w", err)
	}
	if err := n.refreshSecrets(); err != nil {
		return err
	}
	n.log.Info("cluster founded", "uuid", c.Cluster.UUID, "cluster_id", n.cfg.ClusterID,
		"key", from)
	n.former.sayOthers(n.log)
	return nil
}

// foundingKey returns the former master's key, or a new one.
func (n *Node) foundingKey() (key *wire.PrivateKey, from string, err error) {
	if n.former.trouble != nil {
		return nil, "", n.former.trouble
	}
	if n.former.key != nil {
		return n.former.key, n.former.from, nil
	}
	if n.spareKey != nil {
		if key = <-n.spareKey; key != nil {
			return key, "new", nil
		}
	}
	key, err = wire.GeneratePrivateKey(n.cfg.KeySize)
	if err != nil {
		return nil, "", fmt.Errorf("make cluster key: %w", err)
	}
	return key, "new", nil
}

// makeKeyAhead begins to make the cluster's key early if this master is about to found with a new
// one. That takes longer than everything else at a first start.
func (n *Node) makeKeyAhead() {
	if _, founded := n.state.Cluster(); founded || len(n.pins.known()) > 0 || !n.mightFound() ||
		n.former.key != nil || n.former.trouble != nil {
		return
	}
	n.spareKey = make(chan *wire.PrivateKey, 1)
	go func() { // ends by itself, within a second or so
		defer close(n.spareKey) // if empty, the founding makes the key and reports the error
		if key, err := wire.GeneratePrivateKey(n.cfg.KeySize); err == nil {
			n.spareKey <- key
		}
	}()
}

// promote gives a vote to nonvoters that have caught up, up to MaxVoters, and then a share of the
// data. Members that left, or were silent for RingDeadAfter, lose theirs.
func (n *Node) promote(ctx context.Context, caughtUp uint64) error {
	voters := n.voters()
	ring := n.state.Ring()
	n.awaited = false
	want := make([]string, 0, len(ring.Members)+1)
	for _, m := range n.state.Members() {
		inRing := slices.Contains(ring.Members, m.Node)
		if inRing && n.silent(m.Node) > n.cfg.RingDeadAfter {
			n.log.Warn("peer silent for too long; it loses its share of the data until it is back",
				"peer", m.ID, "addr", m.Addr, "limit", n.cfg.RingDeadAfter)
			continue
		}
		vote := !voters[m.Node] && n.mayVote(m) && len(voters) < n.cfg.MaxVoters
		if !inRing || vote {
			alive := m.Node == n.self.Node || n.port.Alive(m.Node)
			if !alive || !n.hasCaughtUp(ctx, m, caughtUp) {
				n.awaited = n.awaited || alive
				if inRing {
					want = append(want, m.Node)
				}
				continue
			}
			if vote {
				if err := await(ctx, n.raft.AddVoter(raft.ServerID(m.Node), n.raftAddr(m), 0,
					enqueueTimeout)); err != nil {
					return fmt.Errorf("promote %s: %w", m.ID, err)
				}
				voters[m.Node] = true
				n.log.Info("peer promoted to voter", "peer", m.ID, "addr", m.Addr)
			}
		}
		want = append(want, m.Node)
	}
	slices.Sort(want)
	if len(want) == 0 || slices.Equal(want, ring.Members) {
		return nil
	}
	if err := n.do(ctx, &fsm.SetRing{Epoch: ring.Epoch + 1, Members: want,
		At: n.utc()}); err != nil {
		return err
	}
	n.log.Info("ring changed", "epoch", ring.Epoch+1, "n", len(want))
	return nil
}

// hasCaughtUp asks a member how far it is with the log and the roots.
func (n *Node) hasCaughtUp(ctx context.Context, m fsm.Member, mark uint64) bool {
	if m.Node == n.self.Node {
		return true
	}
	n.ask(ctx, m.Node)
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.contacts[m.Node]
	return time.Since(c.at) < 2*contactEvery && c.applied >= max(mark, m.Index) && !c.sync.Joining
}

// rotate starts the rotation that is due unless one is under way: by age (publish_session), or one
// that its proposer left half done.
func (n *Node) rotate(ctx context.Context) {
	aes, session := n.state.AES(), n.state.Session()
	if !n.clockJudged.Load() || n.rotating.Load() {
		return
	}
	due := func(e fsm.Epochs) bool {
		return n.cfg.PublishSession > 0 && e.Active.Number != 0 &&
			(n.Now().Sub(e.Active.At) >= n.cfg.PublishSession || n.foreseen(e.Active.At))
	}
	leftAES, leftSession := n.abandoned("aes", aes.Staged), n.abandoned("session", session.Staged)
	owed := ""
	if !leftAES && !leftSession { // each call that names a member counts as a try
		owed = n.owes(time.Now())
	}
	if owed == "" && !due(aes) && !due(session) && !leftAES && !leftSession ||
		!n.rotating.CompareAndSwap(false, true) {
		return
	}
	work := func() error {
		ctx, cancel := context.WithTimeout(ctx, dutyLimit*2)
		defer cancel()
		switch {
		case leftAES:
			return n.activate(ctx, &fsm.ActivateAES{Epoch: aes.Staged.Number, At: n.utc()})
		case leftSession:
			return n.activate(ctx, &fsm.ActivateSession{Epoch: session.Staged.Number, At: n.utc()})
		case owed != "":
			n.log.Warn("session secrets were not rotated when a peer was removed; rotating them now", "peer", owed)
			return n.RotateKeys(ctx)
		case due(session):
			return n.RotateSession(ctx)
		default:
			return n.RotateAES(ctx)
		}
	}
	started := n.spawn(func() {
		defer n.rotating.Store(false)
		if err := work(); err != nil && ctx.Err() == nil {
			n.log.Warn("secrets not rotated; trying again", "err", err)
		}
	})
	if !started {
		n.rotating.Store(false)
	}
}

// sighting is when this master first saw a staged secret, by its own monotonic clock.
type sighting struct {
	number uint64
	at     time.Time
}

// abandoned reports whether a staged secret has stood for so long that its proposer will not
// activate it, and the leader takes it over. Its age counts from when this leader first saw it,
// because the proposer's clock may be wrong.
func (n *Node) abandoned(kind string, staged fsm.Epoch) bool {
	seen := n.stagedSeen[kind]
	if seen.number != staged.Number {
		seen = sighting{staged.Number, time.Now()}
		n.stagedSeen[kind] = seen
	}
	return staged.Number != 0 && time.Since(seen.at) >= n.cfg.OwedAfter
}

// ConfirmLead asks a majority whether this master leads now, and returns the term in which it does.
func (n *Node) ConfirmLead(ctx context.Context) (term uint64, err error) {
	term = n.established.Load()
	if _, err := n.readIndexHere(ctx); err != nil {
		return 0, err
	}
	if term == 0 || n.established.Load() != term {
		return 0, errElsewhere
	}
	return term, nil
}
