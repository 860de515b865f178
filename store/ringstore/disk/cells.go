package disk

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// CellID names the records of one space and partition that expire in the same bucket.
type CellID struct {
	Bucket    uint64 // its end, seconds since 1970; the highest number if they don't expire
	Space     Space
	Partition uint16
}

// cell sums over a cell's records. sum is the xor of their sums, so it does not depend on order,
// and adding and removing a record change it alike.
type cell struct {
	sum    uint64
	count  int64
	bytes  int64
	newest uint64 // clock of the newest version ever stored in it
}

func (x cell) empty() bool { return x.sum == 0 && x.count == 0 && x.bytes == 0 }

// plus returns x with a change applied.
func (x cell) plus(d cell) cell {
	return cell{x.sum ^ d.sum, x.count + d.count, x.bytes + d.bytes, max(x.newest, d.newest)}
}

// cells are the digests of all records on this disk; they take about 40 bytes for each of at most
// buckets*spaces*partitions cells. The committer updates them as it writes.
type cells struct {
	ready chan struct{} // closed when the records found at start are counted, by counted
	once  sync.Once

	mu   sync.Mutex // guards byID
	byID map[CellID]cell
}

func newCells() *cells {
	return &cells{ready: make(chan struct{}), byID: map[CellID]cell{}}
}

// delta is one change to a cell.
type delta struct {
	id   CellID
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

// counted marks the digests as complete.
func (c *cells) counted() { c.once.Do(func() { close(c.ready) }) }

// reset clears the digests, after all records were removed.
func (c *cells) reset() {
	c.mu.Lock()
	clear(c.byID)
	c.mu.Unlock()
	c.counted()
}

// get returns the digest of one cell.
func (c *cells) get(id CellID) cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// all returns all cells.
func (c *cells) all() map[CellID]cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byID)
}

// drop removes the cells for which gone returns true.
func (c *cells) drop(gone func(CellID) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.byID {
		if gone(id) {
			delete(c.byID, id)
		}
	}
}

// Sum is one line of a digest; Bucket and Space are 0 in a sum over a whole partition.
type Sum struct {
	CellID
	Sum   uint64 // xor of SumOf of the records
	Count int64  // of records
}

// digest sums the cells of a space (0: all) in the wanted partitions (nil: all), sorted, by whole
// partitions or cell by cell. It leaves out buckets that ended at or before past, which some
// masters may have dropped already.
func (c *cells) digest(space Space, partitions map[int]bool, byCell bool, past uint64) []Sum {
	c.mu.Lock()
	sums := map[CellID]cell{}
	for id, x := range c.byID {
		if space != 0 && id.Space != space || id.Bucket <= past || partitions != nil &&
			!partitions[int(id.Partition)] {
			continue
		}
		if !byCell {
			id = CellID{Partition: id.Partition}
		}
		s := sums[id]
		s.sum ^= x.sum
		s.count += x.count
		sums[id] = s
	}
	c.mu.Unlock()
	out := make([]Sum, 0, len(sums))
	for id, x := range sums {
		if x.count != 0 || x.sum != 0 {
			out = append(out, Sum{id, x.sum, x.count})
		}
	}
	slices.SortFunc(out, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Space, b.Space),
			cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// sums returns the sums of a space by partition, over the given buckets that end after past.
func (c *cells) sums(space Space, partitions int, buckets []uint64, past uint64) []Sum {
	out := make([]Sum, partitions)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range buckets {
		if b <= past {
			continue
		}
		for p := range out {
			x := c.byID[CellID{b, space, uint16(p)}]
			out[p].Sum ^= x.sum
			out[p].Count += x.count
		}
	}
	return out
}

// totals sums all cells.
func (c *cells) totals() (records, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.byID {
		records += x.count
		bytes += x.bytes
	}
	return records, bytes
}

// list returns the ids for which keep returns true.
func (c *cells) list(keep func(CellID) bool) []CellID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []CellID
	for id := range c.byID {
		if keep(id) {
			out = append(out, id)
		}
	}
	return out
}
