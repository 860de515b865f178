package ringstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"clustermaster/store/ringstore/rings"
)

// A damaged store is moved aside as a whole and begun anew (package disk): what it held is fetched
// from the other owners. Until that is done this master takes writes, and does not count as an
// owner that was heard: a record that was acknowledged by it and one other owner is on that one
// only.

// errRefilling refuses answers that would count as an owner's.
var errRefilling = errors.New("this master is fetching its records from the others; retry")

// Why a store begins anew.
const (
	toldDamage = "the ring store was damaged; it begins anew and fetches its records from the other masters; the damaged one is kept"
	toldAlone  = "the ring store was damaged; it begins anew and empty, for there is no other master; the damaged one is kept, and is the only copy"
	toldAway   = "deletions were forgotten while this master was away; its ring store begins anew and fetches its records from the other masters; the old one is kept"
)

// watchDamage replaces the store when Pebble reports damage.
func (s *Store) watchDamage() {
	for {
		select {
		case what := <-s.disk.Damage():
			if err := s.swap(s.life, toldDamage, what); err != nil {
				return
			}
		case <-s.closed:
			return
		}
	}
}

// swap replaces the store by an empty one and returns when that is done. Message and why are for
// the log.
func (s *Store) swap(ctx context.Context, message, why string) error {
	return s.disk.Replace(ctx, why, func(aside string) {
		s.view.Store(nil) // the others tell
		s.syncing.reset()
		s.heard.miss()
		s.met.quarantined.Inc()
		if message == toldDamage && len(s.others()) == 0 {
			message = toldAlone
		}
		s.log.Error(message, "err", strings.TrimSpace(why), "path", aside)
		s.wake()
	})
}

// endRefill notes that nothing is lacking any more, once this master has compared copies with all
// others of the ring that have something to give. Missed is what it had missed before: if the store
// was replaced since, nothing ends.
func (s *Store) endRefill(ctx context.Context, v *rings.View, missed uint64) error {
	for _, node := range v.Latest().Members() {
		if node == s.self {
			continue
		}
		if status, _, _ := s.heard.statusOf(node); s.heard.isDirty(node) && !status.GetRefilling() {
			return nil
		}
	}
	ended, err := s.disk.EndRefill(ctx, func() bool { return s.heard.missedNothingSince(missed) })
	if err != nil {
		return fmt.Errorf("note that records were fetched anew: %w", err)
	}
	if !ended {
		return nil
	}
	records, _ := s.disk.Totals()
	s.log.Info("the ring store has its records again", "n", records)
	return nil
}
