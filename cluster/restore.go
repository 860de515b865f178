package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"clustermaster/cluster/fsm"
)

const (
	// bytes of one log entry of a restore; raft sends up to maxAppendEntries of them in raftTimeout
	restorePart  = 32 << 10
	partPatience = time.Minute      // of one part, while there is no leader or quorum
	restoreAge   = 10 * time.Minute // a restore without a new part for this long is given up
)

// Save returns the content of a backup, as new as the last acknowledged command, and its index.
func (n *Node) Save(ctx context.Context) (fsm.Saved, uint64, error) {
	if err := n.ReadIndex(ctx); err != nil {
		return fsm.Saved{}, 0, fmt.Errorf("save state: %w", err)
	}
	if _, ok := n.state.Cluster(); !ok {
		return fsm.Saved{}, 0, fmt.Errorf("save state: %w", ErrNotFounded)
	}
	saved, index := n.state.Saved()
	return saved, index, nil
}

// PutBack restores what Save returned, here or on another cluster: the cluster key, the secrets of
// minions' sessions and exactly those minion keys, all at one index. Members stay as they are. It
// returns the masters that did not confirm in time.
func (n *Node) PutBack(ctx context.Context, saved fsm.Saved) (unconfirmed []string, err error) {
	token := make([]byte, 16)
	if _, err := rand.Read(token); err != nil {
		return nil, fmt.Errorf("restore state: %w", err)
	}
	parts, end := saved.Split(string(token), n.utc(), restorePart)
	for _, p := range parts {
		if err := n.putPart(ctx, p); err != nil {
			return nil,
				fmt.Errorf("restore state: nothing was changed; stage part %d of %d: %w",
					p.Number+1, len(parts), err)
		}
	}
	index, err := n.propose(ctx, end)
	if err != nil {
		return nil, fmt.Errorf("restore state: %w", err)
	}
	unconfirmed = n.ConfirmEverywhere(ctx, index)
	if err := n.refreshSecrets(); err != nil {
		return nil, fmt.Errorf("restore state: %w", err)
	}
	n.log.Warn("state of a backup restored", "n", len(saved.Keys), "parts", len(parts),
		"index", index)
	return unconfirmed, nil
}

// putPart stores a part, which does nothing if it is stored already. The cluster may lose its
// leader in the course of many parts, and this master the others, so it tries again; only the first
// part needs a majority that is there to elect a leader.
func (n *Node) putPart(ctx context.Context, p *fsm.RestorePart) error {
	for end := time.Now().Add(partPatience); ; {
		p.At = n.utc()
		_, err := n.propose(ctx, p)
		again := leaderless(err) || p.Number > 0 && errors.Is(err, ErrNoQuorum)
		if !again || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return err
		}
	}
}

// leaderless reports whether an order failed for want of a leader alone, or its answer got lost
// with one.
func leaderless(err error) bool {
	var none *NoQuorumError
	if errors.As(err, &none) {
		return len(none.Missing) == 0
	}
	var unknown *UnknownOutcomeError
	return errors.As(err, &unknown)
}

// propose is Propose with a refusal as an error.
func (n *Node) propose(ctx context.Context, c fsm.Command) (index uint64, err error) {
	r, index, err := n.Propose(ctx, c)
	if err == nil {
		err = refused(r)
	}
	return index, err
}

// forgetRestore discards the parts of a restore whose master went away in the middle of it.
func (n *Node) forgetRestore(ctx context.Context) error {
	if since, ok := n.state.Unfinished(); !ok || n.Now().Sub(since) < restoreAge &&
		!n.foreseen(since) {
		return nil
	}
	n.log.Warn("a restore was interrupted and its parts are discarded; run salt-run cluster.restore again")
	return n.do(ctx, &fsm.RestorePart{Token: "none", At: n.utc()})
}
