package ringstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"clustermaster/test/knownbug"
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

// expire drops the buckets that have ended, and expired tombstones, once the clock was compared.
func (s *Store) expire(ctx context.Context) error {
	if !s.opts.ClockJudged() {
		return nil
	}
	select {
	case <-s.disk.Counted():
	default:
		return nil
	}
	dropped, err := s.disk.DropEnded(ctx)
	s.met.dropped.Add(float64(dropped))
	gone, ok := s.mayForget()
	if err != nil || !ok {
		return err
	}
	removed, err := s.disk.DropTombstones(ctx, func(tombs []Record) error {
		return s.confirm(ctx, gone, tombs)
	}, func() ([]string, error) {
		if now, ok := s.mayForget(); !ok || !slices.Equal(now, gone) {
			return nil, errCalm
		}
		if knownbug.Is(knownbug.TombstonesMerged) {
			return nil, nil
		}
		return gone, nil
	})
	if lacking := s.lackers(); removed > 0 && len(lacking) > 0 {
		s.log.Info("tombstones removed; masters that are away now get all records again when they come back",
			"n", removed, "nodes", lacking)
	}
	if errors.Is(err, errCalm) {
		s.log.Debug("tombstones not removed; trying again", "err", err)
		return nil
	}
	return err
}
