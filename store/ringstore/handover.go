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

// strikeEvery is how often hints of absent owners are searched for expired records. Elsewhere they
// end when they are handed over.
const strikeEvery = time.Hour

// handOverLoop gives returning owners the records that are held for them.
func (s *Store) handOverLoop(ctx context.Context) {
	tick := time.NewTicker(s.opts.Tick)
	defer tick.Stop()
	struck := s.opts.Now()
	for {
		now := s.opts.Now()
		strike := now.Sub(struck) >= strikeEvery
		if strike {
			struck = now
		}
		for _, node := range s.disk.OwingNodes() {
			if err := s.handOver(ctx, node); err != nil && ctx.Err() == nil {
				s.log.Debug("hints not handed over; trying again", "node", node, "err", err)
			}
			if strike {
				if err := s.strikeGone(ctx, node); err != nil && ctx.Err() == nil {
					s.log.Debug("hints of expired records stay; trying again", "node", node, "err", err)
				}
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

// handOver gives node all its hints if it is alive. Hints of a master that has left the ring go to
// the present owners. Until one or the other they stay, however long that takes: they may be the
// copies of a write quorum.
func (s *Store) handOver(ctx context.Context, node string) error {
	if !s.opts.ClockJudged() {
		return nil // hints could be struck that only seem to have expired
	}
	if s.doubted() != nil {
		return nil // the held records may have been deleted since
	}
	v, err := s.current(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(s.others(), node) || v.Settled() && !v.Latest().Has(node) {
		return s.redistribute(ctx, node)
	}
	if !s.alive(node) {
		return nil
	}
	if status, _, _ := s.heard.statusOf(node); status.GetRefuses() != "" {
		return nil // it would refuse them
	}
	for s.alive(node) {
		hints, err := s.disk.Hints(node, nil, remote.MessageBytes)
		if err != nil || len(hints) == 0 {
			return err
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

// redistribute gives the records held for a master that left the ring to the present owners.
func (s *Store) redistribute(ctx context.Context, node string) error {
	for {
		hints, err := s.disk.Hints(node, nil, remote.MessageBytes)
		if err != nil || len(hints) == 0 {
			return err
		}
		var held []Record
		for i := range hints {
			if !hints[i].Gone && hints[i].Copy { // else a debt for an own record, which ring changes copy
				held = append(held, hints[i].Record)
			}
		}
		for from := 0; from < len(held); {
			to := from + 1 // hints come in the order of spaces and partitions
			for to < len(held) && held[to].Partition == held[from].Partition {
				to++
			}
			v, err := s.current(ctx)
			if err != nil {
				return err
			}
			_, stale, err := s.replicate(ctx, v, held[from].Partition, held[from:to], false)
			if err != nil || stale != 0 {
				return errors.Join(err, errStale)
			}
			from = to
		}
		if err := s.disk.Strike(ctx, node, hints); err != nil {
			return err
		}
		s.met.handedOver.Add(float64(len(held)))
	}
}

// strikeGone removes the hints for node whose records have expired or were removed.
func (s *Store) strikeGone(ctx context.Context, node string) error {
	if !s.opts.ClockJudged() {
		return nil
	}
	var last *disk.Hint
	for {
		hints, err := s.disk.Hints(node, last, remote.MessageBytes)
		if err != nil || len(hints) == 0 {
			return err
		}
		last = &hints[len(hints)-1]
		gone := slices.DeleteFunc(slices.Clone(hints), func(h disk.Hint) bool { return !h.Gone })
		if len(gone) == 0 {
			continue
		}
		if err := s.disk.Strike(ctx, node, gone); err != nil {
			return err
		}
	}
}
