package ringstore

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// cellID names the records of one space and partition that expire in the same bucket.
type cellID struct {
	bucket    uint64
	space     Space
	partition uint16
}

// cell sums over a cell's records. Sum is the xor of their sums: independent of order, changed by
// adding and taking away alike.
type cell struct {
	sum    uint64
	count  int64
	bytes  int64
	newest uint64 // clock of the latest version that was ever put there
}

func (x cell) empty() bool { return x.sum == 0 && x.count == 0 && x.bytes == 0 }

// plus adds a change.
func (x cell) plus(d cell) cell {
	return cell{x.sum ^ d.sum, x.count + d.count, x.bytes + d.bytes, max(x.newest, d.newest)}
}

// cells are the digests of all that is on this disk; about 40 bytes for each of at most
// buckets*spaces*partitions cells. The committer changes them as it writes.
type cells struct {
	ready chan struct{} // closed when the records found at start are counted, by counted
	once  sync.Once

	mu   sync.Mutex // guards byID
	byID map[cellID]cell
}

func newCells() *cells {
	return &cells{ready: make(chan struct{}), byID: map[cellID]cell{}}
}

// delta is one change to a cell.
type delta struct {
	id   cellID
	cell cell // sum to xor, count and bytes to add
}

func (c *cells) apply(deltas []delta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range deltas {
		x := c.byID[d.id].plus(d.cell)
		if x.empty() {
			delete(c.byID, d.id)
			continue
		}
		c.byID[d.id] = x
	}
}

// counted notes that the digests are whole.
func (c *cells) counted() { c.once.Do(func() { close(c.ready) }) }

// reset forgets everything: there are no records any more.
func (c *cells) reset() {
	c.mu.Lock()
	clear(c.byID)
	c.mu.Unlock()
	c.counted()
}

// get returns what is known of one cell.
func (c *cells) get(id cellID) cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// all returns all cells.
func (c *cells) all() map[cellID]cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byID)
}

// drop forgets the cells that gone names.
func (c *cells) drop(gone func(cellID) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.byID {
		if gone(id) {
			delete(c.byID, id)
		}
	}
}

// sumOf is one line of a digest; bucket is 0 in a sum over a whole partition.
type sumOf struct {
	cellID
	sum   uint64
	count int64
}

// digest sums the cells of a space (0: all) in the wanted partitions (nil: all), whole partitions
// or each cell, sorted. Cells of buckets that ended at or before past are left out: some masters
// may have dropped them already.
func (c *cells) digest(space Space, partitions map[int]bool, byCell bool, past uint64) []sumOf {
	c.mu.Lock()
	sums := map[cellID]cell{}
	for id, x := range c.byID {
		if space != 0 && id.space != space || id.bucket <= past || partitions != nil &&
			!partitions[int(id.partition)] {
			continue
		}
		if !byCell {
			id = cellID{partition: id.partition}
		}
		s := sums[id]
		s.sum ^= x.sum
		s.count += x.count
		sums[id] = s
	}
	c.mu.Unlock()
	out := make([]sumOf, 0, len(sums))
	for id, x := range sums {
		if x.count != 0 || x.sum != 0 {
			out = append(out, sumOf{id, x.sum, x.count})
		}
	}
	slices.SortFunc(out, func(a, b sumOf) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.space, b.space),
			cmp.Compare(a.partition, b.partition))
	})
	return out
}

// sums returns the sums of a space by partition, over the given buckets that end after past.
func (c *cells) sums(space Space, partitions int, buckets []uint64, past uint64) []sumOf {
	out := make([]sumOf, partitions)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range buckets {
		if b <= past {
			continue
		}
		for p := range out {
			x := c.byID[cellID{b, space, uint16(p)}]
			out[p].sum ^= x.sum
			out[p].count += x.count
		}
	}
	return out
}

// totals adds up everything.
func (c *cells) totals() (records, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.byID {
		records += x.count
		bytes += x.bytes
	}
	return records, bytes
}

// list returns the ids for which keep says yes.
func (c *cells) list(keep func(cellID) bool) []cellID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []cellID
	for id := range c.byID {
		if keep(id) {
			out = append(out, id)
		}
	}
	return out
}
