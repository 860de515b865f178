package cache

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"clustermaster/store/durable"
	"clustermaster/store/ringstore"
	"clustermaster/value"
)

// Export writes all banks as files of a Salt master below cachedir, the opposite of Migrate. With
// perBank minions' data lies as in Salt 3008: grains/ID.p, pillar/ID.p and mine/ID.p; else as in
// 3006 and 3007: minions/ID/data.p and minions/ID/mine.p. A file there is replaced; files of keys
// that are not here stay. It returns the files written per topmost bank, how many values no file
// could be made for (the log has each), and what part of the ring could not be read ("": none).
func (c *Cache) Export(ctx context.Context, cachedir string, perBank bool) (files map[string]int,
	failed int, incomplete string, err error) {
	root, err := os.OpenRoot(cachedir) // no link leads outside
	if err != nil {
		return nil, 0, "", fmt.Errorf("export: %w", err)
	}
	defer root.Close()
	x := &export{cache: c, root: root, perBank: perBank, files: make(map[string]int)}
	for _, kind := range minionBanks {
		if err := x.minions(ctx, kind); err != nil {
			return x.files, x.failed, "", fmt.Errorf("export %s: %w", kind, err)
		}
	}
	if err := x.operators(ctx); err != nil {
		return x.files, x.failed, "", fmt.Errorf("export banks: %w", err)
	}
	return x.files, x.failed, x.cover.String(), nil
}

// export is one run of Export.
type export struct {
	cache   *Cache
	root    *os.Root
	perBank bool
	files   map[string]int
	failed  int
	cover   ringstore.Coverage
}

// note keeps the worse coverage.
func (x *export) note(c ringstore.Coverage) {
	if c.Incomplete > x.cover.Incomplete {
		x.cover = c
	}
}

// minions writes one kind of minions' data.
func (x *export) minions(ctx context.Context, kind string) error {
	var keys [][2]string
	cover, err := x.cache.minions.Kept(ctx, kind, func(id, env string) {
		keys = append(keys, [2]string{id, env})
	})
	if err != nil {
		return err
	}
	x.note(cover)
	for _, k := range keys {
		id, env := k[0], k[1]
		key := minionKey(id, env)
		val, found, err := x.cache.getOf(ctx, kind, id, env)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if x.perBank {
			err = x.write(kind, key, val)
		} else {
			err = x.perMinion(kind, id, env, val)
		}
		if err = x.left(kind+"/"+key, err); err != nil {
			return err
		}
	}
	return nil
}

// left counts and logs a value that was not written, and returns an error that others would meet
// too.
func (x *export) left(name string, err error) error {
	if durable.TakesNothing(err) {
		return err
	}
	if err != nil {
		x.failed++
		x.cache.log.Error("value of the cache not written as a file", "cachedir", x.root.Name(), "key",
			name, "err", err)
	}
	return nil
}

// perMinion writes into a minion's own bank, where grains and pillar share a file. Salt up to 3007
// keeps no pillar of another pillarenv.
func (x *export) perMinion(kind, id, env string, val any) error {
	if env != "" {
		return nil
	}
	bank := "minions/" + id
	if kind == mineBank {
		return x.write(bank, mineBank, val)
	}
	data, _ := readValue(x.root, path.Join(bank, "data"+suffix)) // a file that can't be read is replaced
	m, _ := data.(value.Map)
	return x.write(bank, "data", m.Set(kind, val))
}

// operators writes the other banks.
func (x *export) operators(ctx context.Context) error {
	cover, err := x.cache.store.Scan(ctx, ringstore.SpaceBanks, "",
		func(r ringstore.Record) error {
			if r.Place == rootPlace || slices.Contains(noBanks, r.Place) {
				return nil // Salt has no such bank
			}
			p := path.Join(r.Place, r.Name)
			val, err := value.Unpack(r.Value)
			if err == nil {
				err = x.write(path.Dir(p), path.Base(p), val)
			}
			return x.left(p, err)
		})
	x.note(cover)
	return err
}

// write replaces the file of a key, so that a reader sees the old or the new one. Minions choose a
// part of the keys of pillars; as in Salt, a "/" in it makes folders.
func (x *export) write(bank, key string, val any) error {
	if slices.Contains(strings.Split(key+suffix, "/"), "..") {
		return fmt.Errorf("key %q: %w", key, ErrOutside)
	}
	packed, err := value.PackNew(val)
	if err != nil {
		return err
	}
	name := path.Join(bank, key+suffix)
	if err := x.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	fresh := path.Join(bank, ".new-"+rand.Text())
	err = x.root.WriteFile(fresh, packed, 0o600)
	if err == nil {
		err = x.root.Rename(fresh, name)
	}
	if err != nil {
		_ = x.root.Remove(fresh) // the error above says more
		return err
	}
	first, _, _ := strings.Cut(bank, "/")
	x.files[first]++
	return nil
}
