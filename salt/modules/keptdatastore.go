package modules

import (
	"context"

	"clustermaster/value"
)

// Cache keeps values for all masters; *cache.Cache implements it.
type Cache interface {
	Fetch(ctx context.Context, bank, key string) (value any, found bool, err error)
	Store(ctx context.Context, bank, key string, value any) error
}

// KeptDatastore is a Datastore in one key of the cache.
type KeptDatastore struct{ Cache Cache }

// Load implements Datastore.
func (d KeptDatastore) Load(ctx context.Context) (value.Map, error) {
	v, _, err := d.Cache.Fetch(ctx, "data", "datastore")
	m, _ := v.(value.Map)
	return m, err
}

// Dump implements Datastore.
func (d KeptDatastore) Dump(ctx context.Context, data value.Map) error {
	return d.Cache.Store(ctx, "data", "datastore", data)
}
