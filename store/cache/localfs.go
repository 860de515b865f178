package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/wire"
)

// suffix ends the names of the files in which Salt's driver localfs keeps values.
const suffix = ".p"

// maxFile bounds one file of Salt's cache, in bytes; Migrate counts a larger one as an error.
const maxFile = 64 << 20

// noBanks are folders of a cachedir that hold such files and are not banks: the job cache, lists of
// files, tokens, the consensus of a cluster of Salt 3008, and our own state.
var noBanks = []string{"cluster", "clustermaster", "file_lists", "jobs", "tokens"}

// Migrate imports the values that a Salt master kept as files below cachedir (driver localfs):
// those of one bank and the banks in it, or of all if bank is "". A value replaces the present one,
// except in grains, pillar and mine, where newer data of the minion stays. With dry it writes
// nothing. It returns the keys found per bank, and how many it could not import; the log has each.
func (c *Cache) Migrate(ctx context.Context, cachedir, bank string, dry bool) (keys map[string]int,
	failed int, err error) {
	keys = make(map[string]int)
	from, err := bankPath(bank)
	if err != nil {
		return keys, failed, fmt.Errorf("migrate: %w", err)
	}
	root, err := os.OpenRoot(cachedir) // no link leads outside
	if err != nil {
		return keys, failed, fmt.Errorf("migrate: %w", err)
	}
	defer root.Close()
	if from == "" {
		from = "."
	}
	err = fs.WalkDir(root.FS(), from, func(p string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist): // no such bank, or removed while walking
			return nil
		case err != nil:
			failed++
			c.log.Error("folder of the cache not read", "cachedir", cachedir, "path", p, "err", err)
			return fs.SkipDir
		case d.IsDir():
			if from == "." && slices.Contains(noBanks, p) {
				return fs.SkipDir
			}
			return nil
		}
		key, ok := strings.CutSuffix(d.Name(), suffix)
		if !ok || !d.Type().IsRegular() || path.Dir(p) == "." {
			return nil
		}
		keys[path.Dir(p)]++
		if dry {
			return nil
		}
		if err := c.take(ctx, root, p, path.Dir(p), key); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failed++
			c.log.Error("file of the cache not imported", "cachedir", cachedir, "path", p, "err", err)
		}
		return nil
	})
	return keys, failed, err
}

// take imports the content of one file.
func (c *Cache) take(ctx context.Context, root *os.Root, file, bank, key string) error {
	val, err := readValue(root, file)
	if err != nil {
		return err
	}
	if m, ok := val.(value.Map); ok && len(m) == 0 {
		return nil
	}
	// where Salt up to 3007 kept minions' data
	if id, ok := strings.CutPrefix(bank, "minions/"); ok {
		m, _ := val.(value.Map)
		switch key {
		case "data":
			return errors.Join(c.takeMinion(ctx, grainsBank, id, m),
				c.takeMinion(ctx, pillarBank, id, m))
		case mineBank:
			return c.takeNew(ctx, mineBank, id, "", val)
		}
	}
	if kind, rest := minionKind(bank + "/" + key); kind != "" { // a pillarenv may have a "/"
		id, env, err := c.minionOf(ctx, kind, rest)
		if err != nil {
			return err
		}
		return c.takeNew(ctx, kind, id, env, val)
	}
	return c.Store(ctx, bank, key, val)
}

func (c *Cache) takeMinion(ctx context.Context, kind, id string, data value.Map) error {
	val, ok := data.Get(kind)
	if !ok {
		return nil
	}
	return c.takeNew(ctx, kind, id, "", val)
}

// takeNew stores minions' data that is not stored yet.
func (c *Cache) takeNew(ctx context.Context, kind, id, env string, val any) error {
	if !wire.ValidID(id) {
		return fmt.Errorf("%q is %w", id, errNoMinion)
	}
	_, found, err := c.getOf(ctx, kind, id, env)
	if err != nil || found {
		return err
	}
	return c.storeOf(ctx, kind, id, env, val)
}

func readValue(root *os.Root, file string) (any, error) {
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return value.Unpack(b)
}
