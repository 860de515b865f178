package disk

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// past is the end of the newest bucket whose records count as expired.
func (d *Store) past() uint64 { return uint64(max(d.now().Unix(), 0)) }

// DropEnded drops the records of each bucket that has ended, by one range deletion, once the
// records are Counted. It returns the number of buckets.
func (d *Store) DropEnded(ctx context.Context) (dropped int, err error) {
	past := d.past()
	select {
	case <-d.cells.ready:
	default:
		return 0, nil // otherwise the running count would add the dropped records again
	}
	for _, b := range d.live() {
		if b > past {
			break
		}
		err := d.Commit(ctx, &Write{run: func(batch *pebble.Batch, g *group) error {
			if err := batch.DeleteRange(bucketKey(b), bucketKey(b+1), nil); err != nil {
				return err
			}
			if err := batch.DeleteRange(tallyBucket(b), tallyBucket(b+1), nil); err != nil {
				return err
			}
			g.dropped = append(g.dropped, b)
			g.after = append(g.after,
				func() { d.cells.drop(func(id CellID) bool { return id.Bucket == b }) })
			return nil
		}})
		if err != nil {
			return dropped, fmt.Errorf("drop bucket %d: %w", b, err)
		}
		dropped++
	}
	return dropped, nil
}

// DropTombstones removes the tombstones that have expired. They have an index by time, so it reads
// no other records. Before it removes some it calls confirm with them, and in the commit away for
// the masters to note as Lacking with them; an error of either leaves them. It returns the number
// of tombstones.
func (d *Store) DropTombstones(ctx context.Context, confirm func([]Record) error,
	away func() ([]string, error)) (removed int, err error) {
	past := d.past()
	for {
		keys, tombs, err := d.endedTombstones(past)
		if err != nil {
			return removed, fmt.Errorf("read tombstones: %w", err)
		}
		if len(keys) == 0 {
			return removed, nil
		}
		if len(tombs) > 0 {
			if err := confirm(tombs); err != nil {
				return removed, err
			}
		}
		stay, err := commitValue(ctx, d, func(b *pebble.Batch, g *group) (stay error, err error) {
			nodes, stay := away()
			if stay != nil {
				return stay, nil
			}
			if err := errors.Join(d.noteLacking(b, g, nodes), d.noteForgotten(b, g, tombs)); err != nil {
				return nil, err
			}
			return nil, d.bury(b, g, keys)
		})
		if err := cmp.Or(err, stay); err != nil {
			return removed, fmt.Errorf("drop tombstones: %w", err)
		}
		removed += len(keys)
	}
}

// endedTombstones returns index keys of expired tombstones, at most as many as fit a group, and the
// tombstones that are still there.
func (d *Store) endedTombstones(past uint64) (keys [][]byte, tombs []Record, err error) {
	keys, err = d.endedKeys(past)
	if err != nil {
		return nil, nil, err
	}
	for _, index := range keys {
		if len(index) < 9 {
			continue
		}
		k, partition, _, err := parseRecordKey(index[9:])
		if err != nil {
			return nil, nil, err
		}
		r, found, err := d.Get(k, partition)
		if err != nil {
			return nil, nil, err
		}
		if found && r.Deleted() && r.Over(d.now()) {
			tombs = append(tombs, r)
		}
	}
	return keys, tombs, nil
}

func (d *Store) endedKeys(past uint64) (keys [][]byte, err error) {
	db, done, err := d.use()
	if err != nil {
		return nil, err
	}
	defer done()
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kindTomb},
		UpperBound: binary.BigEndian.AppendUint64([]byte{kindTomb}, past+1),
	})
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && len(keys) < MaxGroup; ok = it.Next() {
		keys = append(keys, append([]byte(nil), it.Key()...))
	}
	return keys, it.Close()
}

// bury removes tombstones by their index keys. A key that has since become a record, or a later
// tombstone, stays.
func (d *Store) bury(b *pebble.Batch, g *group, keys [][]byte) error {
	for _, index := range keys {
		if err := b.Delete(index, nil); err != nil {
			return err
		}
		if len(index) < 9 {
			continue
		}
		key := index[9:]
		value, size, err := d.commit.head(g, key)
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
		if h.flags&FlagDeleted == 0 || h.expires == 0 || h.expires > d.now().Unix() {
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
		if d.opts.Watch.Watches(k.Space) {
			g.changed = append(g.changed, Changed{k, partition})
		}
		g.deltas = append(g.deltas, delta{
			CellID{bucket, k.Space, uint16(partition)},
			cell{sum: SumOf(k.Place, k.Name, h.version), count: -1, bytes: -int64(size)},
		})
	}
	return nil
}

// DropPartitions removes the records of partitions by range, once they are Counted, unless the ring
// has changed since: epoch is the newest ring's. It returns the number of removed cells.
func (d *Store) DropPartitions(ctx context.Context, epoch uint64,
	foreign func(partition int) bool) (cells int, err error) {
	select {
	case <-d.cells.ready:
	default:
		return 0, nil // the records on disk are not counted yet
	}
	ids := d.cells.list(func(id CellID) bool { return foreign(int(id.Partition)) })
	if len(ids) == 0 {
		return 0, nil
	}
	done, err := d.dropCells(ctx, ids, epoch)
	if !done || err != nil {
		return 0, err
	}
	return len(ids), nil
}

// dropCells removes the records of cells; done is false if the ring has changed.
func (d *Store) dropCells(ctx context.Context, ids []CellID, epoch uint64) (done bool, err error) {
	done, err = commitValue(ctx, d, func(b *pebble.Batch, g *group) (bool, error) {
		if d.commit.floor != epoch || len(g.deltas) > 0 {
			// writes of a newer ring, or of this group, may be among them; the next step tries
			// again
			return false, nil
		}
		gone := make(map[CellID]bool, len(ids))
		for _, id := range ids {
			prefix := appendCellKey(nil, id.Bucket, id.Space, int(id.Partition))
			if err := b.DeleteRange(prefix, after(prefix), nil); err != nil {
				return false, err
			}
			if err := b.Delete(tallyKey(id), nil); err != nil {
				return false, err
			}
			gone[id] = true
		}
		g.closed = true
		g.after = append(g.after, func() {
			d.opts.Watch.Dropped(gone)
			d.cells.drop(func(id CellID) bool { return gone[id] })
		})
		return true, nil
	})
	if err != nil {
		return false, fmt.Errorf("drop %d ranges: %w", len(ids), err)
	}
	return done, nil
}
