package ringstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// owed counts what this master holds for absent owners; the hints themselves are on disk.
type owed struct {
	mu     sync.Mutex     // guards all below
	nodes  map[string]int // hints for each node
	copies map[int]int    // by partition: records held here as stand-in
	under  int
}

// hintDelta is the change of one hint: old nil for a new one, new nil for one that was handed over.
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

func (o *owed) has(node string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodes[node] > 0
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

// heldPartitions returns those of which copies are held.
func (o *owed) heldPartitions() map[int]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.copies)
}

func (o *owed) totals() (hints, under int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.nodes {
		hints += n
	}
	return hints, o.under
}

// loadOwed counts the hints on disk. Their number is bounded by what was written while an owner was
// away.
func loadOwed(d *disk) (*owed, error) {
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

// owedSince returns when the first of the hints for node was noted; the zero time if nothing is
// owed.
func (d *disk) owedSince(node string) (time.Time, error) {
	v, err := d.value(sinceKey(node))
	if err != nil {
		return time.Time{}, fmt.Errorf("read debts to %s: %w", node, err)
	}
	if len(v) != 8 {
		return time.Time{}, nil
	}
	return time.Unix(int64(binary.BigEndian.Uint64(v)), 0).UTC(), nil
}

// hint is one record on its way to an owner that was away.
type hint struct {
	key       []byte
	value     []byte // as on disk
	rec       Record
	gone      bool // nothing to hand over: expired or no longer here
	partition int
}

// hints returns up to limit bytes of the hints for node, with their records.
func (d *disk) hints(node string, limit int) ([]hint, error) {
	db, done, err := d.use()
	if err != nil {
		return nil, err
	}
	defer done()
	prefix := hintPrefix(node)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, fmt.Errorf("read hints: %w", err)
	}
	defer it.Close()
	var out []hint
	size := 0
	for ok := it.First(); ok && size < limit && len(out) < groupTasks; ok = it.Next() {
		_, k, partition, err := parseHintKey(it.Key())
		if err != nil {
			return nil, err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("read hints: %w", err)
		}
		h := hint{key: append([]byte(nil), it.Key()...), value: append([]byte(nil), v...),
			partition: partition}
		if len(v) > 0 && v[0]&hintCopy != 0 {
			h.rec, err = decodeValue(h.value[1:], k, partition)
			h.gone = err == nil && h.rec.over(d.now())
		} else {
			var found bool
			h.rec, found, err = d.get(k, partition)
			h.gone = !found
		}
		if err != nil {
			return nil, err
		}
		size += len(h.rec.Value) + len(h.key) + 64
		out = append(out, h)
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("read hints: %w", err)
	}
	return out, nil
}

// heldFor returns the copy of a record that is held for one of the nodes, if there is one.
func (d *disk) heldFor(nodes []string, k Key, partition int) (Record, bool, error) {
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
		if !r.expired(d.now()) && (!found || wins(r.flags, r.Version, best.flags, best.Version)) {
			best, found = r, true
		}
	}
	return best, found, nil
}

// eachHeld calls fn with every copy held for others for which keep says yes. It reads all hints of
// all nodes, which there are only while an owner is away.
func (d *disk) eachHeld(keep func(k Key, partition int) bool, fn func([]Record) error) error {
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

func (d *disk) heldPage(from []byte, keep func(Key, int) bool) (page []Record, next []byte,
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
		if !r.expired(d.now()) {
			size += len(v)
			page = append(page, r)
		}
	}
	if err := it.Error(); err != nil {
		return nil, nil, fmt.Errorf("read hints: %w", err)
	}
	return page, next, nil
}
