package ringstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"clustermaster/store/ringstore/rings"
)

// A damaged store is moved aside as a whole and begun anew (package disk); its records are then
// fetched from the other owners. Until that is done this master takes writes, but its answers don't
// count as an owner's: of a record that only it and one other owner had acknowledged, only that
// owner is left.

// errRefilling refuses answers that would count as an owner's.
var errRefilling = errors.New("this master is fetching its records from the others; retry")

// Reasons to begin a store anew.
const (
	toldDamage = "the ring store was damaged; a new one fetches the records from the other masters; the damaged " +
		"one is kept"
	toldAlone = "the ring store was damaged; a new one is empty, because there is no other master; the damaged " +
		"one is kept, and is the only copy"
	toldAway = "deletions were forgotten while this master was away; a new ring store fetches the records from " +
		"the other masters; the old one is kept"
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

// swap replaces the store by an empty one and returns when that is done. Message and why go into
// the log.
func (s *Store) swap(ctx context.Context, message, why string) error {
	return s.disk.Replace(ctx, why, func(aside string) {
		s.view.Store(nil) // the other masters have it
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

// endRefill notes that no record is missing any more. This master must have compared copies with
// all other masters of the ring that have records to give. missed is the count from before the
// comparison: if the store was replaced since, the note is not written.
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
		return fmt.Errorf("note that all records were fetched again: %w", err)
	}
	if !ended {
		return nil
	}
	records, _ := s.disk.Totals()
	s.log.Info("the ring store has its records again", "n", records)
	return nil
}
