package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"clustermaster/test/knownbug"
)

// Change is one record to merge into this disk, or to hold for other masters.
type Change struct {
	Record  Record
	Owed    []string // owners that still need a copy from this master
	StandIn bool     // this master is not an owner: keep a copy only for those in Owed
	Under   bool     // written to fewer owners than the write quorum
}

// Kept says that a change lost against a stored record.
type Kept struct {
	Index   int // of the change
	Version Version
	Flags   uint8
}

// Write holds changes that are committed together, and their outcome.
type Write struct {
	Epoch   uint64 // ring of the writer; 0: not checked
	Changes []Change
	// Fresh is set for what a client writes now: an expired record is refused with ErrExpired.
	// Other writes bring copies together, and drop it.
	Fresh bool

	// Done is called once, from another goroutine, when the changes are on stable storage or Err is
	// set. It must not block.
	Done func(*Write)

	Kept  []Kept
	Stale uint64 // if not 0, the write was refused; the newest epoch known here
	Err   error

	// for the store itself, in place of changes; what it adds to b is durable when Done is called
	run func(b *pebble.Batch, g *group) error
}

func (t *Write) size() int {
	n := 0
	for i := range t.Changes {
		n += len(t.Changes[i].Record.Value) + len(t.Changes[i].Record.Name) +
			len(t.Changes[i].Record.Place) + 64
	}
	return n
}

// Bounds of one group commit.
const (
	MaxGroup   = 512 // writes
	groupBytes = 4 << 20
)

// committer is the only writer of the disk. It takes all waiting tasks, merges them in one Pebble
// batch and passes it to the syncer, so that it can merge the next group while the log is synced:
// one fsync for many writes, and read-merge-write without locks.
type committer struct {
	disk  *Store
	cells *cells
	owed  *owed
	watch Watcher
	width time.Duration
	opts  *Options

	queue  chan *Write
	synced chan *group
	swaps  chan func()    // run between two groups, once earlier writes are synced
	queued sync.WaitGroup // groups on their way through the syncer
	stop   chan struct{}  // closed: writers stop waiting for room
	last   chan struct{}  // closed: no more writes enter the queue
	once   sync.Once
	wg     sync.WaitGroup

	gate   sync.RWMutex // read-held while a task is queued
	closed bool         // under gate

	kept  bool   // committer goroutine only: the digests are on disk, and each batch updates them
	floor uint64 // committer goroutine only: writes of older epochs are refused
}

// group is one Pebble batch with the tasks that wait for it.
type group struct {
	batch   *pebble.Batch
	tasks   []*Write
	deltas  []delta
	changed []Changed // of watched spaces
	hints   []hintDelta
	overlay map[string][]byte // what the batch will store under a key; nil: removed
	reader  *pebble.Iterator  // over what earlier groups wrote; made on first use
	dropped []uint64          // buckets
	after   []func()          // run once the batch is visible
	waits   bool

	tallied bool // the batch writes all digests
	closed  bool // the batch removes records by range: later writes must go into another group
}

func startCommitter(d *Store, floor uint64, kept bool) *committer {
	k := &committer{
		disk: d, cells: d.cells, owed: d.owed, watch: d.opts.Watch, width: d.opts.BucketWidth,
		opts: &d.opts, queue: make(chan *Write, d.opts.WriteQueue), synced: make(chan *group, 4),
		swaps: make(chan func()), stop: make(chan struct{}),
		last: make(chan struct{}), floor: floor, kept: kept,
	}
	k.wg.Add(2)
	go k.merge()
	go k.sync()
	return k
}

// close refuses new tasks, finishes the queued ones, and returns when all are durable.
func (k *committer) close() {
	k.once.Do(func() {
		close(k.stop)
		k.gate.Lock()
		k.closed = true
		k.gate.Unlock()
		close(k.last)
	})
	k.wg.Wait()
}

// admit refuses records while the disk is almost full. Deletions and the store's own housekeeping
// go on.
func (k *committer) admit(t *Write) error {
	if len(t.Changes) == 0 || !slices.ContainsFunc(t.Changes,
		func(c Change) bool { return !c.Record.Deleted() }) {
		return nil
	}
	if err := k.opts.Room(); err != nil {
		k.opts.Refused()
		return err
	}
	return nil
}

// submit queues a write, waiting for a place in the queue. It calls t.Done unless it returns an
// error.
func (k *committer) submit(ctx context.Context, t *Write) error {
	if err := k.admit(t); err != nil {
		return err
	}
	k.gate.RLock()
	defer k.gate.RUnlock()
	if k.closed {
		return ErrClosed
	}
	select {
	case k.queue <- t:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-k.stop:
		return ErrClosed
	}
}

// try queues a write if the queue has a place now.
func (k *committer) try(t *Write) bool {
	if k.admit(t) != nil {
		return false
	}
	k.gate.RLock()
	defer k.gate.RUnlock()
	if k.closed {
		return false
	}
	select {
	case k.queue <- t:
		return true
	default:
		return false
	}
}

// do queues a write and waits until it is durable.
func (k *committer) do(ctx context.Context, t *Write) error {
	done := make(chan struct{})
	t.Done = func(*Write) { close(done) }
	if err := k.submit(ctx, t); err != nil {
		return err
	}
	select {
	case <-done:
		return t.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Submit queues changes, waiting for a place in the queue. It calls w.Done unless it returns an
// error: ErrClosed, the error of Options.Room, or ctx's.
func (d *Store) Submit(ctx context.Context, w *Write) error { return d.commit.submit(ctx, w) }

// Try queues changes if the queue has a place now. It calls w.Done if it returns true.
func (d *Store) Try(w *Write) bool { return d.commit.try(w) }

// Commit queues changes and returns when they are on stable storage; it sets w.Done. If it returns
// ctx's error they may still be written later.
func (d *Store) Commit(ctx context.Context, w *Write) error { return d.commit.do(ctx, w) }

// commitValue is Commit for a run with a result. Only this function shares the result with the
// committer, which may still run it after ctx has ended.
func commitValue[T any](ctx context.Context, d *Store,
	run func(*pebble.Batch, *group) (T, error)) (T, error) {
	var result, none T
	err := d.Commit(ctx, &Write{run: func(b *pebble.Batch, g *group) (err error) {
		result, err = run(b, g)
		return err
	}})
	if err != nil {
		return none, err
	}
	return result, nil
}

func (k *committer) merge() {
	defer k.wg.Done()
	defer close(k.synced)
	for {
		var first *Write
		select {
		case first = <-k.queue:
		case f := <-k.swaps:
			k.queued.Wait()
			f()
			continue
		case <-k.last:
			select {
			case first = <-k.queue:
			default:
				return
			}
		}
		k.queued.Add(1)
		k.synced <- k.collect(first)
	}
}

// collect makes a group of the task and all that are queued after it.
func (k *committer) collect(first *Write) *group {
	g := &group{batch: k.disk.db.NewBatch(), overlay: map[string][]byte{}}
	for t, bytes := first, 0; ; {
		g.tasks = append(g.tasks, t)
		bytes += t.size()
		t.Err = k.add(g, t)
		if g.closed || len(g.tasks) >= MaxGroup || bytes >= groupBytes {
			break
		}
		select {
		case t = <-k.queue:
			continue
		default:
		}
		break
	}
	if g.reader != nil {
		if err := g.reader.Close(); err != nil {
			g.fail(fmt.Errorf("read record: %w", err))
		}
	}
	if err := k.tally(g); err != nil {
		g.fail(fmt.Errorf("note digests: %w", err))
		return g
	}
	if !g.batch.Empty() {
		apply := k.disk.db.ApplyNoSyncWait
		sync := pebble.Sync
		if g.waits = !knownbug.Is(knownbug.RingNoSync); !g.waits {
			apply, sync = k.disk.db.Apply, pebble.NoSync
		}
		if err := apply(g.batch, sync); err != nil {
			g.waits = false
			g.fail(fmt.Errorf("commit records: %w", err))
			return g
		}
	}
	k.watch.Changed(g.changed)
	k.cells.apply(g.deltas)
	k.owed.apply(g.hints)
	for _, b := range g.dropped {
		k.disk.dropBucket(b)
	}
	for _, f := range g.after {
		f()
	}
	return g
}

func (g *group) fail(err error) {
	for _, t := range g.tasks {
		t.Err = errors.Join(t.Err, err)
	}
}

// sync syncs the groups in order, so a task whose result depends on an earlier group is answered
// only after that group is durable.
func (k *committer) sync() {
	defer k.wg.Done()
	for g := range k.synced {
		if g.waits {
			begin, ended := time.Now(), k.opts.Writing()
			if err := g.batch.SyncWait(); err != nil {
				pebbleLog{k.disk.log}.Fatalf("sync: %v", err) // the next write would end in a panic, too
			}
			ended()
			k.opts.Synced(time.Since(begin), len(g.tasks))
		}
		if err := g.batch.Close(); err != nil {
			g.fail(fmt.Errorf("commit records: %w", err))
		}
		for _, t := range g.tasks {
			t.Done(t)
		}
		k.queued.Done()
	}
}

// add merges one task into the group.
func (k *committer) add(g *group, t *Write) error {
	if t.run != nil {
		return t.run(g.batch, g)
	}
	if t.Epoch != 0 && t.Epoch < k.floor && !knownbug.Is(knownbug.NoFence) {
		t.Stale = k.floor
		return nil
	}
	if t.Fresh && slices.ContainsFunc(t.Changes, k.tooLate) {
		return ErrExpired
	}
	for i := range t.Changes {
		c := &t.Changes[i]
		if c.StandIn {
			if err := k.hold(g, c); err != nil {
				return err
			}
			continue
		}
		if knownbug.Is(knownbug.LateDeletions) && !t.Fresh && c.Record.Deleted() &&
			!c.Record.Over(k.disk.now()) {
			continue
		}
		lost, err := k.mergeRecord(g, &c.Record)
		if err != nil {
			return err
		}
		if lost != nil {
			lost.Index = i
			t.Kept = append(t.Kept, *lost)
		}
		for _, node := range c.Owed {
			if err := k.owe(g, node, c, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// tooLate reports whether merging or holding a change would drop it.
func (k *committer) tooLate(c Change) bool {
	now := k.disk.now()
	return c.Record.Expired(now) || c.StandIn && c.Record.Over(now)
}

// current returns a copy of the value under key, including the group's own changes; nil if there is
// none.
func (k *committer) current(g *group, key []byte) ([]byte, error) {
	if v, ok := g.overlay[string(key)]; ok {
		return v, nil
	}
	return k.disk.value(key)
}

func (k *committer) home(r *Record) uint64 {
	if r.Deleted() {
		return never
	}
	return bucketEnd(UnixSeconds(r.Expires), k.width)
}

// mergeRecord stores r unless the stored record wins; it then reports that record.
func (k *committer) mergeRecord(g *group, r *Record) (*Kept, error) {
	if r.Expired(k.disk.now()) {
		return nil, nil
	}
	home := k.home(r)
	look := []uint64{home}
	if !r.Exact() || r.Deleted() {
		look = k.disk.live()
	}
	type found struct {
		bucket uint64
		head   header
		size   int
	}
	var there []found
	homeLooked := false
	var buf [256]byte
	for i := 0; i <= len(look); i++ {
		b := home
		if i < len(look) {
			b = look[i]
		} else if homeLooked {
			break
		}
		homeLooked = homeLooked || b == home
		key := appendRecordKey(buf[:0], b, r.Key, r.Partition)
		v, size, err := k.head(g, key)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		h, err := parseHeader(v)
		if err != nil {
			return nil, err
		}
		if h.expires != 0 && k.disk.now().Unix() >= h.expires && h.flags&FlagDeleted == 0 {
			// Expired, although its bucket is not: it neither wins nor is visible.
			there = append(there, found{b, h, size})
			continue
		}
		if h.version == r.Version {
			return nil, nil // a repetition
		}
		if Wins(h.flags, h.version, r.Flags, r.Version) {
			return &Kept{Version: h.version, Flags: h.flags}, nil
		}
		there = append(there, found{b, h, size})
	}
	if len(there) == 0 && r.Over(k.disk.now()) {
		// A late tombstone that deletes nothing would go from owner to owner forever.
		return nil, nil
	}
	var deltas []delta
	for _, f := range there {
		deltas = append(deltas, delta{k.cellOf(f.bucket, r),
			cell{sum: SumOf(r.Place, r.Name, f.head.version), count: -1, bytes: -int64(f.size)}})
		if f.bucket == home {
			continue
		}
		key := appendRecordKey(nil, f.bucket, r.Key, r.Partition)
		if err := g.batch.Delete(key, nil); err != nil {
			return nil, fmt.Errorf("replace record: %w", err)
		}
		g.overlay[string(key)] = nil
	}
	k.disk.addBucket(home)
	key := appendRecordKey(nil, home, r.Key, r.Partition)
	value := append(r.header().append(make([]byte, 0, headerLen+len(r.Value))), r.Value...)
	if err := g.batch.Set(key, value, nil); err != nil {
		return nil, fmt.Errorf("write record: %w", err)
	}
	g.overlay[string(key)] = value
	if r.Deleted() && !r.Expires.IsZero() {
		if err := g.batch.Set(tombKey(bucketEnd(r.Expires.Unix(), k.width), key), nil,
			nil); err != nil {
			return nil, fmt.Errorf("write tombstone: %w", err)
		}
	}
	if k.watch.Watches(r.Space) {
		g.changed = append(g.changed, Changed{r.Key, r.Partition})
	}
	g.deltas = append(g.deltas, deltas...)
	g.deltas = append(g.deltas, delta{k.cellOf(home, r),
		cell{SumOf(r.Place, r.Name, r.Version), 1, int64(len(key) + len(value)), r.Version.Clock}})
	return nil, nil
}

func (k *committer) cellOf(bucket uint64, r *Record) CellID {
	return CellID{Bucket: bucket, Space: r.Space, Partition: uint16(r.Partition)}
}

// head returns the header under key, nil if there is none, and the total size of key and value. It
// is valid until the next call. Most keys are new, so the search uses the bloom filters of all
// levels: Pebble's Get skips the filters of the last level, where nearly all records are, and reads
// a block of records there in vain.
func (k *committer) head(g *group, key []byte) ([]byte, int, error) {
	if v, ok := g.overlay[string(key)]; ok {
		return v, len(key) + len(v), nil
	}
	if g.reader == nil {
		it, err := k.disk.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
		if err != nil {
			return nil, 0, fmt.Errorf("read record: %w", err)
		}
		g.reader = it
	}
	if !g.reader.SeekPrefixGE(key) {
		if err := g.reader.Error(); err != nil {
			return nil, 0, fmt.Errorf("read record: %w", err)
		}
		return nil, 0, nil
	}
	v, err := g.reader.ValueAndErr()
	if err != nil {
		return nil, 0, fmt.Errorf("read record: %w", err)
	}
	return v[:min(len(v), headerLen)], len(key) + len(v), nil
}

// hold keeps a copy for owners that are away.
func (k *committer) hold(g *group, c *Change) error {
	if c.Record.Over(k.disk.now()) {
		return nil
	}
	value := append(c.Record.header().append(make([]byte, 0, headerLen+len(c.Record.Value))),
		c.Record.Value...)
	for _, node := range c.Owed {
		if err := k.owe(g, node, c, value); err != nil {
			return err
		}
	}
	return nil
}

// Flags of a hint, its first byte.
const (
	hintCopy  = 1 // the record follows; else it is among this store's own records
	hintUnder = 2
)

// owe notes that node needs the record from this master; copy is the record if this master is not
// an owner.
func (k *committer) owe(g *group, node string, c *Change, copy []byte) error {
	key := hintKey(node, c.Record.Key, c.Record.Partition)
	old, err := k.current(g, key)
	if err != nil {
		return err
	}
	var flags byte
	if c.Under {
		flags |= hintUnder
	}
	if copy != nil {
		flags |= hintCopy
		if old != nil && old[0]&hintCopy != 0 {
			h, err := parseHeader(old[1:])
			if err != nil {
				return err
			}
			if h.version == c.Record.Version ||
				Wins(h.flags, h.version, c.Record.Flags, c.Record.Version) {
				return nil
			}
		}
	} else if old != nil {
		if old[0]&hintCopy != 0 || old[0] == flags {
			return nil
		}
	}
	value := append([]byte{flags}, copy...)
	if err := g.batch.Set(key, value, nil); err != nil {
		return fmt.Errorf("note a debt: %w", err)
	}
	g.overlay[string(key)] = value
	g.hints = append(g.hints, hintDelta{node: node, partition: c.Record.Partition, old: old,
		new: value})
	return nil
}
