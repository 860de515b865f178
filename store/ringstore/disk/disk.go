package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"clustermaster/cluster/level"
	"clustermaster/store/ringstore/diskfs"
)

// Store is what this master holds, as records; it knows nothing of owners, but for the copies that
// it holds for other masters. It is safe for concurrent use. Its functions return ErrClosed after
// Close and ErrAside while a damaged database is being replaced.
type Store struct {
	dir   string
	opts  Options
	log   *slog.Logger
	clock *Clock

	// read-held while db is used, but by the committer; held while a damaged db is replaced
	swap   sync.RWMutex
	db     *pebble.DB
	closed atomic.Bool
	// newest of Pebble's OPTIONS files before this opening, and since
	openedAs, openAs string
	now              func() time.Time

	buckets atomic.Pointer[[]uint64] // those with records, ascending; never is always among them

	damage    damageReport
	refilling atomic.Bool // see Refilling

	lackingMu sync.Mutex      // guards lacking
	lacking   map[string]bool // nodes that lack tombstones which are gone

	cells  *cells
	owed   *owed
	commit *committer // from Start on

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup // the count of records after Start
}

// formatVersion is the layout of keys and values; a store of another one is refused.
var formatVersion = strconv.Itoa(level.FormatAt("ring", level.Base))

// Open opens or makes the store in dir. It takes writes after Start only. An error of a damaged
// store is one for IsDamage. The caller closes the store.
func Open(dir string, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	d, err := openDB(dir, opts, make(damageReport, 1))
	if err != nil {
		return nil, err
	}
	d.life, d.end = context.WithCancel(context.Background())
	if d.owed, err = loadOwed(d); err == nil && opts.Anew {
		err = d.beginAnew()
	}
	if err == nil {
		err = d.loadNotes()
	}
	if err != nil {
		d.db.Close()
		return nil, fmt.Errorf("open ring store %s: %w", dir, err)
	}
	return d, nil
}

// openDB opens or makes the Pebble database in dir. Its memory is small by intent: the whole
// master is to idle below 40 MB, and the operating system's page cache serves reads that miss.
func openDB(dir string, opts Options, damage damageReport) (*Store, error) {
	cache := pebble.NewCache(opts.CacheBytes)
	defer cache.Unref()
	files, log := opts.files(), opts.Log
	po := &pebble.Options{
		Cache:                       cache,
		FS:                          opts.sealed(diskfs.NewPatient(files, log)),
		Logger:                      pebbleLog{log},
		MaxOpenFiles:                256,
		MemTableSize:                uint64(opts.MemTableBytes),
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               32 << 20,
		FormatMajorVersion:          pebbleAt(level.Base), // RaiseLevel raises it
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		FlushDelayDeleteRange:       max(0, opts.FlushDelay),
		BytesPerSync:                512 << 10,
		WALBytesPerSync:             0,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				log.Error("write ring store in the background",
					"err", err)
			},
			DataCorruption: damage.note,
		},
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].BlockSize = 8 << 10
	}
	if err := diskfs.MakePrivate(dir); err != nil {
		return nil, err
	}
	before := newestOptions(files, dir)
	db, err := pebble.Open(dir, po)
	if err != nil {
		return nil, fmt.Errorf("open ring store %s: %w", dir, err)
	}
	d := &Store{
		dir: dir, opts: opts, log: log, clock: opts.Clock, now: opts.Now, damage: damage,
		db: db, openedAs: before, openAs: newestOptions(files, dir),
		lacking: map[string]bool{}, cells: newCells(),
	}
	if err := d.checkFormat(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := d.findBuckets(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

// loadNotes reads what the store knows of itself.
func (d *Store) loadNotes() error {
	mark, err := d.Note(refillNote)
	if err != nil {
		return err
	}
	d.refilling.Store(mark != nil)
	return d.loadLacking()
}

// Start takes writes from now on, none of rings older than floor, and counts the records where no
// digests on disk hold; see Counted.
func (d *Store) Start(floor uint64) error {
	kept, err := d.loadCells()
	if err != nil {
		return fmt.Errorf("open ring store %s: %w", d.dir, err)
	}
	if kept {
		d.commit = startCommitter(d, floor, true)
		d.cells.counted()
		return nil
	}
	snapshot := d.db.NewSnapshot() // before the first write: later ones count themselves
	d.commit = startCommitter(d, floor, false)
	d.wg.Go(func() {
		_, done, err := d.use()
		if err == nil {
			err = d.countCells(snapshot)
			err = errors.Join(err, snapshot.Close())
			done()
		}
		if err != nil {
			d.log.Error("count records; copies are not compared until the next start", "err", err)
			return
		}
		if err := d.keepCells(); err != nil {
			d.log.Warn("keep the digests of records; they are counted again at the next start",
				"err", err)
		}
		d.cells.counted()
	})
	return nil
}

// Close finishes what is queued, waits for reads that are under way, and closes the database.
func (d *Store) Close() error {
	d.end()
	d.wg.Wait()
	if d.commit != nil {
		d.commit.close()
	}
	d.closed.Store(true)
	d.swap.Lock()
	defer d.swap.Unlock()
	return d.db.Close()
}

// use returns the database; done must be called when it is used no more. It does not wait: while
// the database is being replaced there is none.
func (d *Store) use() (db *pebble.DB, done func(), err error) {
	switch {
	case d.closed.Load():
		return nil, nil, ErrClosed
	case !d.swap.TryRLock():
		return nil, nil, ErrAside
	case d.closed.Load():
		d.swap.RUnlock()
		return nil, nil, ErrClosed
	}
	return d.db, d.swap.RUnlock, nil
}

// pebbleAt is the newest format of Pebble that all members of a cluster at a level can open.
func pebbleAt(at int) pebble.FormatMajorVersion {
	return pebble.FormatMajorVersion(level.FormatAt("pebble", at))
}

// RaiseLevel brings the files to the formats of a level of the cluster; no older release can open
// them after that.
func (d *Store) RaiseLevel(to int) error { return d.raise(pebbleAt(to)) }

func (d *Store) raise(to pebble.FormatMajorVersion) error {
	db, done, err := d.use()
	if err != nil {
		return err
	}
	defer done()
	if to <= db.FormatMajorVersion() {
		return nil
	}
	if err := db.RatchetFormatMajorVersion(to); err != nil {
		return fmt.Errorf("raise format of ring store to %d: %w", to, err)
	}
	return nil
}

func (d *Store) checkFormat() error {
	got, err := d.Note("format")
	if err != nil {
		return err
	}
	if got == nil {
		if err := d.db.Set(noteKey("format"), []byte(formatVersion), pebble.Sync); err != nil {
			return fmt.Errorf("write format of ring store: %w", err)
		}
		return nil
	}
	if string(got) != formatVersion {
		return fmt.Errorf("ring store has format %q, this program knows %q; use the program that wrote it", got, formatVersion)
	}
	return nil
}

// findBuckets hops from bucket to bucket, without reading the records between.
func (d *Store) findBuckets() error {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindRecord},
		UpperBound: []byte{kindRecord + 1}})
	if err != nil {
		return fmt.Errorf("read buckets: %w", err)
	}
	defer it.Close()
	found := []uint64{}
	for ok := it.First(); ok; {
		key := it.Key()
		if len(key) < 9 {
			return fmt.Errorf("read buckets: %w", ErrCorrupt)
		}
		b := binary.BigEndian.Uint64(key[1:])
		if b == never {
			break
		}
		found = append(found, b)
		ok = it.SeekGE(bucketKey(b + 1))
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read buckets: %w", err)
	}
	found = append(found, never)
	d.buckets.Store(&found)
	return nil
}

// live returns the buckets with records, ascending, never last.
func (d *Store) live() []uint64 { return *d.buckets.Load() }

// addBucket is called by the committer before it writes into a new bucket.
func (d *Store) addBucket(b uint64) {
	old := d.live()
	at, ok := slices.BinarySearch(old, b)
	if ok {
		return
	}
	next := slices.Insert(slices.Clone(old), at, b)
	d.buckets.Store(&next)
}

// dropBucket is called by the committer when it has removed a bucket's range.
func (d *Store) dropBucket(b uint64) {
	next := slices.DeleteFunc(slices.Clone(d.live()), func(x uint64) bool {
		return x == b &&
			b != never
	})
	d.buckets.Store(&next)
}

// Note returns what was noted under a name, nil if nothing was.
func (d *Store) Note(name string) ([]byte, error) {
	v, err := d.value(noteKey(name))
	if err != nil {
		return nil, fmt.Errorf("read %s of ring store: %w", name, err)
	}
	return v, nil
}

// value returns a copy of what is stored under key, nil if nothing is.
func (d *Store) value(key []byte) ([]byte, error) {
	db, done, err := d.use()
	if err != nil {
		return nil, err
	}
	defer done()
	v, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}

// pebbleLog sends Pebble's messages to slog. Pebble calls Fatalf when it can't promise durability
// any more (the device refused a write, and not for want of space: see diskfs.Patient); there is
// nothing to go on with then.
type pebbleLog struct{ log *slog.Logger }

func (l pebbleLog) Infof(format string, args ...any) {
	l.log.Debug("pebble", "msg", fmt.Sprintf(format, args...))
}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("pebble", "msg", fmt.Sprintf(format, args...))
}

func (l pebbleLog) Fatalf(format string, args ...any) {
	l.log.Error("the device does not take what the ring store writes; replace it and start again",
		"msg", fmt.Sprintf(format, args...))
	panic("ring store: " + fmt.Sprintf(format, args...))
}
