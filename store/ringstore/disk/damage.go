package disk

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

// A damaged store is moved aside as a whole and begun anew. The user of this package fetches its
// records from other masters; until that is done the store is Refilling.

// refillNote exists until all records of a damaged store have been fetched.
const refillNote = "refill"

// IsDamage reports whether an error of opening or reading a store comes from the content of its
// files, or from missing files. Pebble does not mark the error of an unreadable manifest.
func IsDamage(err error) bool {
	return err != nil && (pebble.IsCorruptionError(err) || errors.Is(err, ErrCorrupt) ||
		errors.Is(err, fs.ErrNotExist) ||
		strings.Contains(err.Error(), "malformed manifest"))
}

// damageReport takes the first report of damage; many may come, from any goroutine.
type damageReport chan string

func (r damageReport) note(info pebble.DataCorruptionInfo) {
	select {
	case r <- fmt.Sprintf("%s: %v", info.Path, info.Details):
	default:
	}
}

// MoveAside renames the folder of a damaged store that is not open, so that its files are kept. It
// returns the new name.
func MoveAside(dir string, opts Options) (aside string, err error) {
	opts = opts.withDefaults()
	return moveAside(opts.files(), dir, opts.Now())
}

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

// Damage reports damage that was found while the store is open, in Pebble's words.
func (d *Store) Damage() <-chan string { return d.damage }

// beginAnew marks a new store as Refilling.
func (d *Store) beginAnew() error {
	b := d.db.NewBatch()
	err := errors.Join(
		b.Set(noteKey(refillNote), []byte{1}, nil), b.Set(noteKey(tallyNote),
			[]byte(tallyVersion+d.openAs), nil), b.Commit(pebble.Sync))
	if err != nil {
		return fmt.Errorf("start a new ring store: %w", err)
	}
	return nil
}

// Replace moves the database aside and puts an empty one in its place, which is Refilling. It calls
// then before reads and writes go on; aside is the old one's new path. what is the reason, for the
// log. It returns when that is done, or ctx's error, or ErrClosed.
func (d *Store) Replace(ctx context.Context, what string, then func(aside string)) error {
	done := make(chan struct{})
	select {
	case d.commit.swaps <- func() { defer close(done); d.replace(what, then) }:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.commit.stop:
		return ErrClosed
	}
	<-done
	return nil
}

// replace runs on the committer's goroutine, so no write is running. It first waits for running
// reads.
func (d *Store) replace(what string, then func(aside string)) {
	d.swap.Lock()
	defer d.swap.Unlock()
	if err := d.db.Close(); err != nil {
		d.log.Debug("close the damaged ring store", "err", err)
	}
	aside, err := moveAside(d.opts.files(), d.dir, d.now())
	var next *Store
	if err == nil {
		next, err = openDB(d.dir, d.opts, d.damage)
	}
	if err == nil {
		err = next.beginAnew()
	}
	if err != nil {
		// Neither the old nor a new store can be used.
		panic(fmt.Sprintf("ring store: %s; a new one can't be started: %v", what, err))
	}
	d.refilling.Store(true)
	d.db, d.openedAs, d.openAs = next.db, next.openedAs, next.openAs
	d.buckets.Store(next.buckets.Load())
	d.cells.reset()
	d.owed.reset()
	d.forgotten.Store(0)
	d.opts.Watch.Lost()
	d.commit.kept = true
	then(aside)
	select { // reports of the same damage
	case <-d.damage:
	default:
	}
}

// Refilling reports whether the store was begun anew and EndRefill has not yet been called.
func (d *Store) Refilling() bool { return d.refilling.Load() }

// EndRefill notes that no record is missing any more, if still returns true. It calls still at a
// moment when the store is not being replaced.
func (d *Store) EndRefill(ctx context.Context, still func() bool) (ended bool, err error) {
	return commitValue(ctx, d, func(b *pebble.Batch, _ *group) (bool, error) {
		if !still() {
			return false, nil
		}
		d.refilling.Store(false)
		return true, b.Delete(noteKey(refillNote), nil)
	})
}
