package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// owed counts what this master holds for absent owners; the hints are on disk.
type owed struct {
	mu     sync.Mutex     // guards all below
	nodes  map[string]int // hints for each node
	copies map[int]int    // by partition: records held here as stand-in
	under  int
}

// hintDelta is the change of one hint: old is nil for a new one, new is nil for one that was handed
// over.
type hintDelta struct {
	node      string
	partition int
	old, new  []byte
}

func (o *owed) apply(deltas []hintDelta) {
	if len(deltas) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range deltas {
		o.count(d.node, d.partition, d.old, -1)
		o.count(d.node, d.partition, d.new, 1)
	}
}

func (o *owed) count(node string, partition int, hint []byte, n int) {
	if len(hint) == 0 {
		return
	}
	o.nodes[node] += n
	if o.nodes[node] <= 0 {
		delete(o.nodes, node)
	}
	if hint[0]&hintCopy != 0 {
		o.copies[partition] += n
		if o.copies[partition] <= 0 {
			delete(o.copies, partition)
		}
	}
	if hint[0]&hintUnder != 0 {
		o.under += n
	}
}

// reset forgets everything.
func (o *owed) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.nodes)
	clear(o.copies)
	o.under = 0
}

// pending returns how many hints wait for each node.
func (o *owed) pending() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.nodes)
}

// held reports whether copies of a partition are held for others.
func (o *owed) held(partition int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.copies[partition] > 0
}

// heldPartitions returns the partitions of which copies are held.
func (o *owed) heldPartitions() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.copies))
}

func (o *owed) totals() (hints, under int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.nodes {
		hints += n
	}
	return hints, o.under
}

// loadOwed counts the hints on disk. Their number is bounded by the writes during an owner's
// absence.
func loadOwed(d *Store) (*owed, error) {
	o := &owed{nodes: map[string]int{}, copies: map[int]int{}}
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindHint},
		UpperBound: []byte{kindHint + 1}})
	if err != nil {
		return nil, fmt.Errorf("read hints: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		node, _, partition, err := parseHintKey(it.Key())
		if err != nil {
			return nil, fmt.Errorf("read hints: %w", err)
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("read hints: %w", err)
		}
		o.count(node, partition, v[:min(1, len(v))], 1)
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("read hints: %w", err)
	}
	return o, nil
}

// Hint is one record to hand over to an owner that was away.
type Hint struct {
	Record Record
	Gone   bool // nothing to hand over: it expired or was removed
	// the record is a copy held for the owner; else it is among this master's own
	Copy bool

	key, value []byte // as on disk
	partition  int
}

// Hints returns up to limit bytes of the hints for node that come after another one (nil: from the
// first on), with their records.
func (d *Store) Hints(node string, last *Hint, limit int) ([]Hint, error) {
	db, done, err := d.use()
	if err != nil {
		return nil, err
	}
	defer done()
	prefix := hintPrefix(node)
	from := prefix
	if last != nil {
		from = append(slices.Clone(last.key), 0)
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(prefix)})
	if err != nil {
		return nil, fmt.Errorf("read hints: %w", err)
	}
	defer it.Close()
	var out []Hint
	size := 0
	for ok := it.First(); ok && size < limit && len(out) < MaxGroup; ok = it.Next() {
		_, k, partition, err := parseHintKey(it.Key())
		if err != nil {
			return nil, err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("read hints: %w", err)
		}
		h := Hint{key: append([]byte(nil), it.Key()...), value: append([]byte(nil), v...),
			partition: partition}
		if h.Copy = len(v) > 0 && v[0]&hintCopy != 0; h.Copy {
			h.Record, err = decodeValue(h.value[1:], k, partition)
			h.Gone = err == nil && h.Record.Expired(d.now()) // a late tombstone still deletes
		} else {
			var found bool
			h.Record, found, err = d.Get(k, partition)
			h.Gone = !found
		}
		if err != nil {
			return nil, err
		}
		size += len(h.Record.Value) + len(h.key) + 64
		out = append(out, h)
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("read hints: %w", err)
	}
	return out, nil
}

// heldFor returns a copy of a record that is held for one of the nodes, if any.
func (d *Store) heldFor(nodes []string, k Key, partition int) (Record, bool, error) {
	var best Record
	found := false
	for _, node := range nodes {
		v, err := d.value(hintKey(node, k, partition))
		if err != nil {
			return Record{}, false, fmt.Errorf("read hint: %w", err)
		}
		if len(v) == 0 || v[0]&hintCopy == 0 {
			continue
		}
		r, err := decodeValue(v[1:], k, partition)
		if err != nil {
			return Record{}, false, err
		}
		if !r.Expired(d.now()) && (!found || Wins(r.Flags, r.Version, best.Flags, best.Version)) {
			best, found = r, true
		}
	}
	return best, found, nil
}

// Held calls fn with every copy held for others for which keep returns true. It reads all hints of
// all nodes, which exist only while an owner is away.
func (d *Store) Held(keep func(k Key, partition int) bool, fn func([]Record) error) error {
	next := []byte{kindHint}
	for next != nil {
		page, from, err := d.heldPage(next, keep)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			if err := fn(page); err != nil {
				return err
			}
		}
		next = from
	}
	return nil
}

func (d *Store) heldPage(from []byte, keep func(Key, int) bool) (page []Record, next []byte,
	err error) {
	db, done, err := d.use()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{kindHint + 1}})
	if err != nil {
		return nil, nil, fmt.Errorf("read hints: %w", err)
	}
	defer it.Close()
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		if size >= pageBytes {
			next = append([]byte(nil), it.Key()...)
			break
		}
		_, k, partition, err := parseHintKey(it.Key())
		if err != nil {
			return nil, nil, err
		}
		size += 64
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, nil, fmt.Errorf("read hints: %w", err)
		}
		if len(v) == 0 || v[0]&hintCopy == 0 || !keep(k, partition) {
			continue
		}
		r, err := decodeValue(append([]byte(nil), v[1:]...), k, partition)
		if err != nil {
			return nil, nil, err
		}
		if !r.Expired(d.now()) {
			size += len(v)
			page = append(page, r)
		}
	}
	if err := it.Error(); err != nil {
		return nil, nil, fmt.Errorf("read hints: %w", err)
	}
	return page, next, nil
}

// heldIn calls fn with the copies in a part of the hints.
func (d *Store) heldIn(s span, fn func([]Record) error) error {
	db, done, err := d.use()
	if err != nil {
		return err
	}
	defer done()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: s.from, UpperBound: s.to})
	if err != nil {
		return fmt.Errorf("read hints: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		_, k, partition, err := parseHintKey(it.Key())
		if err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read hints: %w", err)
		}
		if len(v) == 0 || v[0]&hintCopy == 0 {
			continue
		}
		r, err := decodeValue(append([]byte(nil), v[1:]...), k, partition)
		if err != nil {
			return err
		}
		if r.Expired(d.now()) {
			continue
		}
		if err := fn([]Record{r}); err != nil {
			return err
		}
	}
	return it.Error()
}

// HeldOf calls fn with the copies that are held for others, of records of a space in a partition.
func (d *Store) HeldOf(space Space, partition int, fn func([]Record) error) error {
	for _, node := range d.OwingNodes() {
		prefix := binary.BigEndian.AppendUint16(append(hintPrefix(node), byte(space)),
			uint16(partition))
		if err := d.heldIn(span{prefix, after(prefix)}, fn); err != nil {
			return err
		}
	}
	return nil
}

// Owed returns how many hints wait for each node.
func (d *Store) Owed() map[string]int { return d.owed.pending() }

// OwingNodes returns the nodes of Owed, sorted.
func (d *Store) OwingNodes() []string { return slices.Sorted(maps.Keys(d.owed.pending())) }

// OwedTotals returns the number of hints for all nodes, and how many of them are for records
// written to fewer owners than the write quorum.
func (d *Store) OwedTotals() (hints, under int) { return d.owed.totals() }

// Holds reports whether copies of a partition are held for others.
func (d *Store) Holds(partition int) bool { return d.owed.held(partition) }

// HeldPartitions returns the partitions of which copies are held for others, in no particular
// order.
func (d *Store) HeldPartitions() []int { return d.owed.heldPartitions() }

// Strike removes hints that were handed over, unless they have changed since.
func (d *Store) Strike(ctx context.Context, node string, hints []Hint) error {
	t := &Write{}
	t.run = func(b *pebble.Batch, g *group) error {
		for i := range hints {
			now, err := d.commit.current(g, hints[i].key)
			if err != nil {
				return err
			}
			if string(now) != string(hints[i].value) {
				continue
			}
			if err := b.Delete(hints[i].key, nil); err != nil {
				return err
			}
			g.overlay[string(hints[i].key)] = nil
			g.hints = append(g.hints, hintDelta{node: node, partition: hints[i].partition,
				old: hints[i].value})
		}
		return nil
	}
	return d.Commit(ctx, t)
}
