package disk

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The digests of all cells are kept on disk. Each batch that changes one also writes it, so that a
// start reads the digests and no records. A release that does not know them leaves them unchanged.
// So the note that they are valid names the OPTIONS file, of which Pebble makes a new one at each
// opening: if another release opened the store in between, the records are counted again.
const (
	tallyNote    = "cells"
	tallyVersion = "1 "
	tallyLen     = 8 + 8 + 8 + 8 // sum, count, bytes, newest
)

func tallyKey(id CellID) []byte {
	return binary.BigEndian.AppendUint16(append(tallyBucket(id.Bucket), byte(id.Space)),
		id.Partition)
}

// tallyBucket is the common start of the keys of a bucket's cells.
func tallyBucket(bucket uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kindTally}, bucket)
}

func parseTally(key, value []byte) (CellID, cell, error) {
	if len(key) != 1+8+1+2 || len(value) != tallyLen {
		return CellID{}, cell{}, fmt.Errorf("digest of %d and %d bytes: %w", len(key), len(value),
			ErrCorrupt)
	}
	id := CellID{binary.BigEndian.Uint64(key[1:]), Space(key[9]), binary.BigEndian.Uint16(key[10:])}
	return id, cell{
		sum: binary.BigEndian.Uint64(value), count: int64(binary.BigEndian.Uint64(value[8:])),
		bytes:  int64(binary.BigEndian.Uint64(value[16:])),
		newest: binary.BigEndian.Uint64(value[24:]),
	}, nil
}

// write adds a cell's digest to a batch.
func (x cell) write(b *pebble.Batch, id CellID) error {
	if x.empty() {
		return b.Delete(tallyKey(id), nil)
	}
	v := binary.BigEndian.AppendUint64(make([]byte, 0, tallyLen), x.sum)
	v = binary.BigEndian.AppendUint64(v, uint64(x.count))
	v = binary.BigEndian.AppendUint64(v, uint64(x.bytes))
	return b.Set(tallyKey(id), binary.BigEndian.AppendUint64(v, x.newest), nil)
}

// tally adds the digests that a group changes to its batch, or all of them if they were not on disk
// before.
func (k *committer) tally(g *group) error {
	if g.tallied {
		k.kept = true
		for id, x := range k.cells.all() {
			if err := x.write(g.batch, id); err != nil {
				return err
			}
		}
	}
	if !k.kept {
		return nil
	}
	changed := make(map[CellID]cell, len(g.deltas))
	for _, d := range g.deltas {
		if slices.Contains(g.dropped, d.id.Bucket) {
			continue
		}
		x, ok := changed[d.id]
		if !ok {
			x = k.cells.get(d.id)
		}
		changed[d.id] = x.plus(d.cell)
	}
	for id, x := range changed {
		if err := x.write(g.batch, id); err != nil {
			return err
		}
	}
	return nil
}

// loadCells reads the digests from disk; found is false if there are no valid ones.
func (d *Store) loadCells() (found bool, err error) {
	note, err := d.Note(tallyNote)
	if err != nil || d.openedAs == "" || string(note) != tallyVersion+d.openedAs {
		return false, err
	}
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindTally},
		UpperBound: []byte{kindTally + 1}})
	if err != nil {
		return false, fmt.Errorf("read digests: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return false, fmt.Errorf("read digests: %w", err)
		}
		id, x, err := parseTally(it.Key(), v)
		if err != nil {
			return false, err
		}
		d.cells.byID[id] = x
		d.clock.Observe(x.newest)
	}
	if err := it.Error(); err != nil {
		return false, fmt.Errorf("read digests: %w", err)
	}
	return true, d.db.Set(noteKey(tallyNote), []byte(tallyVersion+d.openAs), pebble.Sync)
}

// keepCells writes all digests, which have just been counted, to disk, and makes each commit update
// them from now on.
func (d *Store) keepCells() error {
	return d.Commit(d.life, &Write{run: func(b *pebble.Batch, g *group) error {
		g.tallied = true
		return b.Set(noteKey(tallyNote), []byte(tallyVersion+d.openAs), nil)
	}})
}

// countCells counts the records that were on disk when the store opened, and moves the clock past
// all their versions. It reads every record: a store does so only when it has no valid digests on
// disk.
func (d *Store) countCells(snapshot *pebble.Snapshot) error {
	it, err := snapshot.NewIter(&pebble.IterOptions{LowerBound: []byte{kindRecord},
		UpperBound: []byte{kindRecord + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	var deltas []delta
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		key, partition, bucket, err := parseRecordKey(it.Key())
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		h, err := parseHeader(value)
		if err != nil {
			return err
		}
		d.clock.Observe(h.version.Clock)
		deltas = append(deltas, delta{
			CellID{bucket, key.Space, uint16(partition)},
			cell{SumOf(key.Place, key.Name, h.version), 1, int64(len(it.Key()) + len(value)),
				h.version.Clock},
		})
		if n++; len(deltas) == 1024 {
			d.cells.apply(deltas)
			deltas = deltas[:0]
			select {
			case <-d.life.Done():
				return ErrClosed
			default:
			}
		}
	}
	d.cells.apply(deltas)
	return it.Error()
}

// newestOptions names the newest of Pebble's OPTIONS files in dir; "" if there is none.
func newestOptions(files vfs.FS, dir string) string {
	names, err := files.List(dir)
	if err != nil {
		return "" // there is no store yet
	}
	newest := ""
	for _, n := range names {
		if strings.HasPrefix(n, "OPTIONS-") &&
			(len(n) > len(newest) || len(n) == len(newest) && n > newest) {
			newest = n
		}
	}
	return newest
}
