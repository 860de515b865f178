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
)

// suffix of the files that Salt's driver localfs keeps values in.
const suffix = ".p"

// maxFile bounds one file of Salt's cache, in bytes; what is larger is counted as an error.
const maxFile = 64 << 20

// noBanks are folders of a cachedir that hold files of that form and are no banks: the job cache,
// lists of files, tokens, and our own state.
var noBanks = []string{"clustermaster", "file_lists", "jobs", "tokens"}

// Migrate takes in the values that a master of Salt's kept as files below cachedir (driver
// localfs): of one bank and those in it, or of all if bank is "". A value replaces what there is,
// but for grains, pillar and mine, in which what a minion told since stays. With dry nothing is
// written. It returns the keys found per bank, and how many were not taken in; the log has each.
func (c *Cache) Migrate(ctx context.Context, cachedir, bank string, dry bool) (keys map[string]int,
	failed int, err error) {
	keys = make(map[string]int)
	from, err := bankPath(bank)
	if err != nil {
		return keys, failed, fmt.Errorf("migrate: %w", err)
	}
	root, err := os.OpenRoot(cachedir) // no link leads out of it
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
		case errors.Is(err, fs.ErrNotExist): // no such bank, or gone while walking
			return nil
		case err != nil:
			failed++
			c.log.Error("read a folder of the cache", "cachedir", cachedir, "path", p, "err", err)
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
			c.log.Error("take in a file of the cache", "cachedir", cachedir, "path", p, "err", err)
		}
		return nil
	})
	return keys, failed, err
}

// take stores the content of one file.
func (c *Cache) take(ctx context.Context, root *os.Root, file, bank, key string) error {
	val, err := readValue(root, file)
	if err != nil {
		return err
	}
	if m, ok := val.(value.Map); ok && len(m) == 0 {
		return nil
	}
	// where Salt kept minions' data up to 3007
	if id, ok := strings.CutPrefix(bank, "minions/"); ok {
		m, _ := val.(value.Map)
		switch key {
		case "data":
			return errors.Join(c.takeMinion(ctx, grainsBank, id, m),
				c.takeMinion(ctx, pillarBank, id, m))
		case mineBank:
			return c.takeNew(ctx, mineBank, id, val)
		}
	}
	if slices.Contains(minionBanks, bank) {
		return c.takeNew(ctx, bank, key, val)
	}
	return c.Store(ctx, bank, key, val)
}

func (c *Cache) takeMinion(ctx context.Context, kind, id string, data value.Map) error {
	val, ok := data.Get(kind)
	if !ok {
		return nil
	}
	return c.takeNew(ctx, kind, id, val)
}

// takeNew stores minions' data that is not there yet.
func (c *Cache) takeNew(ctx context.Context, kind, key string, val any) error {
	_, found, err := c.getMinion(ctx, kind, key)
	if err != nil || found {
		return err
	}
	return c.storeMinion(ctx, kind, key, val)
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
