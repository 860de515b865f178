package ringstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/remote"
)

// handOverLoop gives returning owners the records that are held for them.
func (s *Store) handOverLoop(ctx context.Context) {
	tick := time.NewTicker(s.opts.Tick)
	defer tick.Stop()
	for {
		for _, node := range s.disk.OwingNodes() {
			if err := s.handOver(ctx, node); err != nil && ctx.Err() == nil {
				s.log.Debug("hints not handed over; trying again", "node", node, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case <-tick.C:
		}
	}
}

// handOver gives node all its hints if it is alive. Hints of a master that left the cluster go to
// the present owners. Hints of a master that has been away longer than tombstones are kept are
// dropped: it will compare copies and be filled anew.
func (s *Store) handOver(ctx context.Context, node string) error {
	if !s.opts.ClockJudged() {
		return nil // hints could be struck that only seem to have expired
	}
	if !s.alive(node) {
		if !slices.Contains(s.others(), node) {
			return s.redistribute(ctx, node)
		}
		since, err := s.disk.OwedSince(node)
		if err != nil || since.IsZero() || s.opts.Now().Sub(since) < s.opts.TombstoneFor {
			return err
		}
		return s.forgetHints(ctx, node)
	}
	if status, _, _ := s.heard.statusOf(node); status.GetRefuses() != "" {
		return nil // it would refuse them
	}
	if s.stale.Load() {
		return nil // the held records may have been deleted since
	}
	for s.alive(node) {
		hints, err := s.disk.Hints(node, remote.MessageBytes)
		if err != nil {
			return err
		}
		if len(hints) == 0 {
			return s.disk.Paid(ctx, node)
		}
		var changes []disk.Change
		for i := range hints {
			if !hints[i].Gone {
				changes = append(changes, disk.Change{Record: hints[i].Record})
			}
		}
		v, err := s.current(ctx)
		if err != nil {
			return err
		}
		if len(changes) > 0 {
			if err := s.give(ctx, v, node, changes); err != nil {
				return fmt.Errorf("hand %d records to %s: %w", len(changes), node, err)
			}
		}
		if err := s.disk.Strike(ctx, node, hints); err != nil {
			return err
		}
		s.met.handedOver.Add(float64(len(changes)))
	}
	return nil
}

// forgetHints drops all hints for node by range.
func (s *Store) forgetHints(ctx context.Context, node string) error {
	n, err := s.disk.ForgetHints(ctx, node)
	if err != nil {
		return fmt.Errorf("forget hints for %s: %w", node, err)
	}
	s.met.hintsOld.Inc()
	s.log.Warn("dropped hints for a master that is away too long; it gets all records again when it is back",
		"node", node, "n", n)
	return nil
}

// redistribute gives the records held for a master that left the cluster to the present owners.
func (s *Store) redistribute(ctx context.Context, node string) error {
	for {
		hints, err := s.disk.Hints(node, remote.MessageBytes)
		if err != nil {
			return err
		}
		if len(hints) == 0 {
			return s.disk.Paid(ctx, node)
		}
		for i := range hints {
			if hints[i].Gone || !hints[i].Copy {
				continue // a debt for an own record, which ring changes copy
			}
			v, err := s.current(ctx)
			if err != nil {
				return err
			}
			_, stale, err := s.replicate(ctx, v, hints[i].Record.Partition,
				[]Record{hints[i].Record}, false)
			if err != nil || stale != 0 {
				return errors.Join(err, errStale)
			}
		}
		if err := s.disk.Strike(ctx, node, hints); err != nil {
			return err
		}
	}
}
