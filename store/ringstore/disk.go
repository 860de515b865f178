package ringstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"clustermaster/cluster/level"
	"clustermaster/store/ringstore/diskfs"
)

// disk is what this master holds, as records; it knows nothing of owners. Reads may come from any
// goroutine, writes only from the committer.
type disk struct {
	// read-held while db is used, but by the committer; held while a damaged db is replaced
	swap   sync.RWMutex
	db     *pebble.DB
	closed atomic.Bool
	// newest of Pebble's OPTIONS files before this opening, and since
	openedAs, openAs string
	width            time.Duration // of the time buckets made from now on
	now              func() time.Time

	buckets atomic.Pointer[[]uint64] // those with records, ascending; never is always among them
}

// formatVersion is the layout of keys and values; a store of another one is refused.
var formatVersion = strconv.Itoa(level.FormatAt("ring", level.Base))

// openDisk opens or makes the Pebble database in dir. Its memory is small by intent: the whole
// master is to idle below 40 MB, and the operating system's page cache serves reads that miss.
func openDisk(dir string, opts Options, log *slog.Logger, damage damageReport) (*disk, error) {
	cache := pebble.NewCache(opts.CacheBytes)
	defer cache.Unref()
	files := opts.files()
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
	d := &disk{db: db, openedAs: before, openAs: newestOptions(files, dir), width: opts.BucketWidth,
		now: opts.Now}
	if err := d.checkFormat(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := d.findBuckets(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

// files is the file system of the store.
func (o Options) files() vfs.FS {
	if o.FS != nil {
		return o.FS
	}
	return diskfs.Private{FS: vfs.Default}
}

// sealed puts the seal over a file system, if there is one.
func (o Options) sealed(files vfs.FS) vfs.FS {
	if o.Seal == nil {
		return files
	}
	return diskfs.Sealed{FS: files, Key: o.Seal}
}

// checkSealed refuses a key for a store whose files are open. Without this they would count as
// damaged, and the store as lost.
func (o Options) checkSealed(dir string) error {
	if o.Seal == nil {
		return nil
	}
	files := o.files()
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open ring store: %w", err)
	}
	const begin = "[Version]" // of Pebble's options, as text
	for _, name := range names {
		if !strings.HasPrefix(name, "OPTIONS-") {
			continue
		}
		f, err := files.Open(files.PathJoin(dir, name))
		if err != nil {
			return fmt.Errorf("open ring store: %w", err)
		}
		head := make([]byte, len(begin))
		n, err := f.ReadAt(head, 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("open ring store: %w", err)
		}
		if string(head[:n]) == begin {
			return fmt.Errorf("seal_key is set, but the ring store %s is not sealed; nothing was changed. Move this master as "+
				"docs/security.md, \"Secrets at rest\", says", dir)
		}
	}
	return nil
}

// pebbleAt is the newest format of Pebble that all members of a cluster at a level can open.
func pebbleAt(at int) pebble.FormatMajorVersion {
	return pebble.FormatMajorVersion(level.FormatAt("pebble", at))
}

// raise brings the files to the formats of the cluster's level; no older release can open them
// after that.
func (d *disk) raise(to pebble.FormatMajorVersion) error {
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

func (d *disk) checkFormat() error {
	got, err := d.meta("format")
	if err != nil {
		return err
	}
	if got == nil {
		if err := d.db.Set(metaKey("format"), []byte(formatVersion), pebble.Sync); err != nil {
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
func (d *disk) findBuckets() error {
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
func (d *disk) live() []uint64 { return *d.buckets.Load() }

// addBucket is called by the committer before it writes into a new bucket.
func (d *disk) addBucket(b uint64) {
	old := d.live()
	at, ok := slices.BinarySearch(old, b)
	if ok {
		return
	}
	next := slices.Insert(slices.Clone(old), at, b)
	d.buckets.Store(&next)
}

// dropBucket is called by the committer when it has removed a bucket's range.
func (d *disk) dropBucket(b uint64) {
	next := slices.DeleteFunc(slices.Clone(d.live()), func(x uint64) bool {
		return x == b &&
			b != never
	})
	d.buckets.Store(&next)
}

func (d *disk) meta(name string) ([]byte, error) {
	v, err := d.value(metaKey(name))
	if err != nil {
		return nil, fmt.Errorf("read %s of ring store: %w", name, err)
	}
	return v, nil
}

// value returns a copy of what is stored under key, nil if nothing is.
func (d *disk) value(key []byte) ([]byte, error) {
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

// get returns the record kept under k, tombstones included, expired ones not.
func (d *disk) get(k Key, partition int) (Record, bool, error) {
	var best Record
	found := false
	now := d.now()
	var buf [256]byte
	for _, b := range d.live() {
		v, err := d.value(appendRecordKey(buf[:0], b, k, partition))
		if err != nil {
			return Record{}, false, fmt.Errorf("read record: %w", err)
		}
		if v == nil {
			continue
		}
		r, err := decodeValue(v, k, partition)
		if err != nil {
			return Record{}, false, err
		}
		if r.expired(now) {
			continue
		}
		if !found || wins(r.flags, r.Version, best.flags, best.Version) {
			best, found = r, true
		}
	}
	return best, found, nil
}

func decodeValue(v []byte, k Key, partition int) (Record, error) {
	h, err := parseHeader(v)
	if err != nil {
		return Record{}, err
	}
	return Record{Key: k, Value: v[headerLen:], Version: h.version, Expires: secondsTime(h.expires),
		partition: partition, flags: h.flags}, nil
}

// span is a part of one bucket in key order.
type span struct{ from, to []byte }

// spans lists the parts of the key space that hold the wanted partitions (nil: all) of a space, in
// key order.
func (d *disk) spans(space Space, partitions []int) []span {
	var out []span
	for _, b := range d.live() {
		if partitions == nil {
			prefix := append(bucketKey(b), byte(space))
			out = append(out, span{prefix, after(prefix)})
			continue
		}
		for _, p := range partitions {
			prefix := appendCellKey(nil, b, space, p)
			out = append(out, span{prefix, after(prefix)})
		}
	}
	return out
}

// page reads records of a span in key order until about limit bytes are together; next is where to
// go on, nil at the end. The iterator is closed before it returns, so a slow reader pins nothing.
func (d *disk) page(s span, limit int, keysOnly bool, keep func(Key) bool) (records []Record,
	next []byte, err error) {
	db, done, err := d.use()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: s.from, UpperBound: s.to})
	if err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	defer it.Close()
	now := d.now()
	size, seen := 0, 0
	for ok := it.First(); ok; ok = it.Next() {
		if size >= limit || seen >= limit {
			next = bytes.Clone(it.Key())
			break
		}
		k, p, _, err := parseRecordKey(it.Key())
		if err != nil {
			return nil, nil, err
		}
		seen += 64 // a page that skips everything ends too
		if keep != nil && !keep(k) {
			continue
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, nil, fmt.Errorf("read records: %w", err)
		}
		if keysOnly && len(v) > headerLen {
			v = v[:headerLen]
		}
		r, err := decodeValue(bytes.Clone(v), k, p)
		if err != nil {
			return nil, nil, err
		}
		if r.expired(now) {
			continue
		}
		size += len(v) + len(k.Place) + len(k.Name) + 64
		records = append(records, r)
	}
	if err := it.Error(); err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	return records, next, nil
}

// each calls fn with pages of the records of the spans.
func (d *disk) each(spans []span, limit int, keysOnly bool, keep func(Key) bool,
	fn func([]Record) error) error {
	for _, s := range spans {
		for {
			records, next, err := d.page(s, limit, keysOnly, keep)
			if err != nil {
				return err
			}
			if len(records) > 0 {
				if err := fn(records); err != nil {
					return err
				}
			}
			if next == nil {
				break
			}
			s.from = next
		}
	}
	return nil
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
