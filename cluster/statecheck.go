package cluster

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"clustermaster/cluster/fsm"
)

// checkpoint is the checksum of the state after the log entry at index.
type checkpoint struct {
	index uint64
	sum   string // SHA-256 of the snapshot; "": none
}

// keptChecks is how many checkpoints a master remembers, so that a member a little behind can still
// be compared.
const keptChecks = 8

// checks computes checksums of states in a goroutine of its own; the state machine does not wait
// for it.
type checks struct {
	ready chan struct{} // capacity 1

	mu    sync.Mutex // guards all below
	index uint64     // of state
	state *fsm.Snapshot
	kept  []checkpoint // oldest first
}

// offer takes a state to compute a checksum of. It replaces one that is still waiting.
func (c *checks) offer(index uint64, state *fsm.Snapshot) {
	c.mu.Lock()
	c.index, c.state = index, state
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

func (c *checks) run(ctx context.Context) error {
	for {
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil
		}
		c.mu.Lock()
		index, state := c.index, c.state
		c.state = nil
		c.mu.Unlock()
		if state == nil {
			continue
		}
		sum := sha256.New()
		if _, err := state.WriteTo(sum); err != nil {
			return err
		}
		c.mu.Lock()
		c.kept = append(c.kept, checkpoint{index, string(sum.Sum(nil))})
		c.kept = slices.Delete(c.kept, 0, max(0, len(c.kept)-keptChecks))
		c.mu.Unlock()
	}
}

// last returns the newest checkpoint. Its index is 0 if there is none yet.
func (c *checks) last() checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) == 0 {
		return checkpoint{}
	}
	return c.kept[len(c.kept)-1]
}

// at returns this master's checksum at an index; "" if it has none.
func (c *checks) at(index uint64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		if k.index == index {
			return k.sum
		}
	}
	return ""
}

// checkpoint, on the leader, writes a checkpoint once every Config.CheckEvery.
func (n *Node) checkpoint(ctx context.Context) error {
	check := fsm.Noop{Check: true}
	if n.port == nil || n.Level() < fsm.Needs(check) ||
		time.Since(n.checkedState) < n.cfg.CheckEvery {
		return nil
	}
	n.checkedState = time.Now()
	return n.do(ctx, check)
}

// compareStates compares the last checkpoints that members reported with this master's states
// there.
func (n *Node) compareStates() {
	for _, m := range n.state.Members() {
		n.mu.Lock()
		c := n.contacts[m.Node]
		n.mu.Unlock()
		index := c.check.index
		own := n.checks.at(index)
		if own == "" || c.check.sum == "" || c.compared == index {
			continue
		}
		differs := own != c.check.sum
		n.mu.Lock()
		c = n.contacts[m.Node]
		c.compared, c.differs = index, differs
		n.contacts[m.Node] = c
		n.mu.Unlock()
		if differs {
			n.log.Error("the replicated state of a member differs from this master's: one of the two is damaged; salt-run cluster.health "+
				"says what to do", "peer", m.ID, "index", index)
		}
	}
}

// differing lists the ids of members whose state differed from this master's at the last checkpoint
// of both, sorted.
func (n *Node) differing() []string {
	var out []string
	members := n.state.Members()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range members {
		if n.contacts[m.Node].differs {
			out = append(out, m.ID)
		}
	}
	return out
}

// StatesDiffer lists the ids of members whose replicated state differs from this master's, sorted.
// Among more than two members the state of most is right; odd means that this master is the one to
// replace.
func (n *Node) StatesDiffer() (ids []string, odd bool) {
	ids = n.differing()
	return ids, len(ids) > 1 && 2*len(ids) > len(n.state.Members())
}
