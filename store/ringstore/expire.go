package ringstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"clustermaster/hashring"

	"github.com/cockroachdb/pebble/v2"
)

// expireLoop drops the buckets that have ended.
func (s *Store) expireLoop(ctx context.Context) {
	tick := time.NewTicker(s.opts.ExpireEvery)
	defer tick.Stop()
	for {
		if err := s.expire(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("drop expired records; tried again", "err", err)
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

// expire drops every ended bucket by one range delete, and the tombstones whose time is over.
func (s *Store) expire(ctx context.Context) error {
	past := s.past()
	select {
	case <-s.cells.ready:
	default:
		return nil // the count of what was on disk would come back after the drop
	}
	for _, b := range s.disk.live() {
		if b > past {
			break
		}
		err := s.commit.do(ctx, &task{run: func(batch *pebble.Batch, g *group) error {
			if err := batch.DeleteRange(bucketKey(b), bucketKey(b+1), nil); err != nil {
				return err
			}
			if err := batch.DeleteRange(tallyBucket(b), tallyBucket(b+1), nil); err != nil {
				return err
			}
			g.dropped = append(g.dropped, b)
			g.after = append(g.after,
				func() { s.cells.drop(func(id cellID) bool { return id.bucket == b }) })
			return nil
		}})
		if err != nil {
			return fmt.Errorf("drop bucket %d: %w", b, err)
		}
		s.met.dropped.Inc()
	}
	if !s.mayForget() {
		return nil
	}
	return s.expireTombstones(ctx, past)
}

// expireTombstones removes tombstones that ended. They have an index by time, so no other record is
// looked at.
func (s *Store) expireTombstones(ctx context.Context, past uint64) error {
	removed := 0
	defer func() {
		if lacking := s.lackers(); removed > 0 && len(lacking) > 0 {
			s.log.Info("tombstones are removed; masters that are away are filled anew when they come back", "n", removed, "nodes", lacking)
		}
	}()
	for {
		var keys [][]byte
		db, done, err := s.disk.use()
		if err != nil {
			return err
		}
		it, err := db.NewIter(&pebble.IterOptions{
			LowerBound: []byte{kindTomb},
			UpperBound: binary.BigEndian.AppendUint64([]byte{kindTomb}, past+1),
		})
		if err != nil {
			done()
			return fmt.Errorf("read tombstones: %w", err)
		}
		for ok := it.First(); ok && len(keys) < groupTasks; ok = it.Next() {
			keys = append(keys, append([]byte(nil), it.Key()...))
		}
		err = it.Close()
		done()
		if err != nil {
			return fmt.Errorf("read tombstones: %w", err)
		}
		if len(keys) == 0 {
			return nil
		}
		if err := s.commit.do(ctx,
			&task{run: func(b *pebble.Batch,
				g *group) error {
				return s.bury(b, g, keys)
			}}); err != nil {
			return fmt.Errorf("drop tombstones: %w", err)
		}
		removed += len(keys)
	}
}

// bury removes tombstones by their index keys; one that became a record again, or a later
// tombstone, stays.
func (s *Store) bury(b *pebble.Batch, g *group, keys [][]byte) error {
	if err := s.noteLacking(b, g); err != nil {
		return err
	}
	for _, index := range keys {
		if err := b.Delete(index, nil); err != nil {
			return err
		}
		if len(index) < 9 {
			continue
		}
		key := index[9:]
		value, size, err := s.commit.head(g, key)
		if err != nil {
			return err
		}
		if value == nil {
			continue
		}
		h, err := parseHeader(value)
		if err != nil {
			return err
		}
		if h.flags&flagDeleted == 0 || h.expires == 0 || h.expires > s.opts.Now().Unix() {
			continue
		}
		k, partition, bucket, err := parseRecordKey(key)
		if err != nil {
			return err
		}
		if err := b.Delete(key, nil); err != nil {
			return err
		}
		g.overlay[string(key)] = nil
		if s.parts.watches(k.Space) {
			g.changed = append(g.changed, changedRecord{tableID{k.Space, k.Name, partition},
				k.Place})
		}
		g.deltas = append(g.deltas, delta{
			cellID{bucket, k.Space, uint16(partition)},
			cell{sum: sum(k.Place, k.Name, h.version), count: -1, bytes: -int64(size)},
		})
	}
	return nil
}

// dropCells removes the records of cells by range, unless the ring has moved on since; done is
// false then.
func (s *Store) dropCells(ctx context.Context, ids []cellID, ring *hashring.Ring) (done bool,
	err error) {
	dropped := false // the committer's; when ctx ends first it writes it later than this returns
	t := &task{run: func(b *pebble.Batch, g *group) error {
		if s.commit.floor != ring.Epoch() || len(g.deltas) > 0 {
			// writes of a newer ring, or of this group, may be among them; the next step looks
			// again
			return nil
		}
		gone := make(map[cellID]bool, len(ids))
		for _, id := range ids {
			prefix := appendCellKey(nil, id.bucket, id.space, int(id.partition))
			if err := b.DeleteRange(prefix, after(prefix), nil); err != nil {
				return err
			}
			if err := b.Delete(tallyKey(id), nil); err != nil {
				return err
			}
			gone[id] = true
		}
		g.closed, dropped = true, true
		g.after = append(g.after, func() {
			s.parts.dropped(gone)
			s.cells.drop(func(id cellID) bool { return gone[id] })
		})
		return nil
	}}
	if err := s.commit.do(ctx, t); err != nil {
		return false, fmt.Errorf("drop %d ranges: %w", len(ids), err)
	}
	return dropped, nil
}
