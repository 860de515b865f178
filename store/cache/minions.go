package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clustermaster/store/ringstore"
	"clustermaster/value"
	"clustermaster/wire"
)

// The banks of minions' data, as Salt 3008 names them. A key is a minion id; in the bank pillar, a
// colon and a pillarenv may follow.
const (
	grainsBank = "grains"
	pillarBank = "pillar"
	mineBank   = "mine"
)

var minionBanks = []string{grainsBank, mineBank, pillarBank}

// minionData is the stored data of minions.
type minionData interface {
	Grains(ctx context.Context, id string) (value.Map, bool, error)
	SetGrains(ctx context.Context, id string, grains value.Raw) error
	DropGrains(ctx context.Context, id string) error
	PillarOf(ctx context.Context, id, pillarenv string) (value.Map, bool, error)
	SetPillar(ctx context.Context, id, pillarenv string, pillar value.Map) error
	DropPillar(ctx context.Context, id string) error
	Mine(ctx context.Context, id string) (value.Map, error)
	MergeMine(ctx context.Context, id string, data value.Map, clear bool) error
	FlushMine(ctx context.Context, id string) error
	// Kept lists the keys of one of the banks grains, pillar and mine, sorted.
	Kept(ctx context.Context, bank string) (keys []string, cover ringstore.Coverage, err error)
}

// minionKind returns the bank of minions' data that a path leads into, and the key in it; "" for
// any other path.
func minionKind(p string) (kind, key string) {
	first, rest, _ := strings.Cut(p, "/")
	if rest == "" || !slices.Contains(minionBanks, first) {
		return "", ""
	}
	return first, rest
}

// minionOf splits a key into the minion's id and the pillarenv.
func minionOf(kind, key string) (id, pillarenv string, err error) {
	id = key
	if kind == pillarBank {
		id, pillarenv, _ = strings.Cut(key, ":")
	}
	if !wire.ValidID(id) {
		return "", "", fmt.Errorf("bank %s: %q is not a minion id", kind, key)
	}
	return id, pillarenv, nil
}

func (c *Cache) getMinion(ctx context.Context, kind, key string) (any, bool, error) {
	id, env, err := minionOf(kind, key)
	if err != nil {
		return nil, false, nil // no data is kept under such a key
	}
	var m value.Map
	var found bool
	switch kind {
	case grainsBank:
		m, found, err = c.minions.Grains(ctx, id)
	case pillarBank:
		m, found, err = c.minions.PillarOf(ctx, id, env)
	default:
		m, err = c.minions.Mine(ctx, id)
		found = m != nil
	}
	return m, found, err
}

func (c *Cache) storeMinion(ctx context.Context, kind, key string, val any) error {
	id, env, err := minionOf(kind, key)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	m, ok := val.(value.Map)
	if !ok {
		return fmt.Errorf("store %s of %s: a map is kept there", kind, id)
	}
	switch kind {
	case grainsBank:
		packed, err := value.Pack(m)
		if err != nil {
			return fmt.Errorf("store grains of %s: %w", id, err)
		}
		return c.minions.SetGrains(ctx, id, packed)
	case pillarBank:
		return c.minions.SetPillar(ctx, id, env, m)
	}
	return c.minions.MergeMine(ctx, id, m, true)
}

// dropMinion removes a minion's data from a bank; of the bank pillar, the pillars of all
// pillarenvs.
func (c *Cache) dropMinion(ctx context.Context, kind, key string) error {
	id, _, err := minionOf(kind, key)
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	switch kind {
	case grainsBank:
		return c.minions.DropGrains(ctx, id)
	case pillarBank:
		return c.minions.DropPillar(ctx, id)
	}
	return c.minions.FlushMine(ctx, id)
}

// dropMinions empties one of the minions' banks.
func (c *Cache) dropMinions(ctx context.Context, kind string) (bool, error) {
	keys, cover, err := c.minions.Kept(ctx, kind)
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		if err := c.dropMinion(ctx, kind, key); err != nil {
			return true, err
		}
	}
	if !cover.Complete() {
		return true, errors.New("flush " + kind + ": " + cover.String() +
			"; flush again when all masters are back")
	}
	return len(keys) > 0, nil
}
