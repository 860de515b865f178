package disk

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Mended is a digest that did not match the records on disk.
type Mended struct {
	Cell         CellID
	Found, Noted int64 // records
}

// Scrub reads all records, at rate bytes per second, and counts each cell anew. It corrects a
// digest that does not match and reports it to mended; it leaves a cell that is being written for
// the next time. It returns the bytes read.
func (d *Store) Scrub(ctx context.Context, rate int64, mended func(Mended)) (read int64,
	err error) {
	for id, noted := range d.cells.all() {
		found, err := d.countCell(ctx, id, rate)
		if err != nil {
			return read, err
		}
		read += found.bytes
		if now := d.cells.get(id); now == noted &&
			(found.sum != now.sum || found.count != now.count) {
			ok, err := d.mendCell(ctx, id, now, found)
			if err != nil {
				return read, err
			}
			if ok {
				mended(Mended{id, found.count, now.count})
			}
		}
	}
	return read, nil
}

// countCell reads the records of a cell at Scrub's rate.
func (d *Store) countCell(ctx context.Context, id CellID, rate int64) (cell, error) {
	var out cell
	prefix := appendCellKey(nil, id.Bucket, id.Space, int(id.Partition))
	part := span{prefix, after(prefix)}
	for {
		page, next, err := d.whole(part, pageBytes)
		if err != nil {
			return cell{}, fmt.Errorf("read cell: %w", err)
		}
		out = out.plus(page)
		if err := pause(ctx,
			time.Duration(float64(page.bytes)/float64(rate)*float64(time.Second))); err != nil {
			return cell{}, err
		}
		if next == nil {
			return out, nil
		}
		part.from = next
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// whole counts records in key order, including expired ones, until it has read about limit bytes;
// next is where to continue.
func (d *Store) whole(s span, limit int64) (out cell, next []byte, err error) {
	db, done, err := d.use()
	if err != nil {
		return cell{}, nil, err
	}
	defer done()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: s.from, UpperBound: s.to})
	if err != nil {
		return cell{}, nil, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if out.bytes >= limit {
			return out, append([]byte(nil), it.Key()...), nil
		}
		k, _, _, err := parseRecordKey(it.Key())
		if err != nil {
			return cell{}, nil, err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return cell{}, nil, err
		}
		h, err := parseHeader(v)
		if err != nil {
			return cell{}, nil, err
		}
		out = out.plus(cell{SumOf(k.Place, k.Name, h.version), 1, int64(len(it.Key()) + len(v)),
			h.version.Clock})
	}
	return out, nil, it.Error()
}

// mendCell sets a digest to the counted values, unless the cell has changed since.
func (d *Store) mendCell(ctx context.Context, id CellID, noted, found cell) (mended bool,
	err error) {
	return commitValue(ctx, d, func(_ *pebble.Batch, g *group) (bool, error) {
		if len(g.deltas) > 0 || d.cells.get(id) != noted {
			return false, nil
		}
		g.deltas = append(g.deltas, delta{id, cell{noted.sum ^ found.sum, found.count - noted.count,
			found.bytes - noted.bytes, found.newest}})
		return true, nil
	})
}
