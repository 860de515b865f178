package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
	"clustermaster/store/durable"
	"clustermaster/transport/peer"
)

// Times for becoming and staying a member.
const (
	askTimeout  = 10 * time.Second // of one question over the join channel
	firstPause  = 200 * time.Millisecond
	longPause   = 5 * time.Second
	memberPause = 500 * time.Millisecond // between looks while this master is a member
	// time without a leader after which this master asks around: addresses and keys may have
	// changed
	lostAfter = 4 * time.Second
	sayAgain  = 30 * time.Second // before a log line about the same trouble is repeated
)

// become makes this master a member and keeps it one: it founds, joins or resumes, and asks around
// when it hears no leader. It returns when ctx ends.
func (n *Node) become(ctx context.Context) error {
	pause := firstPause
	var asked time.Time
	askers := 0
	trouble := &complaint{}
	for {
		moved := n.moved.next()
		// at Open the disk may not have shown yet that the founding was committed
		if err := n.checkClusterID(); err != nil {
			return err
		}
		_, member := n.state.MemberByNode(n.self.Node)
		wait := pause
		switch {
		case member:
			wait, pause = memberPause, firstPause
			if err := n.afterFounding(ctx); err != nil {
				trouble.say(n, "import at founding not done yet, trying again", err)
			}
			if n.standsAlone() && n.IsLeader() {
				moved = n.newcomer.next()
				if a := n.askersKnown(); a != askers || time.Since(asked) > longPause {
					asked, askers = time.Now(), a
					if err := n.adopt(ctx); err != nil {
						n.hindered(err)
						trouble.say(n,
							"this master is still stand-alone and serves its minions", err)
					}
				}
			}
			n.sayLeftOut()
			if err := n.correctRecord(ctx); err != nil {
				trouble.say(n, "own address not published yet, trying again", err)
			}
			if n.port != nil && (n.lost() || n.disowned() || n.barred()) && time.Since(asked) > longPause {
				asked = time.Now()
				if err := n.join(ctx, n.addresses()); err != nil {
					trouble.say(n, "not in touch with the cluster, asking its members again", err)
				}
			}
		case n.Founding() && len(n.servers()) > 0:
			wait = memberPause // bootstrapped: the leader's duties finish the founding
		case len(n.pins.known()) > 0 && !n.lost():
			wait = memberPause // admitted: the leader sends the state
		case n.port == nil:
			if err := n.bootstrap(); err != nil {
				return err
			}
			wait = 0
		case len(n.pins.known()) > 0:
			if time.Since(asked) > longPause {
				asked = time.Now()
				if err := n.join(ctx, n.addresses()); err != nil {
					trouble.say(n, "join not completed yet, trying again", err)
				}
			}
			wait = memberPause
		default:
			asks := n.newcomer.next()
			done, err := n.foundOrJoin(ctx)
			if err != nil && ctx.Err() == nil {
				n.hindered(err)
				trouble.say(n, "not a member of the cluster yet, trying again", err)
			}
			if done {
				asked, pause = time.Now(), firstPause
				break
			}
			pause = min(pause*3/2, longPause)
			wait = pause/2 + rand.N(pause/2) // so that masters started together don't ask in step
			moved = asks
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-moved:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// hindered keeps an error for Apart, as one line.
func (n *Node) hindered(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	n.hindrance.Store(&text)
}

// complaint logs each trouble once, and again if it lasts.
type complaint struct {
	text string
	at   time.Time
}

func (c *complaint) say(n *Node, msg string, err error) {
	if c.due(msg + err.Error()) {
		n.log.Warn(msg, "err", err)
	}
}

func (c *complaint) due(text string) bool {
	if text == c.text && time.Since(c.at) < sayAgain {
		return false
	}
	c.text, c.at = text, time.Now()
	return true
}

// lost reports whether this master has known no leader for lostAfter.
func (n *Node) lost() bool {
	since := n.leaderless.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > lostAfter
}

// addresses lists where other masters may be: first those of cluster_peers, then those of known
// members.
func (n *Node) addresses() []string {
	addrs := sortedSet(n.cfg.Peers)
	var known []string
	for _, m := range n.pins.known() {
		at, _ := n.pins.AddrOf(m.Node)
		if m.Node != n.self.Node && at != "" && at != n.cfg.Addr && !slices.Contains(addrs, at) {
			known = append(known, at)
		}
	}
	return append(addrs, sortedSet(known)...)
}

// foundOrJoin makes one attempt. Done means that this master has decided to found or was admitted.
func (n *Node) foundOrJoin(ctx context.Context) (done bool, err error) {
	if n.mightFound() {
		if done, err := n.tryFound(ctx); done || err != nil {
			return done, err
		}
	}
	if err := n.join(ctx, n.addresses()); err != nil {
		return false, err
	}
	return true, nil
}

// bootstrap makes this master the only voter of a new group. It writes the marker first, so that
// the next start finishes the founding after a crash.
func (n *Node) bootstrap() error {
	if n.former.key == nil && n.cfg.MayMakeKey != nil && !n.cfg.Found && !n.Founding() {
		if err := n.cfg.MayMakeKey(); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(filepath.Join(n.cfg.DataDir, foundingFile), nil); err != nil {
		return err
	}
	n.membership.note(func(f *facts) { f.founding = true })
	if len(n.servers()) > 0 {
		return nil
	}
	err := n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(n.self.Node), Address: n.raftAddr(n.self),
	}}}).Error()
	if err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("bootstrap raft: %w", err)
	}
	return n.electAlone()
}

func (n *Node) raftAddr(m fsm.Member) raft.ServerAddress {
	if m.Addr == "" {
		return raft.ServerAddress(m.Node) // stand-alone: the name of the in-memory transport
	}
	return raft.ServerAddress(m.Addr)
}

// afterFounding calls OnFounded on the founder until it has succeeded once.
func (n *Node) afterFounding(ctx context.Context) error {
	if !n.Founding() {
		return nil
	}
	if n.cfg.OnFounded != nil {
		if err := n.cfg.OnFounded(ctx, n); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(n.cfg.DataDir, foundingFile)); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("end founding: %w", err)
	}
	n.membership.note(func(f *facts) { f.founding = false })
	n.moved.beat()
	return nil
}

// correctRecord publishes this master's address, node key and version if the members have others.
func (n *Node) correctRecord(ctx context.Context) error {
	m, ok := n.state.MemberByNode(n.self.Node)
	if !ok || m.Addr == n.self.Addr && m.SPKI == n.self.SPKI && m.Version == n.self.Version &&
		(m.Pub == n.self.Pub || n.self.Pub == "") {
		return nil
	}
	if _, ok := n.Leader(); !ok {
		return nil
	}
	r, _, err := n.Propose(ctx, &fsm.PutMember{Member: n.self, At: n.utc()})
	if err != nil {
		return err
	}
	return refused(r)
}

// hello is what this master says about itself on the join channel.
func (n *Node) hello() peer.Hello {
	return peer.Hello{ID: n.self.ID, Addr: n.self.Addr, Incarnation: n.self.Incarnation,
		ClusterID: n.cfg.ClusterID, Version: n.self.Version, Level: level.Supported()}
}

// askPeer asks the master at addr one question. It tries a member's own K first: cluster_secret may
// have been rotated since its configuration was written, or the configuration may be newer than its
// state.
func (n *Node) askPeer(ctx context.Context, addr string,
	r *clusterpb.JoinRequest) (*clusterpb.JoinReply, fsm.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, _ := n.state.Cluster()
	r.Uuid, r.Set, r.Former, r.Ordered = c.UUID, n.cfg.set(), n.claim(), n.cfg.Found
	b, err := proto.Marshal(r)
	if err != nil {
		return nil, fsm.Member{}, fmt.Errorf("pack join request: %w", err)
	}
	var from peer.Hello
	var answer []byte
	for _, k := range n.joinKeys(c.JoinKey) {
		from, answer, err = n.port.AskJoin(ctx, addr, n.hello(), k, pinnedBy(n.cfg.PubFingerprint), b)
		if !errors.Is(err, peer.ErrRefused) {
			break
		}
		n.staleKey.Store(&k)
	}
	if err != nil {
		return nil, fsm.Member{}, err
	}
	n.believe(from)
	reply := &clusterpb.JoinReply{}
	if err := unmarshalKnown(answer, reply); err != nil {
		return nil, fsm.Member{}, fmt.Errorf("read answer of %s: %w", addr, err)
	}
	return reply, fsm.Member{Node: from.Node(), ID: from.ID, Addr: from.Addr}, nil
}

// joinKeys lists the keys to prove: the state's and, if it differs, the configuration's. The key
// that was refused last comes last: members allow few wrong attempts, so the right key would
// otherwise never be tried.
func (n *Node) joinKeys(ofState []byte) [][]byte {
	if len(ofState) == 0 || slices.Equal(ofState, n.cfg.JoinKey) {
		return [][]byte{n.cfg.JoinKey}
	}
	if stale := n.staleKey.Load(); stale != nil && slices.Equal(*stale, ofState) {
		return [][]byte{n.cfg.JoinKey, ofState}
	}
	return [][]byte{ofState, n.cfg.JoinKey}
}

// believe takes the address of a master that proved its node key, if it is a member.
func (n *Node) believe(from peer.Hello) {
	if n.pins.believe(from.SPKI, from.Addr) {
		n.log.Info("peer has moved", "peer", from.ID, "addr", from.Addr)
		n.moved.beat()
	}
}

// join asks the given addresses, one after the other, for admission. It returns nil once one admits
// this master.
func (n *Node) join(ctx context.Context, addrs []string) error {
	if len(addrs) == 0 {
		return errors.New("cluster_peers is empty: there is no master to ask; start once with --found to found a " +
			"cluster")
	}
	var errs []error
	queue, asked := slices.Clone(addrs), map[string]bool{n.cfg.Addr: true}
	// masters without a cluster, by address
	fresh := map[string]*clusterpb.Former{n.cfg.Addr: n.claim()}
	for len(queue) > 0 && len(asked) < maxAsked {
		addr := queue[0]
		queue = queue[1:]
		if asked[addr] {
			continue
		}
		asked[addr] = true
		reply, _, err := n.askPeer(ctx, addr, &clusterpb.JoinRequest{})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		queue = append(queue, reply.GetSet()...)
		if f := reply.GetFormer(); f != nil {
			fresh[addr] = f
		}
		switch reply.GetKind() {
		case clusterpb.JoinReply_ADMITTED:
			return n.learnFrom(addr, reply)
		case clusterpb.JoinReply_COPIED:
			return n.endAsCopy(addr, reply.GetReason())
		case clusterpb.JoinReply_NONE:
			errs = append(errs, fmt.Errorf("%s: it waits for the founder too", addr))
		default:
			if reply.GetRemoved() {
				n.noteRemoved(addr)
			}
			errs = append(errs, fmt.Errorf("%s: %s", addr, reply.GetReason()))
		}
	}
	return errors.Join(append(errs, conflict(fresh))...)
}

// maxAsked bounds the masters that one attempt asks, as peers may name further ones.
const maxAsked = 64

// learnt is the content of the file that keeps what a member said at admission until the state
// itself arrives.
type learnt struct {
	Index   uint64       `json:"index"`
	Members []fsm.Member `json:"members"`
}

func (n *Node) learnFrom(addr string, reply *clusterpb.JoinReply) error {
	if c, ok := n.state.Cluster(); ok && c.UUID != reply.GetUuid() {
		return errors.New(n.otherCluster(n.self.ID, c.UUID, addr, reply.GetUuid()))
	}
	l := learnt{Index: reply.GetIndex()}
	for _, p := range reply.GetMembers() {
		if m, ok := fromPeer(p); ok {
			l.Members = append(l.Members, m)
		}
	}
	if !slices.ContainsFunc(l.Members, func(m fsm.Member) bool { return m.Node == n.self.Node }) {
		return fmt.Errorf("%s admitted this master, but does not list it", addr)
	}
	if err := writeJSON(filepath.Join(n.cfg.DataDir, peersFile), l); err != nil {
		return err
	}
	if err := n.forgetRemoved(); err != nil {
		return err
	}
	n.pins.learn(l.Members, l.Index)
	// give the leader time to make contact
	n.leaderless.CompareAndSwap(n.leaderless.Load(), time.Now().UnixNano())
	if _, ok := n.state.MemberByNode(n.self.Node); !ok {
		n.log.Info("admitted to the cluster, waiting for its state", "addr", addr, "n",
			len(l.Members))
	}
	return nil
}

func (n *Node) loadLearnt() error {
	var l learnt
	ok, err := readJSON(filepath.Join(n.cfg.DataDir, peersFile), &l)
	if ok {
		n.pins.learn(l.Members, l.Index)
	}
	return err
}
