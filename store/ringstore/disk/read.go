package disk

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// pageBytes is how much of the disk is read at once.
const pageBytes = 256 << 10

// Get returns the record under k, including tombstones, excluding expired records.
func (d *Store) Get(k Key, partition int) (Record, bool, error) {
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
		if r.Expired(now) {
			continue
		}
		if !found || Wins(r.Flags, r.Version, best.Flags, best.Version) {
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
	return Record{Key: k, Value: v[headerLen:], Version: h.version, Expires: SecondsTime(h.expires),
		Partition: partition, Flags: h.flags}, nil
}

// span is a part of one bucket in key order.
type span struct{ from, to []byte }

// spans lists the parts of the key space with the wanted partitions (nil: all) of a space, in key
// order.
func (d *Store) spans(space Space, partitions []int) []span {
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

// page reads records of a span in key order until it has about limit bytes; next is where to
// continue, nil at the end. It closes the iterator before it returns, so a slow reader pins
// nothing.
func (d *Store) page(s span, limit int, keysOnly bool, keep func(Key) bool) (records []Record,
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
		seen += 64 // so a page that skips everything ends too
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
		if r.Expired(now) {
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

// each calls fn with pages of the records in the spans.
func (d *Store) each(spans []span, keysOnly bool, keep func(Key) bool,
	fn func([]Record) error) error {
	for _, s := range spans {
		for {
			records, next, err := d.page(s, pageBytes, keysOnly, keep)
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

// Copies returns this disk's copies of k: the record, and a copy held for an absent owner; at most
// two.
func (d *Store) Copies(k Key, partition int) ([]Record, error) {
	r, found, err := d.Get(k, partition)
	if err != nil {
		return nil, err
	}
	var out []Record
	if found {
		out = append(out, r)
	}
	if d.owed.held(partition) {
		held, ok, err := d.heldFor(d.OwingNodes(), k, partition)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, held)
		}
	}
	return out, nil
}

// List calls fn with pages of the records of a place whose names begin with k.Name, including
// tombstones and copies held for others, in no particular order; with keysOnly without their
// values.
func (d *Store) List(k Key, partition int, keysOnly bool, fn func([]Record) error) error {
	var spans []span
	for _, b := range d.live() {
		prefix := appendRecordKey(nil, b, k, partition)
		spans = append(spans, span{prefix, after(prefix)})
	}
	if err := d.each(spans, keysOnly, nil, fn); err != nil {
		return err
	}
	if !d.owed.held(partition) {
		return nil
	}
	for _, node := range d.OwingNodes() {
		prefix := hintKey(node, k, partition)
		if err := d.heldIn(span{prefix, after(prefix)}, fn); err != nil {
			return err
		}
	}
	return nil
}

// Scan calls fn with pages of the records of a space, in some partitions (nil: all), for which keep
// returns true (nil: all), including tombstones, in no particular order; with keysOnly without
// their values.
func (d *Store) Scan(space Space, partitions []int, keep func(Key) bool, keysOnly bool,
	fn func([]Record) error) error {
	return d.each(d.spans(space, partitions), keysOnly, keep, fn)
}

// Begins makes a keep for Scan that selects names with a prefix; nil for an empty prefix.
func Begins(prefix string) func(Key) bool {
	if prefix == "" {
		return nil
	}
	return func(k Key) bool { return strings.HasPrefix(k.Name, prefix) }
}

// ScanCells is Scan for given cells.
func (d *Store) ScanCells(cells []CellID, keysOnly bool, fn func([]Record) error) error {
	spans := make([]span, len(cells))
	for i, id := range cells {
		prefix := appendCellKey(nil, id.Bucket, id.Space, int(id.Partition))
		spans[i] = span{prefix, after(prefix)}
	}
	return d.each(spans, keysOnly, nil, fn)
}
