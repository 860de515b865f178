package ringstore

import (
	"context"

	"clustermaster/store/ringstore/disk"
)

// scrubLoop slowly reads all records from time to time. It finds rot while the other owners still
// have the damaged records, and digests, by which copies are compared, that don't match the
// records.
func (s *Store) scrubLoop(ctx context.Context) {
	select {
	case <-s.disk.Counted():
	case <-ctx.Done():
		return
	case <-s.closed:
		return
	}
	for {
		if err := s.scrub(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("records not checked; trying again", "err", err)
		}
		if pause(ctx, s.opts.ScrubEvery) != nil {
			return
		}
	}
}

// scrub counts each cell anew. If a digest was wrong, comparing with the other owners fetches the
// missing records.
func (s *Store) scrub(ctx context.Context) error {
	began := s.opts.Now()
	read, err := s.disk.Scrub(ctx, s.opts.ScrubRate, func(m disk.Mended) {
		s.met.mended.Inc()
		s.heard.miss()
		s.log.Warn("records differ from their digest; copies are compared with the other masters",
			"bucket", m.Cell.Bucket, "space", m.Cell.Space, "partition", m.Cell.Partition,
			"n", m.Found, "noted", m.Noted)
		s.wake()
	})
	if err != nil {
		return err
	}
	s.met.scrubbed.Add(float64(read))
	s.log.Debug("all records were read", "bytes", read, "took", s.opts.Now().Sub(began))
	return nil
}
