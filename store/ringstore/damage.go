package ringstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A damaged store is moved aside as a whole and begun anew: what it held is fetched from the other
// owners. Until that is done this master takes writes, and does not count as an owner that was
// heard: a record that was acknowledged by it and one other owner is on that one only.

// errAside is what reads get while a damaged store is being replaced.
var errAside = errors.New("the ring store was damaged and is being replaced")

// errRefilling refuses answers that would count as an owner's.
var errRefilling = errors.New("this master fetches its records anew, for its store was damaged")

// refillMeta is there until all that a damaged store held has been fetched.
const refillMeta = "refill"

// use returns the database; done must be called when it is used no more. It does not wait: while
// the database is being replaced there is none.
func (d *disk) use() (db *pebble.DB, done func(), err error) {
	switch {
	case d.closed.Load():
		return nil, nil, ErrClosed
	case !d.swap.TryRLock():
		return nil, nil, errAside
	case d.closed.Load():
		d.swap.RUnlock()
		return nil, nil, ErrClosed
	}
	return d.db, d.swap.RUnlock, nil
}

// close waits for reads that are under way; later ones are refused.
func (d *disk) close() error {
	d.closed.Store(true)
	d.swap.Lock()
	defer d.swap.Unlock()
	return d.db.Close()
}

// isDamage reports whether a store can't be opened or read because of what its files hold, or
// because some are gone. Pebble has no mark for a manifest that it can't read.
func isDamage(err error) bool {
	return err != nil && (pebble.IsCorruptionError(err) || errors.Is(err, ErrCorrupt) ||
		errors.Is(err, fs.ErrNotExist) ||
		strings.Contains(err.Error(), "malformed manifest"))
}

// damageReport takes the first report of damage; there may be many, from any goroutine.
type damageReport chan string

func (r damageReport) note(info pebble.DataCorruptionInfo) {
	select {
	case r <- fmt.Sprintf("%s: %v", info.Path, info.Details):
	default:
	}
}

// moveAside renames the folder of a damaged store, so that nothing of it is lost.
func moveAside(files vfs.FS, dir string, now time.Time) (aside string, err error) {
	aside = dir + ".damaged-" + now.UTC().Format("20060102T150405.000")
	if err := files.Rename(dir, aside); err != nil {
		return "", fmt.Errorf("move damaged ring store aside: %w", err)
	}
	parent, err := files.OpenDir(filepath.Dir(dir))
	if err != nil {
		return "", fmt.Errorf("move damaged ring store aside: %w", err)
	}
	return aside, errors.Join(parent.Sync(), parent.Close())
}

// Why a store begins anew.
const (
	toldDamage = "the ring store was damaged; it begins anew and fetches its records from the other masters; the damaged one is kept"
	toldAlone  = "the ring store was damaged; it begins anew and empty, for there is no other master; the damaged one is kept, and is the only copy"
	toldAway   = "deletions were forgotten while this master was away; its ring store begins anew and fetches its records from the other masters; the old one is kept"
)

// beginAnew marks a new store as one that has to be filled.
func (s *Store) beginAnew(d *disk) error {
	b := d.db.NewBatch()
	err := errors.Join(
		b.Set(metaKey(refillMeta), []byte{1}, nil), b.Set(metaKey(tallyMeta),
			[]byte(tallyVersion+d.openAs), nil), b.Commit(pebble.Sync))
	if err != nil {
		return fmt.Errorf("begin ring store anew: %w", err)
	}
	s.refilling.Store(true)
	return nil
}

// watchDamage replaces the store when Pebble reports damage.
func (s *Store) watchDamage() {
	for {
		select {
		case what := <-s.damage:
			if err := s.swap(s.life, toldDamage, what); err != nil {
				return
			}
		case <-s.closed:
			return
		}
	}
}

// replace puts an empty store in place of the damaged one. It runs on the committer's goroutine: no
// write is under way. Reads that are under way end first.
func (s *Store) replace(message, what string) {
	s.disk.swap.Lock()
	defer s.disk.swap.Unlock()
	if err := s.disk.db.Close(); err != nil {
		s.log.Debug("close the damaged ring store", "err", err)
	}
	aside, err := moveAside(s.opts.files(), s.dir, s.opts.Now())
	var next *disk
	if err == nil {
		next, err = openDisk(s.dir, s.opts, s.log, s.damage)
	}
	if err == nil {
		err = s.beginAnew(next)
	}
	if err != nil {
		// There is neither an old nor a new store to go on with.
		panic(fmt.Sprintf("ring store: %s; and it can't be begun anew: %v", what, err))
	}
	s.disk.take(next)
	s.cells.reset()
	s.owed.reset()
	s.parts.lost()
	s.commit.kept = true
	s.view.Store(nil) // the others tell
	s.syncing.reset()
	s.heard.miss()
	select { // reports of the same damage
	case <-s.damage:
	default:
	}
	s.met.quarantined.Inc()
	if message == toldDamage && len(s.others()) == 0 {
		message = toldAlone
	}
	s.log.Error(message, "err", strings.TrimSpace(what), "path", aside)
	s.wake()
}

// take makes the database of another disk this one's. The caller holds swap.
func (d *disk) take(next *disk) {
	d.db, d.openedAs, d.openAs = next.db, next.openedAs, next.openAs
	d.buckets.Store(next.buckets.Load())
}

// endRefill notes that nothing is lacking any more, once this master has compared copies with all
// others of the ring that have something to give. Missed is what it had missed before: if the store
// was replaced since, nothing ends.
func (s *Store) endRefill(ctx context.Context, v *view, missed uint64) error {
	for _, node := range v.latest().Members() {
		if node == s.self {
			continue
		}
		if status, _, _ := s.heard.statusOf(node); s.heard.isDirty(node) && !status.GetRefilling() {
			return nil
		}
	}
	ended := false
	err := s.commit.do(ctx, &task{run: func(b *pebble.Batch, _ *group) error {
		// the store is replaced on this goroutine
		if ended = s.heard.missedNothingSince(missed); !ended {
			return nil
		}
		s.refilling.Store(false)
		return b.Delete(metaKey(refillMeta), nil)
	}})
	if err != nil {
		return fmt.Errorf("note that records were fetched anew: %w", err)
	}
	if !ended {
		return nil
	}
	records, _ := s.cells.totals()
	s.log.Info("the ring store has its records again", "n", records)
	return nil
}
