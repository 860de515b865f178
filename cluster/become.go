package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/internal/durable"
	"clustermaster/transport/peer"
)

// Times of becoming and staying a member.
const (
	askTimeout  = 10 * time.Second // of one question over the join channel
	firstPause  = 200 * time.Millisecond
	longPause   = 5 * time.Second
	memberPause = 500 * time.Millisecond // between looks while this master is a member
	lostAfter   = 4 * time.Second        // without a leader: ask around, addresses and keys may have changed
	sayAgain    = 30 * time.Second       // before a log line about the same trouble is repeated
)

// become makes this master a member and keeps it one: it founds, joins, or resumes, and asks around when it hears
// nobody. It ends with ctx.
func (n *Node) become(ctx context.Context) error {
	pause := firstPause
	var asked time.Time
	trouble := &complaint{}
	for {
		moved := n.moved.next()
		_, member := n.state.MemberByNode(n.self.Node)
		wait := pause
		switch {
		case member:
			wait, pause = memberPause, firstPause
			if err := n.afterFounding(ctx); err != nil {
				trouble.say(n, "import at founding not done yet, trying again", err)
			}
			if err := n.correctRecord(ctx); err != nil {
				trouble.say(n, "own address not published yet, trying again", err)
			}
			if n.port != nil && n.lost() && time.Since(asked) > longPause {
				asked = time.Now()
				if err := n.join(ctx, n.addresses()); err != nil {
					trouble.say(n, "no leader heard, and nobody can name one", err)
				}
			}
		case n.founding.Load() && len(n.servers()) > 0:
			wait = memberPause // bootstrapped: the leader's duties do the rest
		case len(n.pins.known()) > 0 && !n.lost():
			wait = memberPause // admitted, and the leader brings the state
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
				trouble.say(n, "not a member of the cluster yet, trying again", err)
			}
			if done {
				asked, pause = time.Now(), firstPause
				break
			}
			pause = min(pause*3/2, longPause)
			wait = pause/2 + rand.N(pause/2) // masters started together shall not ask in step
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

// complaint says each trouble once, and again when it lasts.
type complaint struct {
	text string
	at   time.Time
}

func (c *complaint) say(n *Node, msg string, err error) {
	text := msg + err.Error()
	if text == c.text && time.Since(c.at) < sayAgain {
		return
	}
	c.text, c.at = text, time.Now()
	n.log.Warn(msg, "err", err)
}

// lost says that no leader has been known for a while.
func (n *Node) lost() bool {
	since := n.leaderless.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > lostAfter
}

// addresses lists where other masters may be: the option's and the known members'.
func (n *Node) addresses() []string {
	addrs := slices.Clone(n.cfg.Peers)
	for _, m := range n.pins.known() {
		if m.Node != n.self.Node && m.Addr != "" && m.Addr != n.cfg.Addr {
			addrs = append(addrs, m.Addr)
		}
	}
	return sortedSet(addrs)
}

// foundOrJoin makes one attempt. Done means that this master has decided to found, or was admitted.
func (n *Node) foundOrJoin(ctx context.Context) (done bool, err error) {
	if n.wouldFound() {
		found, err := n.mayFound(ctx, n.cfg.set())
		if err != nil {
			return false, err
		}
		if found {
			return true, n.bootstrap()
		}
	}
	if err := n.join(ctx, n.addresses()); err != nil {
		return false, err
	}
	return true, nil
}

// wouldFound says whether this master is the one that founds the cluster, where there is none yet.
func (n *Node) wouldFound() bool { return n.port == nil || n.cfg.Found || n.cfg.set()[0] == n.cfg.Addr }

// bootstrap makes this master the only voter of a new group. The marker comes first: a crash in between is taken up
// by the next start.
func (n *Node) bootstrap() error {
	if err := durable.WriteFile(filepath.Join(n.cfg.DataDir, foundingFile), nil); err != nil {
		return err
	}
	n.founding.Store(true)
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
	if !n.founding.Load() {
		return nil
	}
	if n.cfg.OnFounded != nil {
		if err := n.cfg.OnFounded(ctx, n); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(n.cfg.DataDir, foundingFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("end founding: %w", err)
	}
	n.founding.Store(false)
	n.moved.beat()
	return nil
}

// correctRecord publishes this master's address, node key and version where the members have others.
func (n *Node) correctRecord(ctx context.Context) error {
	m, ok := n.state.MemberByNode(n.self.Node)
	if !ok || m.Addr == n.self.Addr && m.SPKI == n.self.SPKI && m.Version == n.self.Version && (m.Pub == n.self.Pub || n.self.Pub == "") {
		return nil
	}
	if _, ok := n.Leader(); !ok {
		return nil
	}
	r, _, err := n.Propose(ctx, &fsm.PutMember{Member: n.self, At: time.Now().UTC()})
	if err != nil {
		return err
	}
	return refused(r)
}

// hello is what this master says of itself on the join channel.
func (n *Node) hello() peer.Hello {
	return peer.Hello{ID: n.self.ID, Addr: n.self.Addr, Incarnation: n.self.Incarnation, ClusterID: n.cfg.ClusterID, Version: n.self.Version}
}

// askPeer puts one question to the master at addr. A member's own K comes first: cluster_secret may have been rotated
// since its config was written, or the config may be newer than its state.
func (n *Node) askPeer(ctx context.Context, addr string, r *clusterpb.JoinRequest) (*clusterpb.JoinReply, fsm.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, _ := n.state.Cluster()
	r.Uuid, r.Set = c.UUID, n.cfg.set()
	b, err := proto.Marshal(r)
	if err != nil {
		return nil, fsm.Member{}, fmt.Errorf("pack join request: %w", err)
	}
	keys := [][]byte{n.cfg.JoinKey}
	if len(c.JoinKey) > 0 && !slices.Equal(c.JoinKey, n.cfg.JoinKey) {
		keys = [][]byte{c.JoinKey, n.cfg.JoinKey}
	}
	var from peer.Hello
	var answer []byte
	for _, k := range keys {
		from, answer, err = n.port.AskJoin(ctx, addr, n.hello(), k, n.cfg.PubFingerprint, b)
		if !errors.Is(err, peer.ErrRefused) {
			break
		}
	}
	if err != nil {
		return nil, fsm.Member{}, err
	}
	reply := &clusterpb.JoinReply{}
	if err := proto.Unmarshal(answer, reply); err != nil {
		return nil, fsm.Member{}, fmt.Errorf("read answer of %s: %w", addr, err)
	}
	return reply, fsm.Member{Node: from.Node(), ID: from.ID, Addr: from.Addr}, nil
}

// join asks the given addresses, one after the other, to be admitted; nil once one has.
func (n *Node) join(ctx context.Context, addrs []string) error {
	if len(addrs) == 0 {
		return errors.New("cluster_peers is empty: nobody to ask; start once with --found to found a cluster")
	}
	var errs []error
	queue, asked := slices.Clone(addrs), map[string]bool{n.cfg.Addr: true}
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
		switch reply.GetKind() {
		case clusterpb.JoinReply_ADMITTED:
			return n.learnFrom(addr, reply)
		case clusterpb.JoinReply_NONE:
			errs = append(errs, fmt.Errorf("%s: waits for the founder itself", addr))
		default:
			if reply.GetRemoved() && n.barred.CompareAndSwap(false, true) {
				n.log.Error("this master was removed from the cluster and serves no more; to bring it back run salt-run cluster.allow "+
					"with its id on a member, write the cluster's present cluster_secret into its configuration and restart it", "peer", n.self.ID, "addr", addr)
			}
			errs = append(errs, fmt.Errorf("%s: %s", addr, reply.GetReason()))
		}
	}
	return errors.Join(errs...)
}

// maxAsked bounds the masters that one attempt asks: peers may name further ones.
const maxAsked = 64

// learnt is the file that keeps what a member said at admission, until the state itself has arrived.
type learnt struct {
	Index   uint64       `json:"index"`
	Members []fsm.Member `json:"members"`
}

func (n *Node) learnFrom(addr string, reply *clusterpb.JoinReply) error {
	if c, ok := n.state.Cluster(); ok && c.UUID != reply.GetUuid() {
		return fmt.Errorf("%s belongs to cluster %s, this master to %s: remove its data directory to join the other", addr, reply.GetUuid(), c.UUID)
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
	n.pins.learn(l.Members, l.Index)
	n.barred.Store(false)
	n.leaderless.CompareAndSwap(n.leaderless.Load(), time.Now().UnixNano()) // give the leader time to come
	if _, ok := n.state.MemberByNode(n.self.Node); !ok {
		n.log.Info("admitted to the cluster, waiting for its state", "addr", addr, "n", len(l.Members))
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

// grant is this master's promise to be founded by one founder, kept on disk.
type grant struct {
	Node string `json:"node"`
	Addr string `json:"addr"`
}

// give grants founding to a would-be founder, and says who has the grant. It moves only between incarnations of one
// address: there the older one is gone with its disk.
func (n *Node) give(node, addr string) (granted bool, to string, err error) {
	n.mu.Lock()
	have := n.grant
	n.mu.Unlock()
	if have.Node == node {
		return true, node, nil
	}
	if have.Node != "" && have.Addr != addr {
		return false, have.Node, nil
	}
	next := grant{Node: node, Addr: addr}
	n.aligning.Lock() // two founders at once: the second sees the grant of the first
	defer n.aligning.Unlock()
	n.mu.Lock()
	raced := n.grant != have
	n.mu.Unlock()
	if raced {
		return false, have.Node, nil
	}
	if err := writeJSON(filepath.Join(n.cfg.DataDir, grantFile), next); err != nil {
		return false, "", err
	}
	n.mu.Lock()
	n.grant = next
	n.mu.Unlock()
	return true, node, nil
}

// mayFound asks everybody, and everybody whom they name, whether they have state. It is true when all say no, name
// the same set and grant; after JoinTimeout when a majority of the set does; with Config.Found when nobody says yes.
func (n *Node) mayFound(ctx context.Context, set []string) (bool, error) {
	if granted, to, err := n.give(n.self.Node, n.self.Addr); err != nil || !granted {
		return false, errors.Join(err, errIf(err == nil, "this master has promised the founding to %s", to))
	}
	answers := n.askAll(ctx, set, &clusterpb.JoinRequest{Found: true})
	agreed, all := 1, true
	var doubts []error
	for addr, a := range answers {
		switch {
		case a.err != nil:
			all = false
			doubts = append(doubts, a.err)
		case a.reply.GetKind() != clusterpb.JoinReply_NONE:
			return false, nil // a cluster exists: join it
		case !slices.Equal(a.reply.GetSet(), set):
			all = false
			doubts = append(doubts, fmt.Errorf("%s has other peers: %v here, %v there: make cluster_peers name the same masters", addr, set, a.reply.GetSet()))
		case !a.reply.GetGranted():
			all = false
			doubts = append(doubts, fmt.Errorf("%s has promised the founding to %s", addr, a.reply.GetGrantedTo()))
		case slices.Contains(set, addr):
			agreed++
		}
	}
	majority := len(set)/2 + 1
	switch {
	case all, n.cfg.Found:
		return true, nil
	case time.Since(n.started) >= n.cfg.JoinTimeout && agreed >= majority:
		n.log.Warn("founding with a majority: not all of cluster_peers answered", "n", agreed, "err", errors.Join(doubts...))
		return true, nil
	}
	return false, fmt.Errorf("founding waits for all of cluster_peers, or after %v for %d of %d: %w", n.cfg.JoinTimeout, majority, len(set), errors.Join(doubts...))
}

func errIf(cond bool, format string, args ...any) error {
	if !cond {
		return nil
	}
	return fmt.Errorf(format, args...)
}

type answer struct {
	reply *clusterpb.JoinReply
	err   error
}

// askAll asks the set and all whom they name, at the same time, and returns the answers by address.
func (n *Node) askAll(ctx context.Context, set []string, r *clusterpb.JoinRequest) map[string]answer {
	answers := make(map[string]answer)
	next := slices.DeleteFunc(slices.Clone(set), func(a string) bool { return a == n.cfg.Addr })
	for len(next) > 0 && len(answers) < maxAsked {
		var mu sync.Mutex // guards answers and named
		var named []string
		var wg sync.WaitGroup
		for _, addr := range next {
			wg.Go(func() {
				reply, _, err := n.askPeer(ctx, addr, proto.Clone(r).(*clusterpb.JoinRequest))
				mu.Lock()
				defer mu.Unlock()
				answers[addr] = answer{reply, err}
				named = append(named, reply.GetSet()...)
			})
		}
		wg.Wait()
		next = slices.DeleteFunc(sortedSet(named), func(a string) bool {
			_, asked := answers[a]
			return asked || a == n.cfg.Addr
		})
	}
	return answers
}
