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
	// Kept calls fn with what one of the banks grains, pillar and mine has, sorted.
	Kept(ctx context.Context, bank string,
		fn func(id, pillarenv string)) (cover ringstore.Coverage, err error)
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

// errNoMinion is the error of a key that names no minion.
var errNoMinion = errors.New("not a minion id")

// minionKey is the key of a minion's data.
func minionKey(id, pillarenv string) string {
	if pillarenv == "" {
		return id
	}
	return id + ":" + pillarenv
}

// minionOf splits a key into the minion's id and the pillarenv. Both may have colons, so the
// longest id that data is kept of counts; if there is none, a pillarenv begins at the first colon.
func (c *Cache) minionOf(ctx context.Context, kind, key string) (id, pillarenv string, err error) {
	id = key
	if kind == pillarBank && strings.Contains(key, ":") {
		for end := len(key); end > 0; end = strings.LastIndexByte(key[:end], ':') {
			id, pillarenv = key[:end], strings.TrimPrefix(key[end:], ":")
			if known, err := c.known(ctx, id, pillarenv); err != nil || known {
				return id, pillarenv, err
			}
		}
		id, pillarenv, _ = strings.Cut(key, ":")
	}
	if !wire.ValidID(id) {
		return "", "", fmt.Errorf("bank %s: %q is %w", kind, key, errNoMinion)
	}
	return id, pillarenv, nil
}

// known reports whether a minion's grains or pillar are kept.
func (c *Cache) known(ctx context.Context, id, pillarenv string) (bool, error) {
	if !wire.ValidID(id) {
		return false, nil
	}
	_, found, err := c.minions.Grains(ctx, id)
	for _, env := range []string{"", pillarenv} {
		if err == nil && !found {
			_, found, err = c.minions.PillarOf(ctx, id, env)
		}
	}
	return found, err
}

func (c *Cache) getMinion(ctx context.Context, kind, key string) (any, bool, error) {
	id, env, err := c.minionOf(ctx, kind, key)
	if errors.Is(err, errNoMinion) {
		return nil, false, nil // no data is kept under such a key
	}
	if err != nil {
		return nil, false, err
	}
	return c.getOf(ctx, kind, id, env)
}

func (c *Cache) getOf(ctx context.Context, kind, id, env string) (any, bool, error) {
	var m value.Map
	var found bool
	var err error
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
	id, env, err := c.minionOf(ctx, kind, key)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return c.storeOf(ctx, kind, id, env, val)
}

func (c *Cache) storeOf(ctx context.Context, kind, id, env string, val any) error {
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
	id, _, err := c.minionOf(ctx, kind, key)
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return c.dropOf(ctx, kind, id)
}

func (c *Cache) dropOf(ctx context.Context, kind, id string) error {
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
	var ids []string
	cover, err := c.minions.Kept(ctx, kind, func(id, _ string) { ids = append(ids, id) })
	if err != nil {
		return false, err
	}
	ids = slices.Compact(ids)
	for _, id := range ids {
		if err := c.dropOf(ctx, kind, id); err != nil {
			return true, err
		}
	}
	if !cover.Complete() {
		return true, errors.New("flush " + kind + ": " + cover.String() +
			"; flush again when all masters are back")
	}
	return len(ids) > 0, nil
}
