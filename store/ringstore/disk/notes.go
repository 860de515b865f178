package disk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// lackNote, followed by a node, notes that the node lacks removed tombstones.
const lackNote = "lack/"

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
