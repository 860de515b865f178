package disk

// Counted is closed when the digests are complete: at once, unless the store has to count its
// records first.
func (d *Store) Counted() <-chan struct{} { return d.cells.ready }

// Digest sums the records of a space (0: all) in the wanted partitions (nil: all), sorted, by whole
// partitions or cell by cell. It leaves out buckets that have ended, which some masters may have
// dropped already.
func (d *Store) Digest(space Space, partitions map[int]bool, byCell bool) []Sum {
	return d.cells.digest(space, partitions, byCell, d.past())
}

// Sums returns the sums of a space by partition, as Digest does.
func (d *Store) Sums(space Space, partitions int) []Sum {
	return d.cells.sums(space, partitions, d.live(), d.past())
}

// Totals returns the number of records and the bytes of their keys and values.
func (d *Store) Totals() (records, bytes int64) { return d.cells.totals() }
