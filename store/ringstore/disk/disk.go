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

// Store holds this master's records. It knows no owners, except those for which it holds copies. It
// is safe for concurrent use. Its functions return ErrClosed after Close, and ErrAside while a
// damaged database is being replaced.
type Store struct {
	dir   string
	opts  Options
	log   *slog.Logger
	clock *Clock

	// read-held by users of db other than the committer; held while a damaged db is replaced
	swap   sync.RWMutex
	db     *pebble.DB
	closed atomic.Bool
	// the newest of Pebble's OPTIONS files, before this opening and after it
	openedAs, openAs string
	now              func() time.Time

	buckets atomic.Pointer[[]uint64] // those with records, ascending; always includes never

	damage    damageReport
	refilling atomic.Bool // see Refilling

	lackingMu sync.Mutex      // guards lacking
	lacking   map[string]bool // nodes that lack removed tombstones

	forgotten atomic.Int64 // see Forgotten

	cells  *cells
	owed   *owed
	commit *committer // from Start on

	life context.Context // ends at Close
	end  context.CancelFunc
	wg   sync.WaitGroup // counting the records after Start
}

// formatVersion is the format of keys and values; Open refuses a store with another one.
var formatVersion = strconv.Itoa(level.FormatAt("ring", level.Base))

// Open opens or makes the store in dir. It takes writes only after Start. IsDamage recognizes the
// error of a damaged store. The caller closes the store.
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

// openDB opens or makes the Pebble database in dir. Its memory is small on purpose: an idle master
// must stay below 40 MB, and the operating system's page cache serves reads that miss.
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
				log.Error("ring store: background write failed",
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

// loadNotes reads the store's notes about itself.
func (d *Store) loadNotes() error {
	mark, err := d.Note(refillNote)
	if err != nil {
		return err
	}
	d.refilling.Store(mark != nil)
	at, err := d.Note(forgottenNote)
	if err != nil {
		return err
	}
	if len(at) == 8 {
		d.forgotten.Store(int64(binary.BigEndian.Uint64(at)))
	}
	return d.loadLacking()
}

// Start lets the store take writes, but none of rings older than floor. It counts the records
// unless valid digests are on disk; see Counted.
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
	snapshot := d.db.NewSnapshot() // before the first write, because later ones count themselves
	d.commit = startCommitter(d, floor, false)
	d.wg.Go(func() {
		_, done, err := d.use()
		if err == nil {
			err = d.countCells(snapshot)
			err = errors.Join(err, snapshot.Close())
			done()
		}
		if err != nil {
			d.log.Error("records not counted; copies are not compared until the next start", "err", err)
			return
		}
		if err := d.keepCells(); err != nil {
			d.log.Warn("digests of records not saved; they are counted again at the next start",
				"err", err)
		}
		d.cells.counted()
	})
	return nil
}

// Close finishes queued writes, waits for running reads, and closes the database.
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

// use returns the database; the caller calls done after use. It does not wait: while the database
// is being replaced it returns an error.
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

// RaiseLevel converts the files to the formats of a level of the cluster; older releases can't open
// them afterwards.
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
		return fmt.Errorf("ring store has format %q, this program knows %q; use the program "+
			"that wrote it", got, formatVersion)
	}
	return nil
}

// findBuckets finds the buckets by jumping from one to the next, without reading the records
// between.
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

// addBucket adds a bucket; the committer calls it before it writes into a new one.
func (d *Store) addBucket(b uint64) {
	old := d.live()
	at, ok := slices.BinarySearch(old, b)
	if ok {
		return
	}
	next := slices.Insert(slices.Clone(old), at, b)
	d.buckets.Store(&next)
}

// dropBucket removes a bucket; the committer calls it after it removed the bucket's range.
func (d *Store) dropBucket(b uint64) {
	next := slices.DeleteFunc(slices.Clone(d.live()), func(x uint64) bool {
		return x == b &&
			b != never
	})
	d.buckets.Store(&next)
}

// Note returns the note of that name, nil if there is none.
func (d *Store) Note(name string) ([]byte, error) {
	v, err := d.value(noteKey(name))
	if err != nil {
		return nil, fmt.Errorf("read %s of ring store: %w", name, err)
	}
	return v, nil
}

// value returns a copy of the value under key, nil if there is none.
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

// pebbleLog sends Pebble's messages to slog. Pebble calls Fatalf when it can no longer promise
// durability, because the device refused a write for another reason than a lack of space (see
// diskfs.Patient). The process then has to end.
type pebbleLog struct{ log *slog.Logger }

func (l pebbleLog) Infof(format string, args ...any) {
	l.log.Debug("pebble", "msg", fmt.Sprintf(format, args...))
}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("pebble", "msg", fmt.Sprintf(format, args...))
}

func (l pebbleLog) Fatalf(format string, args ...any) {
	l.log.Error("the device refuses the ring store's writes; replace it and start again",
		"msg", fmt.Sprintf(format, args...))
	panic("ring store: " + fmt.Sprintf(format, args...))
}
