package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"clustermaster/cluster/clusterpb"
	"clustermaster/cluster/fsm"
	"clustermaster/test/knownbug"
	"clustermaster/transport/peer"
	"clustermaster/wire"
)

// former is what this machine has of the Salt master that ran on it before. The zero value means
// none.
type former struct {
	key      *wire.PrivateKey
	sum      string // of the public key, as peers compare it
	accepted int    // minion keys beside it
	from     string
	others   []string // places of other keys that differ from it
	trouble  error    // why the former master can't be read
}

// findFormer reads the places of FoundingKeys. The key that minions know is the one with accepted
// minion keys beside it.
func (c Config) findFormer() former {
	var best former
	var all []former
	for _, k := range c.FoundingKeys {
		b, err := k.Read()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return former{trouble: fmt.Errorf("read cluster key: %w", err)}
		}
		f := former{from: k.From}
		if f.key, err = wire.ParsePrivateKey(b, k.Pass); err != nil {
			return former{trouble: fmt.Errorf("read cluster key %s: %w", k.From, err)}
		}
		if k.Accepted != nil {
			if f.accepted, err = k.Accepted(); err != nil {
				return former{trouble: fmt.Errorf("count accepted keys beside %s: %w", k.From, err)}
			}
		}
		f.sum = keySum(f.key)
		all = append(all, f)
		if best.key == nil || best.accepted == 0 && f.accepted > 0 {
			best = f
		}
	}
	for _, f := range all {
		if f.sum != best.sum {
			best.others = append(best.others, f.from)
		}
	}
	return best
}

// keySum returns the SHA-256 of the public key's text, by which peers compare keys.
func keySum(key *wire.PrivateKey) string {
	sum := sha256.Sum256([]byte(key.Public().Text()))
	return hex.EncodeToString(sum[:])
}

func (f *former) message() *clusterpb.Former {
	m := &clusterpb.Former{Key: f.sum, Accepted: int64(f.accepted), From: f.from}
	if f.trouble != nil {
		m.Trouble = f.trouble.Error()
	}
	return m
}

// sayOthers logs the keys that were left out at founding.
func (f *former) sayOthers(log *slog.Logger) {
	for _, from := range f.others {
		log.Warn("RSA key not used at founding: it differs from the one used; the file stays, and minions that "+
			"trust only this key refuse this cluster", "path", from, "taken", f.from)
	}
}

// sayLeftOut logs once, on a master that joined, that the key it had before is not the cluster's.
func (n *Node) sayLeftOut() {
	if n.leftOut || n.former.key == nil || n.Founding() {
		return
	}
	key := n.ClusterKey()
	if key == nil {
		return
	}
	n.leftOut = true
	if n.former.key.Public().Text() == key.Public().Text() {
		return
	}
	n.log.Warn("RSA key not used: the cluster has another; the file stays, and minions that trust only this key "+
		"refuse this cluster",
		"path", n.former.from, "n", n.former.accepted)
}

// holds reports whether f has a key and minions that know it.
func holds(f *clusterpb.Former) bool { return f.GetKey() != "" && f.GetAccepted() > 0 }

// compareFounders orders masters by their right to found: first those with a former master's key
// and accepted minions, then those with only a key, then the rest; among equals by address.
func compareFounders(a *clusterpb.Former, addrA string, b *clusterpb.Former, addrB string) int {
	rank := func(f *clusterpb.Former) int {
		switch {
		case holds(f):
			return 0
		case f.GetKey() != "":
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), compareAddrs(addrA, addrB))
}

// conflict returns an error if masters without a cluster hold keys of different masters, or can't
// say what they hold. Founding then needs an operator's order.
func conflict(fresh map[string]*clusterpb.Former) error {
	var holders, troubles []string
	keys := make(map[string]bool)
	for addr, f := range fresh {
		if f.GetTrouble() != "" {
			troubles = append(troubles, fmt.Sprintf("%s: %s", addr, f.GetTrouble()))
		}
		if holds(f) {
			keys[f.GetKey()] = true
			holders = append(holders, fmt.Sprintf("%s has %s with %d accepted minions", addr,
				f.GetFrom(), f.GetAccepted()))
		}
	}
	var errs []error
	if len(troubles) > 0 {
		slices.Sort(troubles)
		errs = append(errs,
			fmt.Errorf("no master founds while a key that may be the former master's can't be read: %s; "+
				"repair it, or move it to another folder", strings.Join(troubles, "; ")))
	}
	if len(keys) > 1 {
		slices.Sort(holders)
		errs = append(errs,
			fmt.Errorf("no master founds, because there are keys of different masters: %s; choose the master "+
				"whose minions the cluster is to serve, and start it once with salt-master --found; the others "+
				"join it, and nothing of theirs is changed",
				strings.Join(holders, "; ")))
	}
	return errors.Join(errs...)
}

// mightFound reports whether this master may found the cluster.
func (n *Node) mightFound() bool {
	return n.port == nil || n.cfg.Found || n.former.key != nil || n.cfg.set()[0] == n.cfg.Addr
}

// grant is this master's promise to let another one found. It is kept on disk, so that a later
// order to found here knows of it.
type grant struct {
	Node string `json:"node"`
	Addr string `json:"addr"`
}

// promise answers another master that wants to found. It says yes to an operator's order and to a
// master with a better right than this one. The last promise counts, because a founder asks all
// masters and learns of a cluster founded since. A promise ends founding under way here. A master
// never does both: after a promise it does not found, and while it founds it promises nothing.
func (n *Node) promise(from peer.Hello, r *clusterpb.JoinRequest) (bool, error) {
	better := compareFounders(r.GetFormer(), from.Addr, n.former.message(), n.cfg.Addr) < 0
	if n.cfg.Found || !r.GetOrdered() && !better {
		return false, nil
	}
	n.promising.Lock()
	defer n.promising.Unlock()
	if n.Founding() {
		return false, nil
	}
	n.mu.Lock()
	next, have := grant{Node: from.Node(), Addr: from.Addr}, n.grant
	n.grant = next
	n.given++
	n.mu.Unlock()
	if next == have {
		return true, nil
	}
	return true, writeJSON(filepath.Join(n.cfg.DataDir, grantFile), next)
}

// promised returns the master that founding was promised to, and how often this process has
// promised it.
func (n *Node) promised() (grant, uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.grant, n.given
}

// tryFound asks all configured masters, and those that they name, whether they have state. It
// founds if all of them answer, have no state, name the same masters and leave the founding to this
// one. Some of them are never enough, however long the others are silent: two masters with empty
// disks would begin a second cluster beside a third master that has the keys. Config.Found, an
// operator's order, goes on without masters that do not answer, but not against one that does.
// False without an error: ask to join.
func (n *Node) tryFound(ctx context.Context) (bool, error) {
	if n.port == nil {
		return true, n.bootstrap()
	}
	if n.former.trouble != nil {
		return false, conflict(map[string]*clusterpb.Former{n.cfg.Addr: n.former.message()})
	}
	_, before := n.promised()
	answers := n.askAll(ctx, n.cfg.set(), &clusterpb.JoinRequest{Found: true})
	found, err := n.mayFound(answers)
	if !found || err != nil {
		return false, err
	}
	n.promising.Lock()
	defer n.promising.Unlock()
	if to, now := n.promised(); now != before {
		return false, fmt.Errorf("meanwhile this master let %s found the cluster", to.Node)
	}
	return true, n.bootstrap()
}

// mayFound judges the answers, by address.
func (n *Node) mayFound(answers map[string]answer) (bool, error) {
	mine := n.former.message()
	fresh := map[string]*clusterpb.Former{n.cfg.Addr: mine}
	names := map[string]string{n.cfg.Addr: n.self.Node}
	for addr, a := range answers {
		names[addr] = a.from.Node
		if errors.Is(a.err, peer.ErrSelf) { // cluster_peers names this master by another name too
			names[addr] = n.self.Node
		}
	}
	var absent, against []error
	for addr, a := range answers {
		switch {
		case errors.Is(a.err, peer.ErrSelf):
			continue
		case a.err != nil && !isThere(a.err):
			absent = append(absent, a.err)
			if to, _ := n.promised(); n.cfg.Found && to.Addr == addr {
				against = append(against,
					fmt.Errorf("this master let %s found the cluster; that master does not answer and may have "+
						"founded it: start it, or remove it from cluster_peers if it is lost",
						to.Node))
			}
			continue
		case a.err != nil:
			against = append(against, fmt.Errorf("%w; it is reachable and may already have a cluster",
				a.err))
			continue
		case a.reply.GetKind() != clusterpb.JoinReply_NONE:
			return false, nil // a cluster exists: join it
		}
		f := a.reply.GetFormer()
		fresh[addr] = f
		switch {
		case n.cfg.Found && holds(f) && !holds(mine):
			against = append(against,
				fmt.Errorf("%s holds a former master's key %s and %d accepted minions, which this master would leave "+
					"out: start that one with salt-master --found", addr, f.GetFrom(),
					f.GetAccepted()))
		case n.cfg.Found && a.reply.GetGranted():
		case !n.cfg.Found && !sameMasters(n.cfg.set(), a.reply.GetSet(), names):
			against = append(against,
				fmt.Errorf("%s has other peers: %v here, %v there: make cluster_peers name the same masters",
					addr, n.cfg.set(), a.reply.GetSet()))
		case !n.cfg.Found && compareFounders(f, a.from.Addr, mine, n.cfg.Addr) < 0:
			return false, conflict(fresh) // the other master founds
		case !a.reply.GetGranted():
			against = append(against,
				fmt.Errorf("%s was also started with --found, or is founding now", addr))
		}
	}
	if !n.cfg.Found {
		against = append(against, conflict(fresh))
	}
	if err := errors.Join(against...); err != nil {
		return false, fmt.Errorf("founding waits until all of cluster_peers agree: %w",
			errors.Join(append(absent, err)...))
	}
	return n.withoutThose(absent, len(answers)+1)
}

// withoutThose decides whether to found although some of the masters do not answer; all is their
// number.
func (n *Node) withoutThose(absent []error, all int) (bool, error) {
	if len(absent) == 0 || knownbug.Is(knownbug.PartFounds) && 2*len(absent) < all {
		return true, nil
	}
	if n.cfg.Found {
		n.log.Warn("founding as ordered, though not all of cluster_peers answer", "n", len(absent), "err",
			errors.Join(absent...))
		return true, nil
	}
	remedy := ""
	if n.ran(n.cfg.JoinTimeout) {
		remedy = "; start those masters, or, if none of them ever had a cluster, start this one once with salt-master --found"
	}
	return false,
		fmt.Errorf("founding waits for all of cluster_peers, %d of %d do not answer%s: %w",
			len(absent), all, remedy, errors.Join(absent...))
}

// sameMasters reports whether two lists of addresses mean the same masters. Names maps an address
// that answered to its node. An address that did not answer stands for itself.
func sameMasters(a, b []string, names map[string]string) bool {
	nodes := func(addrs []string) []string {
		var list []string
		for _, addr := range addrs {
			list = append(list, cmp.Or(names[addr], addr))
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	return slices.Equal(nodes(a), nodes(b))
}

// isThere reports whether a failed question shows a running master, which may have state.
func isThere(err error) bool {
	for _, e := range []error{peer.ErrRefused, peer.ErrUnanswered, peer.ErrMemberProof,
		peer.ErrFingerprint, peer.ErrNoClusterKey} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

type answer struct {
	reply *clusterpb.JoinReply
	from  fsm.Member // who answered
	err   error
}

// askAll asks the set and all masters that they name, concurrently, and returns the answers by
// address.
func (n *Node) askAll(ctx context.Context, set []string,
	r *clusterpb.JoinRequest) map[string]answer {
	answers := make(map[string]answer)
	next := slices.DeleteFunc(slices.Clone(set), func(a string) bool { return a == n.cfg.Addr })
	for len(next) > 0 && len(answers) < maxAsked {
		var mu sync.Mutex // guards answers and named
		var named []string
		var wg sync.WaitGroup
		for _, addr := range next {
			wg.Go(func() {
				reply, from, err := n.askPeer(ctx, addr, proto.Clone(r).(*clusterpb.JoinRequest))
				mu.Lock()
				defer mu.Unlock()
				answers[addr] = answer{reply, from, err}
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
