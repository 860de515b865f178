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

// A damaged store is moved aside as a whole and begun anew. What it held is fetched from other
// masters by whoever uses this package; until that is done the store is Refilling.

// refillNote is there until all that a damaged store held has been fetched.
const refillNote = "refill"

// IsDamage reports whether a store can't be opened or read because of what its files hold, or
// because some are gone. Pebble has no mark for a manifest that it can't read.
func IsDamage(err error) bool {
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

// MoveAside renames the folder of a damaged store, which nobody has open, so that nothing of it is
// lost. It returns the new name.
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

// Damage tells of damage that was found while the store is open, what Pebble says of it.
func (d *Store) Damage() <-chan string { return d.damage }

// beginAnew marks a new store as one that has to be filled.
func (d *Store) beginAnew() error {
	b := d.db.NewBatch()
	err := errors.Join(
		b.Set(noteKey(refillNote), []byte{1}, nil), b.Set(noteKey(tallyNote),
			[]byte(tallyVersion+d.openAs), nil), b.Commit(pebble.Sync))
	if err != nil {
		return fmt.Errorf("begin ring store anew: %w", err)
	}
	return nil
}

// Replace moves the database aside and puts an empty one in its place, which is Refilling. Then is
// called before anybody can read or write again; aside is where the old one lies now. What says
// why, for the log. It returns when that is done, or ctx's error, or ErrClosed.
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

// replace runs on the committer's goroutine: no write is under way. Reads that are under way end
// first.
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
		// There is neither an old nor a new store to go on with.
		panic(fmt.Sprintf("ring store: %s; and it can't be begun anew: %v", what, err))
	}
	d.refilling.Store(true)
	d.db, d.openedAs, d.openAs = next.db, next.openedAs, next.openAs
	d.buckets.Store(next.buckets.Load())
	d.cells.reset()
	d.owed.reset()
	d.opts.Watch.Lost()
	d.commit.kept = true
	then(aside)
	select { // reports of the same damage
	case <-d.damage:
	default:
	}
}

// Refilling reports whether the store was begun anew and still lacks what it held, as far as nobody
// has said EndRefill.
func (d *Store) Refilling() bool { return d.refilling.Load() }

// EndRefill notes that nothing is lacking any more, if still says so: it is asked at a moment in
// which the store is not being replaced.
func (d *Store) EndRefill(ctx context.Context, still func() bool) (ended bool, err error) {
	err = d.Commit(ctx, &Write{run: func(b *pebble.Batch, _ *group) error {
		if ended = still(); !ended {
			return nil
		}
		d.refilling.Store(false)
		return b.Delete(noteKey(refillNote), nil)
	}})
	return ended && err == nil, err
}
