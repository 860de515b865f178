package ringstore

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// scrubLoop reads all records from time to time, slowly: rot is found while the other owners still
// have what it hit, and the digests, by which copies are compared, are what is really there.
func (s *Store) scrubLoop(ctx context.Context) {
	select {
	case <-s.cells.ready:
	case <-ctx.Done():
		return
	case <-s.closed:
		return
	}
	for {
		if err := s.scrub(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("read all records to check them; tried again", "err", err)
		}
		if pause(ctx, s.opts.ScrubEvery) != nil {
			return
		}
	}
}

// scrub counts each cell again. One that is being written to is left for the next time.
func (s *Store) scrub(ctx context.Context) error {
	began, read := s.opts.Now(), int64(0)
	for id, noted := range s.cells.all() {
		found, err := s.countCell(ctx, id)
		if err != nil {
			return err
		}
		read += found.bytes
		if now := s.cells.get(id); now == noted &&
			(found.sum != now.sum || found.count != now.count) {
			if err := s.mendCell(ctx, id, now, found); err != nil {
				return err
			}
		}
	}
	s.met.scrubbed.Add(float64(read))
	s.log.Debug("all records were read", "bytes", read, "took", s.opts.Now().Sub(began))
	return nil
}

// countCell reads the records of a cell at the scrub's rate.
func (s *Store) countCell(ctx context.Context, id cellID) (cell, error) {
	var out cell
	prefix := appendCellKey(nil, id.bucket, id.space, int(id.partition))
	part := span{prefix, after(prefix)}
	for {
		page, next, err := s.disk.whole(part, pageBytes)
		if err != nil {
			return cell{}, fmt.Errorf("read cell: %w", err)
		}
		out = out.plus(page)
		if err := pause(ctx,
			time.Duration(float64(page.bytes)/float64(s.opts.ScrubRate)*float64(time.Second))); err != nil {
			return cell{}, err
		}
		if next == nil {
			return out, nil
		}
		part.from = next
	}
}

// whole counts records in key order, expired ones too, until about limit bytes are read; next is
// where to go on.
func (d *disk) whole(s span, limit int64) (out cell, next []byte, err error) {
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
		out = out.plus(cell{sum(k.Place, k.Name, h.version), 1, int64(len(it.Key()) + len(v)),
			h.version.Clock})
	}
	return out, nil, it.Error()
}

// mendCell brings a digest to what was found, unless the cell has changed since; then comparing
// with the other owners fetches what is lacking.
func (s *Store) mendCell(ctx context.Context, id cellID, noted, found cell) error {
	mended := false
	err := s.commit.do(ctx, &task{run: func(_ *pebble.Batch, g *group) error {
		if len(g.deltas) > 0 || s.cells.get(id) != noted {
			return nil
		}
		g.deltas = append(g.deltas, delta{id, cell{noted.sum ^ found.sum, found.count - noted.count,
			found.bytes - noted.bytes, found.newest}})
		mended = true
		return nil
	}})
	if err != nil || !mended {
		return err
	}
	s.met.mended.Inc()
	s.heard.miss()
	s.log.Warn("records are not those that were noted; copies are compared with the other masters",
		"bucket", id.bucket, "space", id.space,
		"partition", id.partition, "n", found.count, "noted", noted.count)
	s.wake()
	return nil
}
