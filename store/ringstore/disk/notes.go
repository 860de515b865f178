package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// lackNote, followed by a node, notes that the node lacks removed tombstones.
	lackNote = "lack/"
	// forgottenNote holds Forgotten.
	forgottenNote = "forgotten"
)

// SetNote stores a note whose meaning only the caller knows; it is durable on return.
func (d *Store) SetNote(ctx context.Context, name string, value []byte) error {
	return d.Commit(ctx, &Write{run: func(b *pebble.Batch, _ *group) error {
		return b.Set(noteKey(name), value, nil)
	}})
}

// Fence is SetNote, and refuses writes of rings older than epoch from then on: when it returns, no
// such write is running.
func (d *Store) Fence(ctx context.Context, epoch uint64, name string, value []byte) error {
	return d.Commit(ctx, &Write{run: func(b *pebble.Batch, _ *group) error {
		if err := b.Set(noteKey(name), value, nil); err != nil {
			return err
		}
		d.commit.floor = max(d.commit.floor, epoch)
		return nil
	}})
}

func (d *Store) loadLacking() error {
	prefix := noteKey(lackNote)
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("read who lacks tombstones: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		d.lacking[string(it.Key()[len(prefix):])] = true
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read who lacks tombstones: %w", err)
	}
	return nil
}

// noteLacking notes masters in a batch that removes tombstones.
func (d *Store) noteLacking(b *pebble.Batch, g *group, nodes []string) error {
	for _, node := range nodes {
		if err := b.Set(noteKey(lackNote+node), nil, nil); err != nil {
			return err
		}
		g.after = append(g.after, func() {
			d.lackingMu.Lock()
			defer d.lackingMu.Unlock()
			d.lacking[node] = true
		})
	}
	return nil
}

// Lacking returns the masters that lack removed tombstones, sorted.
func (d *Store) Lacking() []string {
	d.lackingMu.Lock()
	defer d.lackingMu.Unlock()
	return slices.Sorted(maps.Keys(d.lacking))
}

// Filled removes the note that a master lacks tombstones.
func (d *Store) Filled(ctx context.Context, node string) error {
	d.lackingMu.Lock()
	noted := d.lacking[node]
	delete(d.lacking, node)
	d.lackingMu.Unlock()
	if !noted {
		return nil
	}
	return d.Commit(ctx, &Write{run: func(b *pebble.Batch, _ *group) error {
		return b.Delete(noteKey(lackNote+node), nil)
	}})
}

// Forgotten returns when the latest deletion was made whose tombstone some master has removed, as
// far as this disk knows, in seconds since 1970; 0 is none. A disk that lacks it, and was last in
// contact before it, is older than what was forgotten.
func (d *Store) Forgotten() int64 { return d.forgotten.Load() }

// noteForgotten notes the deletions of tombstones in the batch that removes them.
func (d *Store) noteForgotten(b *pebble.Batch, g *group, tombs []Record) error {
	var latest int64
	for i := range tombs {
		latest = max(latest, tombs[i].Version.Time().Unix())
	}
	return d.setForgotten(b, g, latest)
}

func (d *Store) setForgotten(b *pebble.Batch, g *group, at int64) error {
	if at <= d.Forgotten() {
		return nil
	}
	g.after = append(g.after, func() { d.forgotten.Store(max(at, d.Forgotten())) })
	return b.Set(noteKey(forgottenNote), binary.BigEndian.AppendUint64(nil, uint64(at)), nil)
}

// NoteForgotten notes what another master has Forgotten; it is durable on return.
func (d *Store) NoteForgotten(ctx context.Context, at int64) error {
	if at <= d.Forgotten() {
		return nil
	}
	return d.Commit(ctx, &Write{run: func(b *pebble.Batch, g *group) error {
		return d.setForgotten(b, g, at)
	}})
}
