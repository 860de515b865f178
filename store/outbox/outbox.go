package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/cluster/level"
	"clustermaster/store/ringstore/diskfs"
	"clustermaster/store/seal"
)

// ErrFull refuses an item because there is no room for it.
var ErrFull = errors.New("the outbox is full")

// DefaultSize is the default of Options.Size.
const DefaultSize = 1 << 30

// stepsOfSize is which part of the size becomes free when items give way.
const stepsOfSize = 64

// perItem is the cost of an item besides its content, in bytes.
const perItem = 64

// Options of a Box.
type Options struct {
	Size int64        // of all waiting items, in bytes; 0 means DefaultSize
	Room func() error // returns an error while the disk is full; nil: never full
	Seal *seal.Key    // seals all files; nil leaves them in plain text

	fs vfs.FS // set by tests
}

// Item is an item that waits in a queue.
type Item struct {
	Value []byte
	At    uint64 // place in the queue
}

// size is what an item counts.
func (i Item) size() int64 { return int64(len(i.Value)) + perItem }

// Box is a set of queues on disk. It is safe for concurrent use.
type Box struct {
	db   *pebble.DB
	opts Options
	m    *metrics
	log  *slog.Logger

	// For syncs: the number of puts, and how many of them are on stable storage.
	puts    atomic.Uint64
	syncing sync.Mutex // held during a sync
	synced  uint64     // guarded by syncing

	mu     sync.Mutex // guards the fields below
	queues map[string]*queue
	bytes  int64 // of all queues
	closed bool
}

// queue is the account of one queue. Its items lie below next; some of those may be gone.
type queue struct {
	next  uint64
	count int
	bytes int64
	more  chan struct{} // holds a notice of new items
	spare bool          // its items give way to those of other queues
}

// A key is a kind, the length of the queue's name, the name, and the place in eight bytes.
const (
	kindItem = 'i'
	kindMeta = 'm'
)

// format is the layout of keys and items. A box with another format is refused.
var format = strconv.Itoa(level.FormatAt("outbox", since))

// since is the level that introduced the outbox.
const since = 2

// Open opens or creates the box in a folder. log and reg may be nil.
func Open(dir string, o Options, log *slog.Logger, reg prometheus.Registerer) (*Box, error) {
	if o.Size <= 0 {
		o.Size = DefaultSize
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	files := o.fs
	if files == nil {
		if err := diskfs.MakePrivate(dir); err != nil {
			return nil, err
		}
		files = diskfs.Private{FS: vfs.Default}
	}
	files = diskfs.NewPatient(files, log)
	if o.Seal != nil {
		files = diskfs.Sealed{FS: files, Key: o.Seal}
	}
	cache := pebble.NewCache(1 << 20)
	defer cache.Unref()
	db, err := pebble.Open(dir, &pebble.Options{
		Cache: cache, FS: files, Logger: quiet{log}, MemTableSize: 4 << 20, MaxOpenFiles: 32,
		FormatMajorVersion:         pebble.FormatMajorVersion(level.FormatAt("pebble", since)),
		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
	})
	if err != nil {
		return nil, fmt.Errorf("open outbox %s: %w", dir, err)
	}
	b := &Box{db: db, opts: o, queues: make(map[string]*queue), m: newMetrics(reg), log: log}
	if err := b.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("open outbox %s: %w", dir, err), db.Close())
	}
	if reg != nil {
		reg.MustRegister(b)
	}
	return b, nil
}

// read checks the format and counts the waiting items.
func (b *Box) read() error {
	got, closer, err := b.db.Get([]byte{kindMeta})
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		err = b.db.Set([]byte{kindMeta}, []byte(format), pebble.Sync)
	case err == nil && string(got) != format:
		err = fmt.Errorf("it has format %q, this program knows %q; use the program that wrote it",
			got, format)
	}
	if closer != nil {
		err = errors.Join(err, closer.Close())
	}
	if err != nil {
		return err
	}
	it, err := b.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindItem},
		UpperBound: []byte{kindItem + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		name, at, good := splitKey(it.Key())
		if !good {
			return fmt.Errorf("key %q is damaged", it.Key())
		}
		value := it.LazyValue()
		size := int64(value.Len()) + perItem
		q := b.queue(name)
		q.next, q.count, q.bytes, b.bytes = at+1, q.count+1, q.bytes+size, b.bytes+size
	}
	return it.Error()
}

func itemKey(name string, at uint64) []byte {
	key := append([]byte{kindItem, byte(len(name))}, name...)
	return binary.BigEndian.AppendUint64(key, at)
}

func splitKey(key []byte) (name string, at uint64, ok bool) {
	if len(key) < 2 || len(key) != 2+int(key[1])+8 {
		return "", 0, false
	}
	n := 2 + int(key[1])
	return string(key[2:n]), binary.BigEndian.Uint64(key[n:]), true
}

// queue returns a queue; it creates a missing one. The caller holds mu or is alone.
func (b *Box) queue(name string) *queue {
	q := b.queues[name]
	if q == nil {
		q = &queue{more: make(chan struct{}, 1)}
		b.queues[name] = q
	}
	return q
}

// maxName bounds the name of a queue, in bytes.
const maxName = 200

// Put adds items to a queue, all or none. They are on stable storage once a Sync that began later
// has returned. Errors: ErrFull, that of Options.Room, and those of the disk.
func (b *Box) Put(name string, values ...[]byte) error {
	if len(name) > maxName {
		return fmt.Errorf("queue %.40q: its name is longer than %d bytes", name, maxName)
	}
	var size int64
	for _, v := range values {
		size += int64(len(v)) + perItem
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.room(size); err != nil {
		b.m.refused.WithLabelValues(name).Add(float64(len(values)))
		return fmt.Errorf("put into queue %s: %w", name, err)
	}
	q := b.queue(name)
	batch := b.db.NewBatch()
	defer batch.Close()
	for i, v := range values {
		if err := batch.Set(itemKey(name, q.next+uint64(i)), v, nil); err != nil {
			return fmt.Errorf("put into queue %s: %w", name, err)
		}
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("put into queue %s: %w", name, err)
	}
	q.next += uint64(len(values))
	q.count += len(values)
	q.bytes += size
	b.bytes += size
	b.puts.Add(1)
	select {
	case q.more <- struct{}{}:
	default:
	}
	return nil
}

func (b *Box) room(size int64) error {
	if b.closed {
		return pebble.ErrClosed
	}
	if b.opts.Room != nil {
		if err := b.opts.Room(); err != nil {
			return err
		}
	}
	if b.bytes+size > b.opts.Size {
		return b.giveWay(size)
	}
	return nil
}

// Spare lets the oldest items of a queue give way where there is no room for others. Items set
// aside do so too, after those of spare queues.
func (b *Box) Spare(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue(name).spare = true
}

// giveWay makes room for so many bytes, or removes nothing.
func (b *Box) giveWay(size int64) error {
	var spare, aside []string
	kept := b.bytes
	for _, name := range slices.Sorted(maps.Keys(b.queues)) {
		switch {
		case b.queues[name].spare:
			spare = append(spare, name)
		case strings.HasPrefix(name, Aside("")):
			aside = append(aside, name)
		default:
			continue
		}
		kept -= b.queues[name].bytes
	}
	if kept+size > b.opts.Size {
		return ErrFull
	}
	// The log gets a line for each such step, so a step frees more than one item needs.
	want := max(0, min(b.opts.Size-size, b.opts.Size-b.opts.Size/stepsOfSize))
	for _, name := range append(spare, aside...) {
		before := b.queues[name].count
		var from uint64 // what was removed takes long to pass
		for b.bytes > want && b.queues[name].count > 0 {
			items, err := b.Peek(name, from, 64, b.bytes-want)
			if err != nil {
				return err
			}
			enough := 0
			for size := int64(0); enough < len(items) && size < b.bytes-want; enough++ {
				size += items[enough].size()
			}
			if err := b.move(name, items[:enough], ""); err != nil {
				return err
			}
			from = items[enough-1].At + 1
		}
		if n := before - b.queues[name].count; n > 0 {
			b.m.refused.WithLabelValues(name).Add(float64(n))
			b.log.Warn("waiting items were removed, because those of other returners need the room",
				"component", "outbox", "queue", name, "n", n, "waiting", b.queues[name].count)
		}
	}
	return nil
}

// Sync returns when everything put before is on stable storage. Concurrent callers share one write
// to the disk.
func (b *Box) Sync() error {
	want := b.puts.Load()
	b.syncing.Lock()
	defer b.syncing.Unlock()
	if b.synced >= want {
		return nil
	}
	now := b.puts.Load()
	if err := b.db.LogData([]byte{kindMeta}, pebble.Sync); err != nil {
		return fmt.Errorf("sync outbox: %w", err)
	}
	b.synced = now
	return nil
}

// Wait returns a channel that gets a notice when something was put into a queue since the last
// notice.
func (b *Box) Wait(name string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue(name).more
}

// Len is the number of items that wait in a queue.
func (b *Box) Len(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue(name).count
}

// Queues lists the queues with waiting items.
func (b *Box) Queues() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for name, q := range b.queues {
		if q.count > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Peek returns the first items of a queue from a place on (Item.At): at most count, and at most
// bytes unless the first item alone is larger.
func (b *Box) Peek(name string, from uint64, count int, bytes int64) ([]Item, error) {
	it, err := b.db.NewIter(&pebble.IterOptions{LowerBound: itemKey(name, from),
		UpperBound: append(itemKey(name, ^uint64(0)), 0)})
	if err != nil {
		return nil, fmt.Errorf("read queue %s: %w", name, err)
	}
	defer it.Close()
	var out []Item
	for ok := it.First(); ok && len(out) < count; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("read queue %s: %w", name, err)
		}
		if bytes -= int64(len(v)); bytes < 0 && len(out) > 0 {
			break
		}
		_, at, _ := splitKey(it.Key())
		out = append(out, Item{Value: append([]byte(nil), v...), At: at})
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("read queue %s: %w", name, err)
	}
	return out, nil
}

// Take removes items that were handed over.
func (b *Box) Take(name string, items ...Item) error { return b.remove(name, items, false) }

// Aside is the name of the queue in which SetAside puts the items of another.
func Aside(name string) string { return "aside/" + name }

// SetAside moves items to the queue Aside. All items set aside may take a quarter of the size; what
// exceeds that is removed.
func (b *Box) SetAside(name string, items ...Item) error { return b.remove(name, items, true) }

func (b *Box) remove(name string, items []Item, aside bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	counter, to := b.m.taken, ""
	if aside {
		counter = b.m.aside
		size := b.asideBytes()
		for _, i := range items {
			size += i.size()
		}
		if size <= b.opts.Size/4 {
			to = Aside(name)
		}
	}
	if err := b.move(name, items, to); err != nil {
		return err
	}
	counter.WithLabelValues(name).Add(float64(len(items)))
	return nil
}

// move removes items from a queue and appends them to another one; "" for none. The caller holds
// mu.
func (b *Box) move(name string, items []Item, to string) error {
	into := new(queue)
	if to != "" {
		into = b.queue(to)
	}
	batch := b.db.NewBatch()
	defer batch.Close()
	var size int64
	for n, i := range items {
		size += i.size()
		err := batch.Delete(itemKey(name, i.At), nil)
		if to != "" && err == nil {
			err = batch.Set(itemKey(to, into.next+uint64(n)), i.Value, nil)
		}
		if err != nil {
			return fmt.Errorf("take from queue %s: %w", name, err)
		}
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("take from queue %s: %w", name, err)
	}
	q := b.queue(name)
	q.count, q.bytes = q.count-len(items), q.bytes-size
	into.next, into.count, into.bytes = into.next+uint64(len(items)), into.count+len(items), into.bytes+size
	if to == "" {
		b.bytes -= size
	}
	return nil
}

func (b *Box) asideBytes() int64 {
	var sum int64
	for name, q := range b.queues {
		if strings.HasPrefix(name, Aside("")) {
			sum += q.bytes
		}
	}
	return sum
}

// Close closes the box. Waiting items are there again after the next Open.
func (b *Box) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.syncing.Lock()
	defer b.syncing.Unlock()
	return b.db.Close()
}

// quiet drops Pebble's news and logs its errors.
type quiet struct{ log *slog.Logger }

func (q quiet) Infof(format string, args ...any) {}
func (q quiet) Errorf(format string, args ...any) {
	q.log.Error("outbox: " + fmt.Sprintf(format, args...))
}
func (q quiet) Fatalf(format string, args ...any) {
	q.log.Error("outbox can't be written: " + fmt.Sprintf(format, args...))
	panic(fmt.Sprintf(format, args...))
}
