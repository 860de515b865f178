package ringstore

import (
	"context"

	"clustermaster/store/ringstore/disk"
)

// scrubLoop reads all records from time to time, slowly: rot is found while the other owners still
// have what it hit, and the digests, by which copies are compared, are what is really there.
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
			s.log.Warn("read all records to check them; tried again", "err", err)
		}
		if pause(ctx, s.opts.ScrubEvery) != nil {
			return
		}
	}
}

// scrub has each cell counted again. Where a digest was wrong, comparing with the other owners
// fetches what is lacking.
func (s *Store) scrub(ctx context.Context) error {
	began := s.opts.Now()
	read, err := s.disk.Scrub(ctx, s.opts.ScrubRate, func(m disk.Mended) {
		s.met.mended.Inc()
		s.heard.miss()
		s.log.Warn("records are not those that were noted; copies are compared with the other masters",
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
