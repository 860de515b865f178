package miniondata

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"clustermaster/store/ringstore"
	"clustermaster/value"
)

// Kept lists what "grains", "pillar" or "mine" has data on, sorted: minion ids, and for pillar also
// id:pillarenv.
func (d *Data) Kept(ctx context.Context, what string) ([]string, ringstore.Coverage, error) {
	prefix := what
	if what+"/" == minePrefix {
		prefix = minePrefix
	}
	keys := map[string]bool{}
	cover, err := d.store.Scan(ctx, ringstore.SpaceMinions, prefix, func(r ringstore.Record) error {
		switch env, ofEnv := strings.CutPrefix(r.Name, pillarPrefix); {
		case ofEnv:
			keys[r.Place+":"+env] = true
		case r.Name == what || prefix == minePrefix:
			keys[r.Place] = true
		}
		return nil
	})
	if err != nil {
		return nil, cover, fmt.Errorf("list whose %s is kept: %w", what, err)
	}
	return slices.Sorted(maps.Keys(keys)), cover, nil
}

// FirstGrains returns the grains of the first minion, by id, that has some.
func (d *Data) FirstGrains(ctx context.Context) (grains value.Map, found bool, err error) {
	ids, _, err := d.Kept(ctx, "grains")
	for _, id := range ids {
		if grains, found, err = d.Grains(ctx, id); err != nil || len(grains) > 0 {
			return grains, found, err
		}
	}
	return nil, false, err
}
