package ringstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/test/knownbug"
)

// A deletion leaves a tombstone, which is removed after TombstoneFor, once all masters in contact
// have it. A master that was away all that time still has the deleted record, and no tombstone
// tells it so. Therefore a master that removes tombstones notes on disk, in the same batch, which
// masters have been away for so long. Such a master begins anew and is filled, as after damage. A
// master that was away for so long answers nothing from its own records until it knows that no
// other master noted it; nor does one whose clock was not compared, for that may have stood still.
//
// A master that was put back to an old disk was away as far as that disk knows, and for nobody
// else. So each disk also knows when the latest deletion was made whose tombstone was removed
// anywhere: a disk that does not know it, and was last in contact before it, may have what was
// deleted, and is begun anew too. The disk that knows the latest one never is, so some disk keeps
// its records whatever the clocks were.
const (
	// seconds since 1970: when this master was last in contact with others, and had compared
	// copies; for the survivor of two that is needed for a quorum, when it last ran
	contactNote = "contact"
)

// contactEvery is how often contact is noted.
const contactEvery = time.Minute

// contactAhead is how far a note of contact may lie in the future. A later one comes from a wrong
// clock, and says nothing about when contact was.
const contactAhead = 10 * time.Minute

// errAway refuses reads until this master has asked the others.
var errAway = errors.New("this master was away for longer than deletions are remembered, and has not yet heard " +
	"from the others")

// loadAway reads the notes on disk.
func (s *Store) loadAway() error {
	b, err := s.disk.Note(contactNote)
	if err != nil {
		return err
	}
	if len(b) == 8 {
		s.contact.Store(int64(binary.BigEndian.Uint64(b)))
	}
	s.suspect()
	return nil
}

// suspect sets stale if this master may have been away for too long, by its clock or by those of
// others: after a virtual machine was suspended its clock is wrong until the others' are compared.
func (s *Store) suspect() {
	at := s.contact.Load()
	since := time.Unix(at, 0)
	away := s.opts.Now().Sub(since)
	heard := s.clock.Heard().Sub(time.Unix(max(at, s.asked.Load()), 0))
	if at == 0 || max(away, heard) < s.opts.TombstoneFor &&
		away >= -min(contactAhead, s.opts.TombstoneFor/10) || len(s.others()) == 0 {
		return
	}
	if !s.stale.Swap(true) {
		s.log.Warn("this master was away for longer than deletions are remembered, or noted its last contact by a "+
			"wrong clock; it answers from the others' records until it has asked them",
			"since", since.UTC())
	}
}

// doubted returns why the records here may have been deleted elsewhere, so that no answer may use
// them and nothing must depend on them; nil if they count. While the clock was not compared it may
// have stood still all the time that this master was away.
func (s *Store) doubted() error {
	if s.contact.Load() != 0 && !s.opts.ClockJudged() && len(s.others()) > 0 {
		return errClock
	}
	if s.suspect(); s.stale.Load() {
		return errAway
	}
	return nil
}

// trust ends suspicion once the others were asked; heard is what Clock.Heard was before. Until then
// this master refused writes, so copies may be missing here.
func (s *Store) trust(heard time.Time) {
	s.heard.miss()
	s.asked.Store(heard.Unix())
	s.contact.Store(s.opts.Now().Unix())
	s.stale.Store(false)
}

// errCalm ends a removal of tombstones, which is tried again.
var errCalm = errors.New("the masters in contact, their debts or the ring changed meanwhile")

// mayForget reports whether tombstones may be removed now, and which masters must be noted with
// them: those that have been away for longer than deletions are remembered. Tombstones stay
//   - without a majority in contact;
//   - while this master may lack records, or the ring changes;
//   - while a master is away, but not yet that long: it would come back and suspect nothing;
//   - while anybody owes a copy: it may be older than the tombstone.
func (s *Store) mayForget() (gone []string, ok bool) {
	others := s.others()
	hints, _ := s.disk.OwedTotals()
	v := s.view.Load()
	if !majority(others, s.peers.Alive) || s.isBehind() || hints > 0 || v == nil || !v.Settled() {
		return nil, false
	}
	return s.heard.longAway(others, s.peers.Alive, s.opts.Now(), s.opts.TombstoneFor)
}

// confirm makes tombstones durable on all masters that are in contact, so that none of them keeps
// a copy of what was deleted: an owner may have missed the deletion, and one that is no longer an
// owner may own the partition again. A disk that has no such record ignores them.
func (s *Store) confirm(ctx context.Context, gone []string, tombs []Record) error {
	v, err := s.current(ctx)
	if err != nil {
		return err
	}
	changes := make([]disk.Change, len(tombs))
	for i := range tombs {
		changes[i].Record = tombs[i]
	}
	for _, node := range s.others() {
		if slices.Contains(gone, node) {
			continue
		}
		if err := s.give(ctx, v, node, changes); err != nil {
			return fmt.Errorf("%s has not confirmed the tombstones: %w", node, err)
		}
	}
	return nil
}

// lackers returns the masters that lack removed tombstones.
func (s *Store) lackers() []string {
	others := s.others()
	return slices.DeleteFunc(s.disk.Lacking(),
		func(n string) bool { return !slices.Contains(others, n) })
}

// keepContact asks the others if this master may have been away for too long, and notes the time of
// contact.
func (s *Store) keepContact(ctx context.Context, others []string) error {
	if !s.opts.ClockJudged() {
		return nil
	}
	// An old disk may ask this master alone.
	var forgotten uint64
	for _, node := range others {
		status, _, _ := s.heard.statusOf(node)
		forgotten = max(forgotten, status.GetForgotten())
	}
	// What is heard after this, and a correction of the clock, count from the next time.
	now := s.opts.Now()
	s.suspect()
	suspected, heard := s.stale.Load(), s.clock.Heard()
	asked := 0
	for _, node := range others {
		if !s.peers.Alive(node) {
			continue
		}
		asked++
		if !suspected {
			continue
		}
		reply, err := s.remote.Status(ctx, node, 0)
		if err != nil {
			return err
		}
		if why := s.outdated(node, reply); why != "" {
			if err := s.swap(ctx, toldAway, why); err != nil {
				return err
			}
			s.trust(heard)
			return nil
		}
	}
	// Of two masters, the other one forgets nothing without this one, for it is no majority. With a
	// quorum of its own it may have become one: it removed this master, or admitted others.
	if asked == 0 && (suspected || len(others) > 1 || !s.peers.QuorumNeedsSelf()) {
		return nil
	}
	if suspected {
		s.trust(heard)
	}
	// The age of the note is below zero if the clock was corrected since.
	age, every := now.Sub(time.Unix(s.noted, 0)), min(contactEvery, s.opts.TombstoneFor/10)
	if s.isBehind() || age >= 0 && age < every {
		return nil
	}
	s.contact.Store(now.Unix())
	s.noted = now.Unix()
	if err := s.disk.SetNote(ctx, contactNote,
		binary.BigEndian.AppendUint64(nil, uint64(now.Unix()))); err != nil {
		return err
	}
	return s.disk.NoteForgotten(ctx, int64(forgotten))
}

// outdated says why this master, which may have been away for too long, must begin anew, by what
// another one answered; "": it need not.
func (s *Store) outdated(node string, reply *ringpb.StatusReply) string {
	forgotten, contact := int64(reply.Forgotten), s.contact.Load()
	// Notes count whole seconds, and the clocks of masters differ by a few.
	doubt := int64(min(contactEvery, s.opts.TombstoneFor/10) / time.Second)
	switch {
	case slices.Contains(reply.Lacking, s.self):
		return "it was away for longer than ring_tombstone_seconds"
	case forgotten >= contact-doubt && forgotten > s.disk.Forgotten() &&
		!knownbug.Is(knownbug.TombstonesMerged) && !knownbug.Is(knownbug.OldDiskMerged):
		return fmt.Sprintf("its disk is of %s, and %s has forgotten a deletion of %s",
			disk.SecondsTime(contact).Format(time.RFC3339), node,
			disk.SecondsTime(forgotten).Format(time.RFC3339))
	}
	return ""
}
