package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
)

// LevelError says that an order is above the cluster's level.
type LevelError struct {
	Needs, Have int
	Older       []string // members that don't support it or have not reported, with their releases
}

func (e *LevelError) Error() string {
	older := ""
	if len(e.Older) > 0 {
		older = "; held back by " + strings.Join(e.Older, ", ")
	}
	return fmt.Sprintf("this needs level %d, and the cluster is at level %d%s; nothing was changed: install release %s or newer on every member, "+
		"see docs/upgrade.md", e.Needs, e.Have, older, level.Release(e.Needs))
}

// mayPropose refuses a command above the cluster's level: a member that does not know the command
// would stop. The state here may be older than the cluster's, so mayPropose checks such a command
// again once the state is new.
func (n *Node) mayPropose(ctx context.Context, c fsm.Command) error {
	needs := fsm.Needs(c)
	if needs <= n.state.Level() {
		return nil
	}
	if err := n.ReadIndex(ctx); err != nil {
		return err
	}
	return n.withinLevel(needs)
}

func (n *Node) withinLevel(needs int) error {
	have := n.state.Level()
	if needs <= have {
		return nil
	}
	e := &LevelError{Needs: needs, Have: have}
	for _, m := range n.Members() {
		if m.Level < needs {
			e.Older = append(e.Older, fmt.Sprintf("%s (%s)", m.ID, m.Version))
		}
	}
	return e
}

// raise, on the leader, raises the cluster's level to the highest that all members support. Each
// must have said so just now, because an absent member may come back with another release.
func (n *Node) raise(ctx context.Context) error {
	have, want := n.state.Level(), level.Supported()
	if want <= have {
		return nil
	}
	for _, m := range n.state.Members() {
		if m.Node == n.self.Node {
			continue
		}
		n.mu.Lock()
		c := n.contacts[m.Node]
		n.mu.Unlock()
		if time.Since(c.at) >= 2*contactEvery || !n.port.Alive(m.Node) {
			return nil
		}
		if want = min(want, c.level); want <= have {
			return nil
		}
	}
	if err := n.do(ctx, &fsm.SetLevel{Level: want, Release: level.Release(want),
		At: n.utc()}); err != nil {
		return err
	}
	n.log.Info("all members support it: the cluster's level rises; from now on older releases can't come back",
		"level", want, "release", level.Release(want))
	return nil
}

// tooOld says why a joiner can't be a member of a cluster at this level; "" if it can.
func (n *Node) tooOld(joiner fsm.Member, supports int) string {
	have := n.state.Level()
	if supports >= have {
		return ""
	}
	return fmt.Sprintf("the cluster is at level %d, and %s runs release %s, which supports level %d: install release %s or newer there",
		have, joiner.ID, joiner.Version, supports, level.Release(have))
}
