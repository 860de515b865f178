package ringstore

import (
	"context"
	"time"
)

// expireLoop drops the buckets that have ended.
func (s *Store) expireLoop(ctx context.Context) {
	tick := time.NewTicker(s.opts.ExpireEvery)
	defer tick.Stop()
	for {
		if err := s.expire(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("expired records not dropped; trying again", "err", err)
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

// expire drops the buckets that have ended, and expired tombstones.
func (s *Store) expire(ctx context.Context) error {
	select {
	case <-s.disk.Counted():
	default:
		return nil
	}
	dropped, err := s.disk.DropEnded(ctx)
	s.met.dropped.Add(float64(dropped))
	if err != nil || !s.mayForget() {
		return err
	}
	removed, err := s.disk.DropTombstones(ctx, s.absent)
	if lacking := s.lackers(); removed > 0 && len(lacking) > 0 {
		s.log.Info("tombstones removed; masters that are away now get all records again when they come back",
			"n", removed, "nodes", lacking)
	}
	return err
}
