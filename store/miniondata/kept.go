package miniondata

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"clustermaster/store/ringstore"
	"clustermaster/value"
)

// Kept calls fn, in order, with each minion whose "grains", "pillar" or "mine" is kept, and for
// pillar with each pillarenv ("" for none).
func (d *Data) Kept(ctx context.Context, what string,
	fn func(id, pillarenv string)) (ringstore.Coverage, error) {
	prefix := what
	if what+"/" == minePrefix {
		prefix = minePrefix
	}
	type owner struct{ id, env string }
	keys := map[owner]bool{}
	cover, err := d.store.Scan(ctx, ringstore.SpaceMinions, prefix, func(r ringstore.Record) error {
		switch env, ofEnv := strings.CutPrefix(r.Name, pillarPrefix); {
		case ofEnv:
			keys[owner{r.Place, env}] = true
		case r.Name == what || prefix == minePrefix:
			keys[owner{r.Place, ""}] = true
		}
		return nil
	})
	if err != nil {
		return cover, fmt.Errorf("list whose %s is kept: %w", what, err)
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), func(a, b owner) int {
		return cmp.Or(strings.Compare(a.id, b.id), strings.Compare(a.env, b.env))
	}) {
		fn(k.id, k.env)
	}
	return cover, nil
}

// FirstGrains returns the grains of the first minion, by id, that has some.
func (d *Data) FirstGrains(ctx context.Context) (grains value.Map, found bool, err error) {
	var ids []string
	_, err = d.Kept(ctx, "grains", func(id, _ string) { ids = append(ids, id) })
	for _, id := range ids {
		if grains, found, err = d.Grains(ctx, id); err != nil || len(grains) > 0 {
			return grains, found, err
		}
	}
	return nil, false, err
}
