package statesync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// copyAsJoiner copies a tree to a joining master: the head, if some member's roots are equal to it,
// else the leader's roots as they are. A master in the ring has joined before, and the first master
// has no source.
func (s *Store) copyAsJoiner(ctx context.Context, t *treeState, p *progress) error {
	if s.heads.InRing() {
		return s.markCopied(t)
	}
	leader, ok := s.heads.Leader()
	switch {
	case !ok:
		return nil // not a member yet, or no leader: ask again later
	case leader == s.peers.Self():
		return s.markCopied(t)
	}
	if err := s.heads.Refresh(ctx); err != nil {
		return fmt.Errorf("learn the heads of the roots: %w", err)
	}
	head, published := s.heads.Head(t.tree)
	if published {
		clean, err := s.findClean(ctx, t.tree, head)
		if err != nil {
			return err
		}
		if clean {
			_, err := s.catchUp(ctx, t, p)
			return err
		}
	}
	return s.copyLive(ctx, t, head, leader, p)
}

// findClean reports whether some member's roots are equal to the head.
func (s *Store) findClean(ctx context.Context, tree Tree, head Head) (bool, error) {
	var failed []error
	answered := 0
	for _, node := range s.sources(head.Source) {
		if !s.peers.Alive(node) {
			continue
		}
		r, err := s.remote(node)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		all, err := r.status(ctx, true)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		answered++
		if slices.ContainsFunc(all, func(st TreeStatus) bool {
			return st.Tree == tree && !st.Behind && st.Seq == head.Seq && st.Drifted == 0 &&
				st.Error == ""
		}) {
			return true, nil
		}
	}
	if answered == 0 {
		return false, errors.Join(append([]error{errNobody}, failed...)...)
	}
	return false, nil
}

// copyLive copies the leader's roots as they are, or if the leader has no roots of its own, those
// of the first member that has. If no member has its own, they share a file system and there is
// nothing to copy.
func (s *Store) copyLive(ctx context.Context, t *treeState, head Head, leader string,
	p *progress) error {
	var base *Manifest
	if head.Seq > 0 {
		var err error
		if base, err = s.fetchManifest(ctx, t, head.Manifest, head.Size,
			s.sources(head.Source)); err != nil {
			return err
		}
	}
	began := time.Now()
	node, sum, size, err := s.askLive(ctx, t.tree, leader)
	if errors.Is(err, errNotOwn) {
		return s.markCopied(t)
	}
	if err != nil {
		return err
	}
	want, err := s.hold(ctx, t, sum, size, s.sources(node), p)
	if err != nil {
		return fmt.Errorf("copy the roots of %s: %w", idOf(node), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	head.Tree = t.tree
	_, err = s.apply(ctx, t, goal{want: want, sum: sum, source: idOf(node), head: head,
		base: base}, began)
	return err
}

// askLive finds the master whose roots a joiner copies. errNotOwn: there is none, the roots are
// shared.
func (s *Store) askLive(ctx context.Context, tree Tree, leader string) (node string, sum Sum,
	size int64, err error) {
	var failed []error
	for _, node := range s.sources(leader) {
		var r *remote
		if !s.peers.Alive(node) {
			err = fmt.Errorf("%s: not reachable", idOf(node))
		} else if r, err = s.remote(node); err == nil {
			sum, size, err = r.live(ctx, tree)
		}
		switch {
		case err == nil:
			return node, sum, size, nil
		case status.Code(err) == codes.FailedPrecondition:
		case node == leader:
			// it will be back soon, or another one will lead
			return "", Sum{}, 0, fmt.Errorf("%w: %w", errNobody, err)
		case status.Code(err) != codes.Unavailable:
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 && s.opts.Isolated {
		return "", Sum{}, 0, errors.Join(append([]error{errNobody}, failed...)...)
	}
	return "", Sum{}, 0, errNotOwn
}

// markCopied records that this master needs no copy.
func (s *Store) markCopied(t *treeState) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rec.copied {
		return nil
	}
	next := *t.rec
	next.copied = true
	return s.settle(t, &next)
}

// sayProgress logs the progress of a copy until stop is called.
func (s *Store) sayProgress(t *treeState, p *progress) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				now := p.snapshot()
				if now.BytesTotal == 0 {
					s.log.Info("state-sync waits for the list of files", "tree", t.tree.String())
					continue
				}
				s.log.Info("state-sync progress", "tree", t.tree.String(), "percent",
					100*now.Bytes/now.BytesTotal, "bytes", now.Bytes, "of", now.BytesTotal,
					"rate", now.Rate, "eta", now.ETA().Round(time.Second))
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// Joining reports whether this master must still copy roots before it may take part, and the
// progress. A master that is no member yet has all of it to do.
func (s *Store) Joining() (bool, Progress) {
	joining := false
	var sum Progress
	for _, tree := range []Tree{FileRoots, PillarRoots} {
		t := s.trees[tree]
		if !t.record().copied || !s.heads.InRing() && !s.current(t) {
			joining = true
		}
		p := t.fetching().snapshot()
		sum.Bytes += p.Bytes
		sum.BytesTotal += p.BytesTotal
		sum.Items += p.Items
		sum.ItemsTotal += p.ItemsTotal
		sum.Rate += p.Rate
	}
	return joining, sum
}
