package ringstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// handOverLoop gives owners that came back what is held for them.
func (s *Store) handOverLoop(ctx context.Context) {
	tick := time.NewTicker(s.opts.Tick)
	defer tick.Stop()
	for {
		for _, node := range s.owingNodes() {
			if err := s.handOver(ctx, node); err != nil && ctx.Err() == nil {
				s.log.Debug("hand over hints; tried again", "node", node, "err", err)
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

// handOver gives node all its hints if it is alive; hints of a master that left the cluster go to
// the owners of today; those of one that is away for longer than tombstones are kept are dropped:
// it will be compared and filled anew.
func (s *Store) handOver(ctx context.Context, node string) error {
	if !s.alive(node) {
		if !slices.Contains(s.others(), node) {
			return s.redistribute(ctx, node)
		}
		since, err := s.disk.owedSince(node)
		if err != nil || since.IsZero() || s.opts.Now().Sub(since) < s.opts.TombstoneFor {
			return err
		}
		return s.forgetHints(ctx, node)
	}
	if status, _, _ := s.heard.statusOf(node); status.GetRefuses() != "" {
		return nil // it would refuse
	}
	if s.stale.Load() {
		return nil // what is held may have been deleted
	}
	for s.alive(node) {
		hints, err := s.disk.hints(node, messageBytes)
		if err != nil {
			return err
		}
		if len(hints) == 0 {
			return s.paid(ctx, node)
		}
		var changes []change
		for i := range hints {
			if !hints[i].gone {
				changes = append(changes, change{rec: hints[i].rec})
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
		if err := s.strike(ctx, node, hints); err != nil {
			return err
		}
		s.met.handedOver.Add(float64(len(changes)))
	}
	return nil
}

// strike removes hints that were handed over, unless they changed meanwhile.
func (s *Store) strike(ctx context.Context, node string, hints []hint) error {
	t := &task{}
	t.run = func(b *pebble.Batch, g *group) error {
		for i := range hints {
			now, err := s.commit.current(g, hints[i].key)
			if err != nil {
				return err
			}
			if string(now) != string(hints[i].value) {
				continue
			}
			if err := b.Delete(hints[i].key, nil); err != nil {
				return err
			}
			g.overlay[string(hints[i].key)] = nil
			g.hints = append(g.hints, hintDelta{node: node, partition: hints[i].partition,
				old: hints[i].value})
		}
		return nil
	}
	return s.commit.do(ctx, t)
}

// paid removes the note since when something is owed.
func (s *Store) paid(ctx context.Context, node string) error {
	return s.commit.do(ctx, &task{run: func(b *pebble.Batch, g *group) error {
		if s.owed.has(node) || g.overlay[string(sinceKey(node))] != nil {
			return nil // new ones came in between
		}
		return b.Delete(sinceKey(node), nil)
	}})
}

// forgetHints drops all hints for node by range.
func (s *Store) forgetHints(ctx context.Context, node string) error {
	n := 0
	err := s.commit.do(ctx, &task{run: func(b *pebble.Batch, g *group) error {
		if len(g.hints) > 0 {
			return errBusy // hints in the same group are not on disk yet; the next round does it
		}
		prefix := hintPrefix(node)
		it, err := s.disk.db.NewIter(&pebble.IterOptions{LowerBound: prefix,
			UpperBound: after(prefix)})
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			_, _, partition, err := parseHintKey(it.Key())
			if err != nil {
				return err
			}
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			g.hints = append(g.hints, hintDelta{node: node, partition: partition,
				old: append([]byte(nil), v[:min(1, len(v))]...)})
			n++
		}
		if err := it.Error(); err != nil {
			return err
		}
		g.dropsHints = true
		return errors.Join(b.DeleteRange(prefix, after(prefix), nil), b.Delete(sinceKey(node), nil))
	}})
	if err != nil {
		return fmt.Errorf("forget hints for %s: %w", node, err)
	}
	s.met.hintsOld.Inc()
	s.log.Warn("dropped hints for a master that is away too long; it will be filled anew when it is back", "node", node, "n", n)
	return nil
}

var errBusy = errors.New("hints are being written")

// redistribute gives what is held for a master that left the cluster to the owners of today.
func (s *Store) redistribute(ctx context.Context, node string) error {
	for {
		hints, err := s.disk.hints(node, messageBytes)
		if err != nil {
			return err
		}
		if len(hints) == 0 {
			return s.paid(ctx, node)
		}
		for i := range hints {
			if hints[i].gone || hints[i].value[0]&hintCopy == 0 {
				continue // a mere debt: the record is in this master's own, which ring changes copy
			}
			v, err := s.current(ctx)
			if err != nil {
				return err
			}
			_, stale, err := s.replicate(ctx, v, hints[i].partition, []Record{hints[i].rec})
			if err != nil || stale != 0 {
				return errors.Join(err, errStale)
			}
		}
		if err := s.strike(ctx, node, hints); err != nil {
			return err
		}
	}
}
