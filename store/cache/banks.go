package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"

	"clustermaster/store/ringstore"
	"clustermaster/value"
)

// rootPlace is the place of the keys of the topmost bank; no bank has this name.
const rootPlace = "/"

// deleteAtOnce bounds the keys in one deletion.
const deleteAtOnce = 256

// Errors that callers can tell apart.
var (
	ErrOutside = errors.New("a bank is a path below the cache, without .. that leads out of it")
	ErrNoKey   = errors.New("a key has at least one character")
	ErrNoBank  = errors.New("name a bank: the whole cache is not flushed at once")
)

// records is the part of the ring store that this package uses.
type records interface {
	Write(ctx context.Context, place string, puts ...ringstore.Put) ([]ringstore.Result, error)
	Delete(ctx context.Context, space ringstore.Space, place string, names ...string) error
	Get(ctx context.Context, k ringstore.Key) (rec ringstore.Record, found bool, err error)
	Names(ctx context.Context, space ringstore.Space, place, prefix string) ([]string, error)
	Scan(ctx context.Context, space ringstore.Space, prefix string,
		fn func(ringstore.Record) error) (ringstore.Coverage, error)
}

// Cache is the cache of the whole cluster. It is safe for concurrent use.
//
// The path of a value is its bank and its key. The first part of the path is the place on the ring,
// so a bank and all banks below it lie on the same masters: a list or a flush sees all of them.
type Cache struct {
	store   records
	minions minionData
	log     *slog.Logger
}

// New makes the cache on the ring store, with the minions' data as its banks grains, pillar and
// mine. Log nil discards.
func New(store records, minions minionData, log *slog.Logger) *Cache {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Cache{store: store, minions: minions, log: log.With("component", "banks")}
}

// bankPath is a bank's path, "" for the topmost.
func bankPath(bank string) (string, error) {
	p := strings.TrimLeft(path.Clean(bank), "/")
	if p == ".." || strings.HasPrefix(p, "../") {
		return "", fmt.Errorf("bank %q: %w", bank, ErrOutside)
	}
	if p == "." {
		p = ""
	}
	return p, nil
}

// keyPath returns the path of a key's value.
func keyPath(bank, key string) (string, error) {
	b, err := bankPath(bank)
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", ErrNoKey
	}
	p := strings.TrimLeft(path.Join(b, key), "/")
	if p == "" || p == "." || p == ".." || strings.HasPrefix(p, "../") || p == b {
		return "", fmt.Errorf("key %q: %w", key, ErrOutside)
	}
	return p, nil
}

// locate turns the path of a value into its place and name on the ring.
func locate(p string) (place, name string) {
	if place, name, deep := strings.Cut(p, "/"); deep {
		return place, name
	}
	return rootPlace, p
}

// Store keeps a wire value and replaces an earlier one of the key.
func (c *Cache) Store(ctx context.Context, bank, key string, val any) error {
	p, err := keyPath(bank, key)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if kind, rest := minionKind(p); kind != "" {
		return c.storeMinion(ctx, kind, rest, val)
	}
	packed, err := value.Pack(val)
	if err != nil {
		return fmt.Errorf("store %s: %w", p, err)
	}
	place, name := locate(p)
	if _, err := c.store.Write(ctx, place, ringstore.Put{Space: ringstore.SpaceBanks, Name: name,
		Value: packed}); err != nil {
		return fmt.Errorf("store %s: %w", p, err)
	}
	return nil
}

// Fetch returns the value of a key. If there is none, and the bank itself is the key of a map,
// Fetch looks the key up in that map.
func (c *Cache) Fetch(ctx context.Context, bank, key string) (val any, found bool, err error) {
	p, err := keyPath(bank, key)
	if err != nil {
		return nil, false, fmt.Errorf("fetch: %w", err)
	}
	if val, found, err = c.get(ctx, p); err != nil || found {
		return val, found, err
	}
	whole, _ := bankPath(bank)
	if whole == "" {
		return nil, false, nil
	}
	v, found, err := c.get(ctx, whole)
	if err != nil || !found {
		return nil, false, err
	}
	if m, ok := v.(value.Map); ok {
		if val, ok = m.Get(key); ok {
			return val, true, nil
		}
	}
	return nil, false, fmt.Errorf("fetch: %q is a key, not a bank, and its value has no %q",
		whole, key)
}

func (c *Cache) get(ctx context.Context, p string) (any, bool, error) {
	if kind, rest := minionKind(p); kind != "" {
		return c.getMinion(ctx, kind, rest)
	}
	place, name := locate(p)
	r, found, err := c.store.Get(ctx, ringstore.Key{Space: ringstore.SpaceBanks, Place: place,
		Name: name})
	if err != nil || !found {
		return nil, false, err
	}
	v, err := value.Unpack(r.Value)
	if err != nil {
		return nil, false, fmt.Errorf("decode %s: %w", p, err)
	}
	return v, true, nil
}

// List returns the keys of a bank and the banks in it, sorted; a name that is both comes twice. An
// unknown bank is empty. Incomplete says what part of the ring could not be read.
func (c *Cache) List(ctx context.Context, bank string) (names []string, incomplete string,
	err error) {
	p, err := bankPath(bank)
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	if p == "" {
		return c.topmost(ctx)
	}
	if slices.Contains(minionBanks, p) {
		names = []string{}
		cover, err := c.minions.Kept(ctx, p, func(id, env string) {
			names = append(names, minionKey(id, env))
		})
		slices.Sort(names)
		return names, cover.String(), err
	}
	place, prefix := bankPlace(p)
	found, err := c.store.Names(ctx, ringstore.SpaceBanks, place, prefix)
	if err != nil {
		return nil, "", err
	}
	names = []string{}
	for _, full := range found {
		name, rest, deep := strings.Cut(strings.TrimPrefix(full, prefix), "/")
		if deep && rest != "" {
			name += "/" // marks a bank, as against a key of the same name
		}
		names = append(names, name)
	}
	return entries(names), "", nil
}

// entries sorts names and drops repetitions; bank names still end with "/" here.
func entries(names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], "/")
	}
	slices.Sort(names)
	return names
}

// topmost lists the banks.
func (c *Cache) topmost(ctx context.Context) (names []string, incomplete string, err error) {
	names = []string{}
	cover, err := c.store.Scan(ctx, ringstore.SpaceBanks, "", func(r ringstore.Record) error {
		if r.Place == rootPlace {
			names = append(names, r.Name)
		} else {
			names = append(names, r.Place+"/")
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("list banks: %w", err)
	}
	for _, kind := range minionBanks {
		some := false
		of, err := c.minions.Kept(ctx, kind, func(string, string) { some = true })
		if err != nil {
			return nil, "", err
		}
		if of.Incomplete > cover.Incomplete {
			cover = of
		}
		if some {
			names = append(names, kind+"/")
		}
	}
	return entries(names), cover.String(), nil
}

// bankPlace is the place of a bank, and how the names of all records in it begin.
func bankPlace(bank string) (place, prefix string) {
	place, rest, deep := strings.Cut(bank, "/")
	if deep {
		prefix = rest + "/"
	}
	return place, prefix
}

// Flush removes a key; false means that it did not exist.
func (c *Cache) Flush(ctx context.Context, bank, key string) (bool, error) {
	p, err := keyPath(bank, key)
	if err != nil {
		return false, fmt.Errorf("flush: %w", err)
	}
	_, found, err := c.get(ctx, p)
	if err != nil || !found {
		return false, err
	}
	if kind, rest := minionKind(p); kind != "" {
		return true, c.dropMinion(ctx, kind, rest)
	}
	place, name := locate(p)
	return true, c.store.Delete(ctx, ringstore.SpaceBanks, place, name)
}

// FlushBank removes a bank with all keys and banks in it; false means that it did not exist.
func (c *Cache) FlushBank(ctx context.Context, bank string) (bool, error) {
	p, err := bankPath(bank)
	if err != nil {
		return false, fmt.Errorf("flush: %w", err)
	}
	if p == "" {
		return false, ErrNoBank
	}
	if slices.Contains(minionBanks, p) {
		return c.dropMinions(ctx, p)
	}
	place, prefix := bankPlace(p)
	found, err := c.store.Names(ctx, ringstore.SpaceBanks, place, prefix)
	if err != nil || len(found) == 0 {
		return false, err
	}
	for some := range slices.Chunk(found, deleteAtOnce) {
		if err := c.store.Delete(ctx, ringstore.SpaceBanks, place, some...); err != nil {
			return false, fmt.Errorf("flush %s: %w", p, err)
		}
	}
	return true, nil
}
