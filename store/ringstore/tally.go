package ringstore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The digests of all cells are kept on disk, each in the batch that changes it, so that a start
// reads them and no record. A release that does not know them leaves them as they are. So the note
// that they hold names the OPTIONS file, of which each opening by Pebble makes a new one: opened by
// somebody else in between, they are counted again.
const (
	tallyMeta    = "cells"
	tallyVersion = "1 "
	tallyLen     = 8 + 8 + 8 + 8 // sum, count, bytes, newest
)

func tallyKey(id cellID) []byte {
	return binary.BigEndian.AppendUint16(append(tallyBucket(id.bucket), byte(id.space)),
		id.partition)
}

// tallyBucket is what the keys of a bucket's cells begin with.
func tallyBucket(bucket uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kindTally}, bucket)
}

func parseTally(key, value []byte) (cellID, cell, error) {
	if len(key) != 1+8+1+2 || len(value) != tallyLen {
		return cellID{}, cell{}, fmt.Errorf("digest of %d and %d bytes: %w", len(key), len(value),
			ErrCorrupt)
	}
	id := cellID{binary.BigEndian.Uint64(key[1:]), Space(key[9]), binary.BigEndian.Uint16(key[10:])}
	return id, cell{
		sum: binary.BigEndian.Uint64(value), count: int64(binary.BigEndian.Uint64(value[8:])),
		bytes:  int64(binary.BigEndian.Uint64(value[16:])),
		newest: binary.BigEndian.Uint64(value[24:]),
	}, nil
}

// write puts a cell's digest into a batch.
func (x cell) write(b *pebble.Batch, id cellID) error {
	if x.empty() {
		return b.Delete(tallyKey(id), nil)
	}
	v := binary.BigEndian.AppendUint64(make([]byte, 0, tallyLen), x.sum)
	v = binary.BigEndian.AppendUint64(v, uint64(x.count))
	v = binary.BigEndian.AppendUint64(v, uint64(x.bytes))
	return b.Set(tallyKey(id), binary.BigEndian.AppendUint64(v, x.newest), nil)
}

// tally puts the digests that a group changes into its batch, all of them where they were not on
// disk before.
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
	changed := make(map[cellID]cell, len(g.deltas))
	for _, d := range g.deltas {
		if slices.Contains(g.dropped, d.id.bucket) {
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

// loadCells reads the digests from disk; found is false if there are none that hold.
func (s *Store) loadCells() (found bool, err error) {
	note, err := s.disk.meta(tallyMeta)
	if err != nil || s.disk.openedAs == "" || string(note) != tallyVersion+s.disk.openedAs {
		return false, err
	}
	it, err := s.disk.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindTally},
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
		s.cells.byID[id] = x
		s.clock.observe(x.newest)
	}
	if err := it.Error(); err != nil {
		return false, fmt.Errorf("read digests: %w", err)
	}
	return true, s.disk.db.Set(metaKey(tallyMeta), []byte(tallyVersion+s.disk.openAs), pebble.Sync)
}

// keepCells puts all digests on disk, which have just been counted, and has each commit keep them
// from now on.
func (s *Store) keepCells() error {
	return s.commit.do(s.life, &task{run: func(b *pebble.Batch, g *group) error {
		g.tallied = true
		return b.Set(metaKey(tallyMeta), []byte(tallyVersion+s.disk.openAs), nil)
	}})
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
