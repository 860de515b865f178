package disk

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Probe reads and changes a store's files behind its back; only tests use it.
type Probe struct{ d *Store }

// Probe returns the Probe of an open store.
func (d *Store) Probe() Probe { return Probe{d} }

// Lose removes, without a trace, a record that does not expire, as damage does.
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

// Flush writes the tables in memory to disk.
func (p Probe) Flush() error { return p.d.db.Flush() }

// Compact moves all tables to the last level.
func (p Probe) Compact(ctx context.Context) error {
	return p.d.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
}

// Compacting returns an error while tables are compacted, or wait for their removal after that.
func (p Probe) Compacting() error {
	db, done, err := p.d.use()
	if err != nil {
		return err
	}
	defer done()
	m := db.Metrics()
	if m.Compact.NumInProgress+m.Table.ObsoleteCount+m.Table.ZombieCount > 0 {
		return fmt.Errorf("%d compactions, %d old tables, %d of them are read",
			m.Compact.NumInProgress, m.Table.ObsoleteCount+m.Table.ZombieCount,
			m.Table.ZombieCount)
	}
	return nil
}

// Buckets returns the number of time buckets with records, plus one for records without expiry.
func (p Probe) Buckets() int { return len(p.d.live()) }

// CheckDigests reads all records and reports digests that don't match. The newest version of a
// cell's digest may belong to a record that was removed.
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
