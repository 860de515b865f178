package disk

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Probe looks behind a store's back, for tests: nothing else uses it.
type Probe struct{ d *Store }

// Probe returns that of an open store.
func (d *Store) Probe() Probe { return Probe{d} }

// Lose removes a record that never expires without a trace, as damage does.
func (p Probe) Lose(k Key, partition int) error {
	return p.d.db.Delete(appendRecordKey(nil, never, k, partition), pebble.Sync)
}

// Count returns the number of keys on disk that begin with a byte; see keys.go.
func (p Probe) Count(kind byte) (n int, err error) {
	it, err := p.d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kind},
		UpperBound: []byte{kind + 1}})
	if err != nil {
		return 0, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n, it.Close()
}

// Flush brings what is in memory into tables.
func (p Probe) Flush() error { return p.d.db.Flush() }

// Compact brings all tables to the last level.
func (p Probe) Compact(ctx context.Context) error {
	return p.d.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
}

// Buckets returns the number of time buckets with records, and one for those that never expire.
func (p Probe) Buckets() int { return len(p.d.live()) }

// CheckDigests reads all records and reports digests that are not theirs; what is newest in a cell
// may be that of a record which is gone.
func (p Probe) CheckDigests() error {
	<-p.d.Counted()
	other := &Store{cells: newCells(), clock: NewClock(time.Now), life: context.Background()}
	snapshot := p.d.db.NewSnapshot()
	defer snapshot.Close()
	if err := other.countCells(snapshot); err != nil {
		return err
	}
	forget := func(m map[CellID]cell) map[CellID]cell {
		for id, x := range m {
			x.newest = 0
			m[id] = x
		}
		return m
	}
	if got, want := forget(p.d.cells.all()), forget(other.cells.all()); !maps.Equal(got, want) {
		return fmt.Errorf("%d cells %v, want %d %v", len(got), got, len(want), want)
	}
	return nil
}
