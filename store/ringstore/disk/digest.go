package disk

// Counted is closed when the digests are whole: at once, but for a store that has to count its
// records first.
func (d *Store) Counted() <-chan struct{} { return d.cells.ready }

// Digest sums the records of a space (0: all) in the wanted partitions (nil: all), whole partitions
// or each cell, sorted. Records of buckets that ended are left out: some masters may have dropped
// them already.
func (d *Store) Digest(space Space, partitions map[int]bool, byCell bool) []Sum {
	return d.cells.digest(space, partitions, byCell, d.past())
}

// Sums returns the sums of a space by partition, as Digest does.
func (d *Store) Sums(space Space, partitions int) []Sum {
	return d.cells.sums(space, partitions, d.live(), d.past())
}

// Totals returns the number of records and the bytes of their keys and values.
func (d *Store) Totals() (records, bytes int64) { return d.cells.totals() }
